"""Count3 to its end: arrival, flatness, slope and failure are what the curves say."""

import math

import numpy as np
import pytest
from made_up import record_of
from mistakes import refused

from entp_lab.claims import judge
from entp_lab.frames import published, select
from entp_lab.registry import EXPERIMENTS
from entp_papers.entp import count3, logged
from entp_papers.entp.count3_studies import repeats_study

LATE = [0.1, 0.5, 0.6, 0.7, 0.8, 0.96, 0.97, 0.97, 0.98, 0.98]
EARLY = [0.1, 0.5, 0.96, 0.96, 0.97]


def made_up(tier, decoder, entp):
    """Make records of a tier, of token accuracies at n = 5, 6, 7, and ENTP there in half the steps.

    Of whole sequences 0.92 are right, and 0.01 more for each seed.
    """
    found = []
    for run in EXPERIMENTS["count3"].plan(tier, 0):
        is_entp = run.labels["arm"] == "entp"
        by_n = entp if is_entp else decoder
        curve = EARLY if is_entp else LATE
        steps = [10 * i for i in range(1, len(curve) + 1)]
        record = record_of(
            run,
            dict(step=steps, token_accuracy=curve),
            token_accuracy=sum(by_n) / 3,
            sequence_accuracy=0.92 + 0.01 * run.labels["seed"],
            token_accuracy_by_position=by_n,
            position=[5, 6, 7],
            baseline=dict(token_accuracy=0.2, sequence_accuracy=0.0),
        )
        found.append(record)
    return found


def test_a_pair_in_which_neither_arrives_is_dropped():
    # five pairs in which ENTP leads by 0.1 a token of length
    records = made_up("overnight", [0.5, 0.5, 0.5], [0.5, 0.6, 0.7])
    late = count3.lead(count3.arrivals(records, 0.975))  # ENTP never: its last step
    assert late.tolist() == pytest.approx([math.log(90 / 50)] * 5)
    assert count3.lead(count3.arrivals(records, 0.995)).empty


@pytest.mark.parametrize("tier", ["quick", "overnight"])
@pytest.mark.parametrize(
    ("decoder", "entp", "why"),
    [
        # far above the mode, and no pair looked at
        (0.41, 0.44, "no model is 0.05 above the shortcut, 0.392"),
        (0.41, 0.45, ""),
        (0.45, 0.30, ""),
        (0.98, 0.985, "a side is nearer to its ceiling than the margin"),
    ],
)
def test_a_row_of_count3_speaks_of_pairs_only_beyond_the_pairless_bound(tier, decoder, entp, why):
    """One rule for tokens and for the slope, whatever the tier."""
    made = made_up(tier, [decoder] * 3, [entp, entp, entp + 0.001])
    slope = count3.growth(select(made, task="count3"))
    rows = judge([*EXPERIMENTS["count3"].measure(made), *slope], only_measured=True)
    rows = rows.set_index("id")
    compared = ["F2-tokens", "F2-unseen-parity"]
    assert rows.loc[compared, "why"].to_list() == [why] * 2
    assert set(rows.loc[compared, "verdict"] == "uninformative") == {bool(why)}


# Count3 held out by multisets: what training has seen is counted exactly, and the runs are those
# that they repeat.


def test_what_has_come_up_is_counted_up_to_the_order_that_changes_nothing():
    """Of seeds of 3 from 20 symbols a state is drawn with probability 2/20³ or, of two equal
    elements, 1/20³; after N draws the share of draws whose state has come up is the mean of 1 - (1
    - p)^N, in expectation.
    """
    task = dict(length=3, seed_length=3, symbols=20)
    total = 20**3
    different = 20 * 20 * 19 / 2
    expected = different * 2 / total * (1 - (1 - 2 / total) ** 4000)
    expected += 20 * 20 / total * (1 - (1 - 1 / total) ** 4000)
    metrics, curves = repeats_study(task, 4000, scored=20_000)
    assert metrics["seen"] == pytest.approx(expected, abs=0.015)
    assert curves == {"n": [3], "seen": [metrics["seen"]]}
    assert repeats_study(task, 0, scored=10)[0]["seen"] == 0


# The authors' logs in steps and in compute: their steps, what a step costs, and what the ledger
# says of both.


def test_the_steps_of_count3_lie_on_the_thinned_log():
    """The two tables of one log: at the step to a level the thinned curve has it, up to an
    evaluation's noise.
    """
    steps = published("entp", "logged_steps")
    curves = published("entp", "count3_curves")
    found = steps.query("task == 'count3'")
    assert len(found) == 14 and found["step"].notna().all()
    for row in found.itertuples():
        curve = curves.query("size == @row.model and architecture == @row.architecture")
        smooth = curve["token_accuracy"].rolling(3, center=True, min_periods=1).mean()
        assert np.interp(row.step, curve["step"], smooth) == pytest.approx(row.level, abs=0.015)


def test_a_steps_multiply_adds_are_those_of_the_counter():
    metrics, _ = logged.logged_study("shakespeare", "small")
    for arm in logged.TWINS:
        assert metrics[arm]["counted"] == metrics[arm]["forward"]
        assert metrics[arm]["step"] == 3 * 64 * metrics[arm]["forward"]


def test_a_pair_that_is_not_logged_is_refused_in_a_line():
    with refused("task = 'count3', model = 'small': not among"):
        logged.logged_study("count3", "small")
