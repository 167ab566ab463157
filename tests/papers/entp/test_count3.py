"""Count3 to its end: arrival, flatness, slope and failure are what the curves say."""

import itertools
import math

import numpy as np
import pytest
import torch
from made_up import record_of

from entp_lab.claims import judge
from entp_lab.frames import published, select
from entp_lab.registry import EXPERIMENTS
from entp_lib import costs
from entp_lib.config import ModelConfig
from entp_lib.tasks import Counting
from entp_lib.tasks.counting import count3 as count3_of
from entp_lib.validation import ConfigError
from entp_papers.entp import count3, full_layers, logged
from entp_papers.entp.count3_studies import repeats_study, seen
from entp_papers.entp.full_layers import SAME_FORWARDS, SAME_STEPS
from entp_papers.entp.logged import logged_study


def fake(run, course, sequence, by_n):
    """Make a record with a course of token accuracy at steps 10, 20, ..., and final scores for n =
    5, 6, 7.
    """
    steps = [10 * (i + 1) for i in range(len(course))]
    curves = {
        "step": steps,
        "token_forwards": [3 * s for s in steps],
        "token_accuracy": list(course),
    }
    metrics = {
        "token_accuracy": sum(by_n) / len(by_n),
        "sequence_accuracy": sequence,
        "token_accuracy_by_position": list(by_n),
        "position": [5, 6, 7],
        "baseline": {"token_accuracy": 0.2, "sequence_accuracy": 0.0},
    }
    return record_of(run, curves, **metrics)


def records():
    """Five pairs: ENTP arrives in half the steps, leads by 0.1 a token of length, and a decoder has
    0.92 or more.
    """
    found = []
    for run in EXPERIMENTS["count3"].plan("overnight", 0):
        seed, late = run.labels["seed"], run.labels["arm"] != "entp"
        course = (
            [0.1, 0.5, 0.96, 0.96, 0.97]
            if not late
            else [0.1, 0.5, 0.6, 0.7, 0.8, 0.96, 0.97, 0.97, 0.98, 0.98]
        )
        by_n = [0.5, 0.5, 0.5] if late else [0.5, 0.6, 0.7]
        found.append(fake(run, course, 0.92 + 0.01 * seed, by_n))
    return found


def test_the_slope_is_that_of_the_gap_on_n():
    assert count3.slopes(records()).tolist() == pytest.approx([0.1] * 5)
    (grows,) = judge(count3.growth(records()), only_measured=True).to_dict("records")
    assert (grows["id"], grows["verdict"]) == ("F2-unseen-parity", "grows with n")
    assert len(count3.slopes([r for r in records() if r.labels["arm"] == "entp"])) == 0


def test_the_questions_are_answered_by_their_rules():
    measured = {m.claim: m for m in count3.failure_and_speed(records())}
    assert measured["F2-fails"].values == pytest.approx([0.02, 0.03, 0.04, 0.05, 0.06])
    assert measured["F2-speed"].values == pytest.approx([math.log(2)] * 5)
    answers = judge(list(measured.values()), only_measured=True).set_index("id")["verdict"]
    assert answers.to_dict() == {"F2-fails": "decoder learns it", "F2-speed": "ENTP faster"}


def test_a_pair_in_which_neither_arrives_is_dropped():
    late = count3.lead(count3.arrivals(records(), 0.975))
    assert late.tolist() == pytest.approx(
        [math.log(90) - math.log(50)] * 5
    )  # ENTP never: its last step
    assert count3.lead(count3.arrivals(records(), 0.995)).empty


@pytest.mark.parametrize(
    ("decoder", "entp", "why"),
    [
        (
            0.41,
            0.44,
            "no model is 0.05 above the shortcut, 0.392",
        ),  # far above the mode, and no pair looked at
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
            made.append(
                fake(
                    run,
                    [0.1] * 5,
                    score,
                    [score, score, score + 0.001 * (run.labels["arm"] == "entp")],
                )
            )
        found = EXPERIMENTS["count3"].measure(made) + count3.growth(select(made, task="count3"))
        rows = judge(found, only_measured=True).set_index("id")
        compared = ["F2-tokens", "F2-sequences", "F2-unseen-parity"]
        assert rows.loc[compared, "why"].to_list() == [why] * 3
        assert set(rows.loc[compared, "verdict"] == "uninformative") == {bool(why)}


# How many full layers: gains are paired at equal steps, and shared out only where all four are
# ahead of none.


FULL_LAYER_RUNS = EXPERIMENTS["full_layers"]


def full_layer_records(accuracies):
    """Five seeds of overnight; ``accuracies``: of 0, 2, 3 full layers on each budget, and of 4, the
    seeds alike.
    """
    found = []
    for run in FULL_LAYER_RUNS.plan("overnight", 0):
        full, budget, seed = (run.labels[name] for name in ("full", "budget", "seed"))
        accuracy = accuracies[budget][full] + 0.001 * seed * (full + 1)
        scores = {"token_accuracy": accuracy, "sequence_accuracy": accuracy / 2}
        metrics = {**scores, "baseline": {"token_accuracy": 0.2, "sequence_accuracy": 0.0}}
        curves = {"step": [1], "token_forwards": [1], "token_accuracy": [accuracy]}
        found.append(record_of(run, curves, **metrics))
    return found


STEPS = {0: 0.5, 2: 0.6, 3: 0.66, 4: 0.7}


def test_shares_are_those_of_the_means_at_equal_steps_where_four_layers_win():
    behind = {0: 0.8, 2: 0.75, 3: 0.72}
    won = full_layers.gain_shares(full_layer_records({SAME_STEPS: STEPS, SAME_FORWARDS: behind}))
    assert list(won.index) == [f"{k} full" for k in (2, 3, 4)]
    assert won["four ahead"].all() and (won["pairs"] == 5).all()
    assert won["gain"].tolist() == pytest.approx(
        [0.104, 0.166, 0.208]
    )  # each seed adds 0.001 a layer
    assert won["share"].tolist() == pytest.approx([0.5, 0.166 / 0.208, 1.0])
    assert (won["share low"] <= won["share"] + 1e-9).all() and (
        won["share"] <= won["share high"] + 1e-9
    ).all()
    lost = full_layers.gain_shares(
        full_layer_records({SAME_STEPS: behind | {4: 0.7}, SAME_FORWARDS: STEPS})
    )
    assert not lost["four ahead"].any() and lost[["share", "share low", "share high"]].isna().all(
        axis=None
    )
    assert lost["gain"].iloc[0] == pytest.approx(-0.05 + 0.004)


# Count3 held out by multisets: what training has seen is counted exactly, and the runs are those
# that they repeat.


SMALL = dict(length=6, seed_length=3, symbols=4, held_out=0.3)


@pytest.mark.parametrize("by", ["sequence", "multiset"])
def test_what_was_seen_is_counted_as_by_hand(by):
    task = Counting(**SMALL, held_out_by=by)
    sides = {True: [], False: []}
    for seed in itertools.product(range(4), repeat=3):
        x = list(seed)
        while len(x) < task.length:
            x.append(count3_of(x))
        sides[bool(task.is_held_out(torch.tensor([seed])))].append(x)
    scored = {}
    for n in range(task.first_scored, task.length + 1):
        held, trained = (
            [(tuple(sorted(x[:n])), x[n - 1]) for x in sides[side]] for side in (True, False)
        )
        scored[n] = sum(state in set(trained) for state in held) / len(held)
    assert seen(task)[task.held_out_by].to_dict() == pytest.approx(scored)
    assert (scored[task.first_scored] == 0) == (by == "multiset")


def test_what_has_come_up_is_counted_up_to_the_order_that_changes_nothing():
    """Of seeds of 3 from 20 symbols a state is drawn with probability 2/20³ or, of two equal
    elements, 1/20³; after N draws the share of draws whose state has come up is the mean of 1 - (1
    - p)^N, in expectation.
    """
    trained, total = 4000, 20**3
    states = {2 / total: 20 * 20 * 19 / 2, 1 / total: 20 * 20}
    expected = sum(p * count * (1 - (1 - p) ** trained) for p, count in states.items())
    metrics, curves = repeats_study(
        dict(length=3, seed_length=3, symbols=20), trained, scored=20_000
    )
    assert curves == {"n": [3], "seen": [metrics["seen"]]}
    assert metrics["seen"] == pytest.approx(expected, abs=0.015) and expected == pytest.approx(
        0.62, abs=0.02
    )
    assert expected - (1 - (1 - 1 / total) ** trained) > 0.2  # what a count of sequences would give
    assert repeats_study(dict(length=3, seed_length=3, symbols=20), 0, scored=10)[0]["seen"] == 0


# The authors' logs in steps and in compute: their steps, what a step costs, and what the ledger
# says of both.


def test_the_steps_of_count3_lie_on_the_thinned_log():
    """The two tables of one log: at the step to a level the thinned curve has it, up to an
    evaluation's noise.
    """
    steps, curves = published("entp", "logged_steps"), published("entp", "count3_curves")
    found = steps.query("task == 'count3'")
    assert len(found) == 14 and found["step"].notna().all()
    for row in found.itertuples():
        curve = curves.query("size == @row.model and architecture == @row.architecture")
        smooth = curve["token_accuracy"].rolling(3, center=True, min_periods=1).mean()
        assert np.interp(row.step, curve["step"], smooth) == pytest.approx(row.level, abs=0.015)


def test_a_steps_multiply_adds_are_those_of_the_counter():
    metrics, curves = logged_study("shakespeare", "small")
    for arm in logged.TWINS:
        assert metrics[arm]["counted"] == metrics[arm]["forward"]
        assert metrics[arm]["step"] == 3 * 64 * metrics[arm]["forward"]
    cfg = ModelConfig.from_size("small", architecture="decoder", vocab_size=65, max_length=64)
    assert metrics["decoder"]["forward"] == costs.decoder_pass(cfg, 64)
    assert curves["level"] == [2.0, 1.9, 1.8, 1.7, 1.65] and curves["decoder"][-1] == 2400


def test_a_pair_that_is_not_logged_is_refused_in_a_line():
    with pytest.raises(
        ConfigError, match="task = 'count3', model = 'small': not among the authors' logged pairs"
    ):
        logged_study("count3", "small")
