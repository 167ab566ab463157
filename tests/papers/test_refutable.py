"""A result against a statement turns the verdicts on what rests on it, and on nothing else."""

import copy
import functools
import operator

import pytest

from entp_lab.registry import EXPERIMENTS
from entp_lab.studies import by_study

BLOCKS = "LT-6 LT-7 LT-8 LT-9 LT-C2 LT-C3"
DOUBLED = 10  # the row of a scheme of relative positions, written with doubled states
B6 = 9  # a row of that bug

# By experiment: a study, its metric or curve, the value it gets (by row, where not in all rows),
# and the claims that no longer hold.
CHANGES = {
    "looped": [
        ("errata", "E9/corrected", 5, "LT-1"),
        ("circuits", "hidden", 10_000, "LT-1"),
        ("errata", "E2/corrected", 5, "LT-3"),
        ("errata", "E1/corrected", 5, "LT-4.3"),
        ("depth", "factor_of_a_level", 2.0, "LT-6.3"),
        ("calculator", "error", 0.5, "LT-T4"),
        ("contract", "width", 10_000, BLOCKS),
        ("contract", "padding", 1.0, BLOCKS),
    ],
    "scratchpad": [
        ("equivalence", "loss", 1e-6, "IS-training IS-schemes IS-ingredients"),
        ("reuse", "ways/inductive decoder, naive/largest_error", 0.0, "IS-naive"),
        ("writing", "differing_texts", {DOUBLED: 1}, "IS-caches IS-relative"),
    ],
    "encoder_decoder": [
        ("parity", "largest_difference", 1e-3, "ED-layers"),
        ("masking", "special_selected", 1, "ED-mlm"),
        ("losses", "largest", 1e-3, "ED-causal-loss"),
        ("bugs", "influence/corrected", [[1, 0], [1, 1]], "ED-triangle"),
        ("bugs", "told_apart", {B6: False}, "ED-cache"),
        ("sampling", "right", {0: False}, "ED-sampling"),
        ("caches", "apart", 0.0, "ED-cache-decoder"),
    ],
    "expressivity": [
        ("expressivity", "a3_gradient_error", 1e-3, "A.3"),
        ("expressivity", "a3_two_layers", 0.0, "A.3"),
        ("expressivity", "control_refuted", 1, "4.1 4.2 8-expressive"),
        ("expressivity", "encoders_refuted", 9, "4.1 8-expressive"),
        ("expressivity", "simulated_error", 1e-3, "F1-approximation"),
        ("expressivity", "exponent_random", 0.3, "F1-logarithmic"),
    ],
    "rasp": [
        ("below_length", "wrong", {0: 1}, "6.3"),
        ("below_length", "layers", {0: 12}, "6.3"),
        ("counters", "right", False, "6.1"),
        ("constructed_decoder", "hard_wrong", {0: 1}, "6.2-medium"),
    ],
    "complexity": [
        ("costs", "decoder_transient", {-1: 10**9}, "T1"),
        ("costs", "decoder_operations", {0: 1}, "T1 T1-algorithms T1-sequence"),
        ("costs", "streamed_transient", {-1: 10**6}, "D-1"),
        ("costs", "streamed_transient", 8 * 10**6, "D-1"),
    ],
}
CASES = [(name, *change) for name, changes in CHANGES.items() for change in changes]


@pytest.mark.parametrize(("name", "study", "place", "value", "claims"), CASES)
def test_a_result_against_a_statement_turns_what_rests_on_it(name, study, place, value, claims):
    records = copy.deepcopy(EXPERIMENTS[name].committed())
    before = verdicts(name, records)
    record = by_study(records)[study]
    if place in record.curves:
        column = record.curves[place]
        rows = value if isinstance(value, dict) else dict.fromkeys(range(len(column)), value)
        for row, changed in rows.items():
            column[row] = changed
    else:
        *outer, last = place.split("/")
        metrics = functools.reduce(operator.getitem, outer, record.metrics)
        assert last in metrics
        metrics[last] = value
    after = verdicts(name, records)
    turned = {claim for claim in before if before[claim] != after[claim]}
    assert turned == set(claims.split())
    assert {after[claim] for claim in turned} <= {"refuted", "unproved"}


def verdicts(name, records):
    return {check.claim: check.verdict for check in EXPERIMENTS[name].measure(records)}
