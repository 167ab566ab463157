"""Count3 to its end: arrival, flatness, slope and failure are what the curves say."""

import math

import pytest
from made_up import record_of

from entp_lib.experiments.claims import judge
from entp_lib.experiments.frames import select
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


def test_arrival_is_the_first_evaluation_there_or_the_last_one():
    found = count3_questions.arrivals(records()).groupby("arm")[["step", "token_forwards"]].first()
    assert found.loc["entp"].tolist() == [30, 90] and found.loc["decoder"].tolist() == [60, 180]
    never = count3_questions.arrivals(records(), 0.99)
    assert not never["reached"].any() and set(never["step"]) == {50, 100}


def test_a_course_is_flat_where_its_last_fifth_rises_little():
    found = count3_questions.flatness(records()).groupby("arm")[["rise", "flat"]].first()
    assert found.loc["decoder", "rise"] == pytest.approx(0.98 - 0.97) and found.loc["entp", "rise"] == pytest.approx(
        0.01
    )
    run = EXPERIMENTS["count3"].plan("overnight", 1)[0]
    steep = count3_questions.flatness([fake(run, [0.1, 0.2, 0.3, 0.4, 0.5], 0.0, [0.5] * 3)])
    level = count3_questions.flatness([fake(run, [0.1, 0.2, 0.5, 0.5, 0.5], 0.0, [0.5] * 3)])
    assert not steep["flat"].any() and level["flat"].all()


def test_the_slope_is_that_of_the_gap_on_n():
    assert count3_questions.slopes(records()).tolist() == pytest.approx([0.1] * 5)
    (grows,) = judge(count3_questions.growth(records()), only_measured=True).to_dict("records")
    assert (grows["id"], grows["verdict"]) == ("F2-unseen-parity", "grows with n")
    assert len(count3_questions.slopes([r for r in records() if r.labels["arm"] == "entp"])) == 0


def test_a_gap_at_even_lengths_alone_is_no_growth():
    found = records()
    for r in found:
        lengths = [7, 8, 9, 10]
        extra = {"entp": 0.02 + 0.001 * r.labels["seed"]}.get(r.labels["arm"], 0.0)
        r.metrics["position"] = lengths
        r.metrics["token_accuracy_by_position"] = [0.9 + extra * (n % 2 == 0) for n in lengths]
    assert count3_questions.slopes(found).tolist() == pytest.approx([0.0] * 5)
    for r in found:
        r.metrics.update(position=[7, 8], token_accuracy_by_position=[0.9, 0.8])
    assert len(count3_questions.slopes(found)) == 0 and count3_questions.growth(found) == []


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


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ({0: 0.5, 2: 0.6, 3: 0.7, 4: 0.8}, ""),
        ({0: 0.33, 2: 0.34, 3: 0.35, 4: 0.355}, "no arm is 0.05 above the pairless bound, 0.309"),
        ({0: 0.991, 2: 0.992, 3: 0.993, 4: 0.994}, "a side is nearer to its ceiling than the margin"),
    ],
)
def test_full_layers_are_compared_unless_both_have_nothing_or_everything(scores, why):
    experiment, mode = EXPERIMENTS["full_layers"], {"token_accuracy": 0.2, "sequence_accuracy": 0.0}
    made = [
        record_of(run, token_accuracy=scores[run.labels["full"]], sequence_accuracy=0.0, baseline=mode)
        for run in experiment.plan("overnight", 0)
    ]
    measured = {m.claim: m for m in experiment.measure(made)}
    assert {m.uninformative_because for m in measured.values()} == {why}
    assert measured.keys() == {"L-4-0", "L-2-0"}
    assert measured["L-2-0"].values == pytest.approx([scores[2] - scores[0]] * 5)
