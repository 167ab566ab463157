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
        ("random_programs", "wrong", 1, "LT-3 LT-4.3 LT-4 LT-fn2"),
        ("drift", "wrong", 1, "LT-4"),
        ("sizes", "machines/SUBLEQ (Lemma 4)/layers", 10, "LT-4"),
        ("copying", "largest_error", 1e-3, "LT-2 LT-3"),
        ("off_target", "within_bound", False, "LT-2"),
        ("fleq", "wrong_branches", 1, "LT-T2"),
        ("fleq", "widths", [[1, 2, 74], [2, 2, 98], [1, 4, 104], [2, 4, 129]], "LT-T2"),
        ("fleq", "apart", 1.0, "LT-C1"),
        ("restricted", "wrong", 1, "LT-5.2"),
        ("transpose", "largest_error", 1.0, "LT-8-30"),
        ("errata", "E4/corrected", 5, "LT-4.3"),
        ("errata", "E7/corrected", 1.0, "LT-6.2"),
        ("errata", "E10/sigmoids", 10**6, "LT-10"),
        ("sigmoids", "lemma_5/10", 1.0, "LT-5"),
        ("sigmoids", "lemma_5_sizes/10", [4, 10], "LT-5"),
        ("sigmoids", "slopes/√x on [0, 100]", 0.0, "LT-11"),
        ("sigmoids", "roots/10000", 1.0, "LT-11"),
        ("ranges", "scaled", 100.0, "LT-C4 LT-C5 LT-T4"),
        ("one_head_sums", "error", 1.0, "LT-C6"),
        ("newton", "largest_residual/transposed, machine", 1.0, "LT-12-start LT-12"),
        ("power", "cosine", 0.5, "LT-13"),
        ("regression", "largest_difference", 1.0, "LT-15"),
        ("one_head", "heads", 2, "LT-12 LT-13 LT-15"),
    ],
    "scratchpad": [
        ("equivalence", "loss", 1e-6, "IS-training IS-schemes IS-ingredients"),
        ("reuse", "ways/inductive decoder, naive/largest_error", 0.0, "IS-naive"),
        ("writing", "differing_texts", {DOUBLED: 1}, "IS-caches IS-relative"),
        ("mixed", "largest_difference", 1.0, "IS-ordinary"),
        ("reuse", "ways/inductive decoder, masked/largest_error", 1.0, "IS-writing"),
        ("relative", "grows", False, "IS-question"),
        ("relative", "reach_is_window_times_layers", False, "IS-windows"),
        ("relative", "inductive_leaks", 1, "IS-distance"),
    ],
    "encoder_decoder": [
        ("parity", "largest_difference", 1e-3, "ED-layers"),
        ("masking", "special_selected", 1, "ED-mlm"),
        ("masking", "special_drawn", 1, "ED-mlm"),
        ("losses", "largest", 1e-3, "ED-causal-loss"),
        ("bugs", "influence/corrected", [[1, 0], [1, 1]], "ED-triangle"),
        ("bugs", "told_apart", {B6: False}, "ED-cache"),
        ("sampling", "right", {0: False}, "ED-sampling"),
        ("caches", "apart", 0.0, "ED-cache-decoder"),
        ("costs", "one_pass", 1.5, "ED-training-cost ED-encoder-time"),
        ("costs", "slopes/decoder, cache/counted", 1.5, "ED-decoder-time"),
        ("heads", "largest_difference", 1.0, "ED-heads"),
        ("parameters", "wrong", ["x"], "ED-parameters"),
    ],
    "expressivity": [
        ("expressivity", "a3_gradient_error", 1e-3, "A.3"),
        ("expressivity", "a3_two_layers", 0.0, "A.3"),
        ("expressivity", "control_refuted", 1, "4.1 4.2 8-expressive"),
        ("expressivity", "encoders_refuted", 9, "4.1 8-expressive"),
        ("expressivity", "simulated_error", 1e-3, "F1-approximation"),
        ("expressivity", "exponent_random", 0.3, "F1-logarithmic"),
        ("expressivity", "a2_error", 1.0, "A.2"),
        ("expressivity", "a4_error", 1.0, "A.4"),
        ("expressivity", "mask_exact", 1.0, "F1-approximation"),
        ("expressivity", "rational_error", 1.0, "4.1"),
        ("expressivity", "decoders_refuted", 9, "4.2 8-expressive"),
    ],
    "rasp": [
        ("below_length", "wrong", {0: 1}, "6.3"),
        ("below_length", "layers", {0: 12}, "6.3"),
        ("counters", "right", False, "6.1"),
        ("constructed_decoder", "hard_wrong", {0: 1}, "6.2-medium"),
        ("programs", "right/algorithm 2", 0.9, "E-2"),
        ("programs", "right/algorithm 3", 0.9, "E-3"),
        ("programs", "right/algorithm 4, x < n", 0.9, "F-4"),
        ("programs", "right/algorithm 5 with all calls causal, every prefix", 0.9, "F-5"),
        ("programs", "right/algorithm 6", 0.9, "6.4"),
        ("counters", "seeds", 1.0, "6.3-seeds 6.3-duplicates"),
    ],
    "complexity": [
        ("costs", "decoder_transient", {-1: 10**9}, "T1"),
        ("costs", "decoder_operations", {0: 1}, "T1 T1-algorithms T1-sequence"),
        ("costs", "streamed_transient", {-1: 10**6}, "D-1"),
        ("costs", "streamed_transient", 8 * 10**6, "D-1"),
        ("costs", "encoder_transient", 10**12, "T1"),
        ("costs", "streamed_error", 1.0, "D-1"),
    ],
    "compact_statements": [
        ("examples", "wrong", 1, "CT-examples"),
        ("hopfield", "gigabytes_at_two_bits", 1.0, "CT-hopfield"),
    ],
}
CASES = [(name, *change) for name, changes in CHANGES.items() for change in changes]


@pytest.mark.parametrize(("name", "study", "place", "value", "claims"), CASES)
def test_a_result_against_a_statement_turns_what_rests_on_it(name, study, place, value, claims):
    records = copy.deepcopy(EXPERIMENTS[name].committed())
    before = verdicts(name, records)
    record = by_study(records)[study]
    *outer, last = place.split("/")
    metrics = functools.reduce(operator.getitem, outer, record.metrics)
    if last in metrics and not isinstance(value, dict):
        metrics[last] = value
    else:
        column = record.curves[place]
        rows = value if isinstance(value, dict) else dict.fromkeys(range(len(column)), value)
        for row, changed in rows.items():
            column[row] = changed
    after = verdicts(name, records)
    turned = {claim for claim in before if before[claim] != after[claim]}
    assert turned == set(claims.split())
    assert {after[claim] for claim in turned} <= {"refuted", "unproved"}


def verdicts(name, records):
    return {check.claim: check.verdict for check in EXPERIMENTS[name].measure(records)}
