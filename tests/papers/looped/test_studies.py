"""Studies of the looped computer: what their rows show, and rules that can fail."""

import copy

import numpy as np
import pytest

from entp_lab import claims
from entp_lab.registry import STUDIES
from entp_lab.store import Store
from entp_lab.studies import of_study
from entp_papers.looped.block_studies import attention_square, sawtooth_square
from entp_papers.looped.experiment import LOOPED, TIERS


def smoke(study):
    """Run a study at smoke scale; return its metrics and its rows."""
    metrics, curves = STUDIES[f"looped_{study}"](**TIERS["smoke"][study])
    rows = [dict(zip(curves, row, strict=True)) for row in zip(*curves.values(), strict=True)]
    return metrics, rows


def test_copies_are_exact_for_a_large_bound_only():
    _, rows = smoke("copying")
    errors = {(row["operation"], row["setting"]): row for row in rows}
    for setting in (("read", "C small"), ("write", "C small"), ("write", "as printed")):
        assert errors[setting]["error"] > 0.01
    assert errors["write", "C large"]["again"] < 1e-9  # writing twice is writing once


def test_cold_attention_breaks_programs():
    metrics, rows = smoke("temperature")
    assert max(row["right"] for row in rows if row["heat"] == 2.0) < 0.5
    assert metrics["enough"] == {"4": 12.0, "8": 12.0}


def test_products_err_by_curvature_above_the_best_delta_and_by_rounding_below():
    metrics, _ = smoke("product")
    assert metrics["slope_above"] == pytest.approx(1, abs=0.05)
    assert metrics["slope_below"] < -0.5


@pytest.mark.parametrize("study", ["regression", "back_propagation", "least_squares"])
def test_learning_is_exact(study):
    assert smoke(study)[0]["largest_difference"] < 1e-4


def test_squares_by_depth_and_by_attention():
    """A network of k levels errs by 4^-(k + 1); attention by δ with one head, by δ² with two."""
    x = np.linspace(0, 1, 4097)
    for levels in (0, 3, 6):
        error = np.abs(sawtooth_square(x, levels) - x**2).max()
        assert error == pytest.approx(4.0 ** (-levels - 1), rel=1e-9)
    x = np.linspace(-1, 1, 101)
    assert np.abs(attention_square(x, 1e-4) - x**2).max() < 1e-7
    one = [
        np.abs(attention_square(x, delta, symmetric=False) - x**2).max() for delta in (1e-3, 1e-4)
    ]
    assert one[0] / one[1] == pytest.approx(10, rel=0.05)


# Verdicts on the committed records, and on records in which something went wrong.


@pytest.fixture(scope="module")
def records():
    found = LOOPED.stored(Store(), "quick")
    assert found, "records of the looped computer are missing at quick"
    return found


def verdicts(records):
    return {check.claim: check.verdict for check in LOOPED.measure(records)}


def test_every_statement_of_the_paper_has_a_verdict(records):
    assert set(verdicts(records)) == set(claims.reference_claims().query("paper == 'looped'")["id"])
    assert LOOPED.measure([]) == []


BLOCKS = "LT-6 LT-7 LT-8 LT-9 LT-C2 LT-C3"


@pytest.mark.parametrize(
    ("study", "change", "refuted"),
    [
        ("errata", lambda m, c: m["E9"].update(corrected=5), "LT-1"),
        ("circuits", lambda m, c: c.update(hidden=[2 * n for n in c["hidden"]]), "LT-1"),
        ("errata", lambda m, c: m["E2"].update(corrected=5), "LT-3"),
        ("errata", lambda m, c: m["E1"].update(corrected=5), "LT-4.3"),
        ("depth", lambda m, c: m.update(factor_of_a_level=2.0), "LT-6.3"),
        ("calculator", lambda m, c: c.update(error=[0.5] * len(c["error"])), "LT-T4"),
        ("contract", lambda m, c: c.update(width=[10_000] * len(c["width"])), BLOCKS),
        ("contract", lambda m, c: c.update(padding=[1.0] * len(c["width"])), BLOCKS),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(records, study, change, refuted):
    broken = copy.deepcopy(records)
    record = of_study(broken, study)
    change(record.metrics, record.curves)
    before = verdicts(records)
    after = verdicts(broken)
    changed = {claim for claim in before if before[claim] != after[claim]}
    assert changed == set(refuted.split())
    assert {after[claim] for claim in changed} == {"refuted"}
