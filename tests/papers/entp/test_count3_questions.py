"""Count3 to its end: arrival, flatness, slope and failure are what the curves say."""

import math

import pytest
from made_up import record_of

from entp_lib.experiments.claims import judge
from entp_lib.experiments.experiment import select
from entp_lib.registry import EXPERIMENTS
from entp_papers.entp import count3_questions


def fake(run, course, sequence, by_n):
    """A record with a course of token accuracy at steps 10, 20, ..., and final scores for n = 5, 6, 7."""
    steps = [10 * (i + 1) for i in range(len(course))]
    curves = {"step": steps, "token_forwards": [3 * s for s in steps], "token_accuracy": list(course)}
    metrics = {
        "token_accuracy": sum(by_n) / len(by_n),
        "sequence_accuracy": sequence,
        "token_accuracy_by_position": list(by_n),
        "position": [5, 6, 7],
        "baseline": {"token_accuracy": 0.2, "sequence_accuracy": 0.0},
    }
    return record_of(run, curves, **metrics)


def records():
    """Five pairs: ENTP arrives in half the steps, leads by 0.1 a token of length, and a decoder has 0.92 or more."""
    found = []
    for run in EXPERIMENTS["count3"].plan("overnight", 0):
        seed, late = run.labels["seed"], run.labels["arm"] != "entp"
        course = [0.1, 0.5, 0.96, 0.96, 0.97] if not late else [0.1, 0.5, 0.6, 0.7, 0.8, 0.96, 0.97, 0.97, 0.98, 0.98]
        by_n = [0.5, 0.5, 0.5] if late else [0.5, 0.6, 0.7]
        found.append(fake(run, course, 0.92 + 0.01 * seed, by_n))
    return found


def test_the_slope_is_that_of_the_gap_on_n():
    assert count3_questions.slopes(records()).tolist() == pytest.approx([0.1] * 5)
    (grows,) = judge(count3_questions.growth(records()), only_measured=True).to_dict("records")
    assert (grows["id"], grows["verdict"]) == ("F2-unseen-parity", "grows with n")
    assert len(count3_questions.slopes([r for r in records() if r.labels["arm"] == "entp"])) == 0


def test_the_questions_are_answered_by_their_rules():
    measured = {m.claim: m for m in count3_questions.measure(records())}
    assert measured["F2-fails"].values == pytest.approx([0.02, 0.03, 0.04, 0.05, 0.06])
    assert measured["F2-speed"].values == pytest.approx([math.log(2)] * 5)
    answers = judge(list(measured.values()), only_measured=True).set_index("id")["verdict"]
    assert answers.to_dict() == {"F2-fails": "decoder learns it", "F2-speed": "ENTP faster"}


def test_a_pair_in_which_neither_arrives_is_dropped():
    late = count3_questions.lead(count3_questions.arrivals(records(), 0.975))
    assert late.tolist() == pytest.approx([math.log(90) - math.log(50)] * 5)  # ENTP never: its last step
    assert count3_questions.lead(count3_questions.arrivals(records(), 0.995)).empty


@pytest.mark.parametrize(
    ("decoder", "entp", "why"),
    [
        (0.41, 0.44, "no arm is 0.05 above the pairless bound, 0.392"),  # far above the mode, and no pair looked at
        (0.41, 0.45, ""),
        (0.45, 0.30, ""),
        (0.98, 0.985, "a side is nearer to its ceiling than the margin"),
    ],
)
def test_a_row_of_count3_speaks_of_pairs_only_beyond_the_pairless_bound(decoder, entp, why):
    """One rule for tokens, for whole sequences and for the slope, whatever the tier."""
    for tier in ("quick", "overnight"):
        made = []
        for run in EXPERIMENTS["count3"].plan(tier, 0):
            score = entp if run.labels["arm"] == "entp" else decoder
            made.append(fake(run, [0.1] * 5, score, [score, score, score + 0.001 * (run.labels["arm"] == "entp")]))
        found = EXPERIMENTS["count3"].measure(made) + count3_questions.growth(select(made, task="count3"))
        rows = judge(found, only_measured=True).set_index("id")
        compared = ["F2-tokens", "F2-sequences", "F2-unseen-parity"]
        assert rows.loc[compared, "why"].to_list() == [why] * 3
        assert set(rows.loc[compared, "verdict"] == "uninformative") == {bool(why)}
