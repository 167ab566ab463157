"""Frames of records: whose seconds they count, which differences are pairs, what a table of costs
says.
"""

import math

import pandas as pd
import pytest
from made_up import record_of
from mistakes import refused

from entp_lab.experiment import planned_study
from entp_lab.figures import lines, panels
from entp_lab.frames import curves, mean_table, paired, summary
from entp_lab.measurements import FLAT, Measurement, still_improving
from entp_lab.store import Record
from entp_papers.entp.count3 import COUNT3

CLOCK = dict(
    wall_seconds=400.0, train_seconds=300.0, steps=1200, device="cpu", peak_memory_bytes=3 * 2**20
)


def records(tier, **changes):
    """A decoder's and ENTP's run of one seed, 100 of whose 400 seconds by the clock were the
    processor's.
    """
    runs = [run for run in COUNT3.plan(tier, 1) if run.labels["arm"] in ("decoder", "entp")][:2]
    course = {"step": [600, 1200], "seconds": [150.0, 300.0], "token_accuracy": [0.5, 0.9]}
    made = []
    for run, tokens in zip(runs, (1000, 3000), strict=True):
        provenance = {**CLOCK, "cpu_seconds": 100.0, "token_forwards": tokens, **changes}
        made.append(Record("count3", 1, run.config, {"baseline": {}}, dict(course), provenance))
    return COUNT3.labelled(made, runs)


@pytest.mark.parametrize(
    ("tier", "changes", "share"),
    [("quick", {}, 0.25), ("quick", {"cpu_seconds": 0.0}, 1.0), ("gpu", {}, 1.0)],
)
def test_seconds_are_the_processors_where_it_did_the_work(tier, changes, share):
    found = records(tier, **changes)
    assert list(summary(found)["train_seconds"]) == pytest.approx([300 * share] * 2)
    assert list(curves(found)["seconds"]) == pytest.approx([150 * share, 300 * share] * 2)


def test_a_decoders_multiply_adds_are_those_of_its_layers_and_outputs():
    """Per token 12 D² of linear maps and 2 T D of attention in each layer, and its output; thrice
    for the gradient.
    """
    found = records("quick")
    course = curves(found).set_index("arm")["multiply_adds"]
    config = found[0].config
    model = config.model
    layers = (
        model.n_layers
        * model.max_length
        * (12 * model.width**2 + 2 * model.max_length * model.width)
    )
    outputs = (model.max_length - 4) * model.width * model.vocab_size  # after the prompt of four
    step = 3 * config.train.batch_size * (layers + outputs)
    assert course["decoder"].tolist() == [600 * step, 1200 * step]
    assert course["entp"].min() > 2 * 600 * step
    assert summary(found)["multiply_adds"].tolist() == course.iloc[[1, 3]].tolist()


def test_an_unknown_cost_is_one_line_that_names_the_run():
    run = planned_study("made_up", "quick", "fine_tuning", {}, 3, arm="decoder")
    course = curves([record_of(run, {"step": [1], "seconds": [1.0], "loss": [0.5]})])
    assert course["multiply_adds"].isna().all()
    _, ax = panels(1)
    lines(ax, course, "step", "loss")
    with refused("study fine_tuning, arm decoder, tier quick, seed 3"):
        lines(ax, course, "multiply_adds", "loss")


def test_an_accuracys_interval_stays_between_zero_and_one_and_two_seeds_show_both_values():
    table = pd.DataFrame(
        {
            "architecture": "entp",
            "token_accuracy": [0.99, 0.995, 0.90],
            "loss": [0.1, 0.9, 2.0],
        }
    )
    shown = mean_table(table, ["token_accuracy", "loss"]).loc["entp"]
    assert shown["token_accuracy"].endswith("to 1.000)")
    assert "(-" in shown["loss"]
    assert mean_table(table[:2], ["loss"]).loc["entp", "loss"] == "0.100, 0.900"


def test_a_run_without_a_score_decides_nothing_and_is_not_passed_over():
    """A seed that has no twin is none; one whose run has no finite score is, and says so."""
    table = pd.DataFrame(
        {
            "seed": [0, 0, 1, 1, 2],
            "arm": ["decoder", "entp", "decoder", "entp", "entp"],
            "loss": [0.1, 0.3, math.nan, 0.3, 0.2],
        }
    )
    found = paired(table, "loss", "decoder", "entp")
    assert found.index.tolist() == [0, 1]
    assert found.tolist() == pytest.approx([-0.2, math.nan], nan_ok=True)
    assert paired(table.assign(loss=math.nan), "loss", "decoder", "entp").empty
    scores = [0.1, 0.2, 0.1, math.nan, 0.2]
    assert Measurement("x", scores, "quick").undecided == "1 of 5 pairs without a score"
    assert Measurement("x", [0.1] * 5, "quick").undecided == ""


# What is said of models that had not come to rest where they are compared.


@pytest.mark.parametrize(
    ("arm", "climbs", "said"),
    [
        ("entp", (0.99, 0.99), ""),
        ("entp", (1.01, 1.01), "still improving after 1,200 steps"),
        ("entp", (-10.0, -10.0), ""),
        ("none", (9.0, 9.0), ""),
        (
            "entp",
            (0.0, 1.9),
            "",
        ),  # one seed that rises among others that do not is no arm that does
        ("entp", (0.2, 1.9), "still improving after 1,200 steps"),
    ],
)
def test_an_arm_whose_mean_over_seeds_still_rises_is_said(arm, climbs, said):
    """By how many times ``FLAT`` the last fifth of a curve is above the fifth before, by seed."""
    made = []
    for run in COUNT3.plan("quick", 2):
        more = FLAT * climbs[run.labels["seed"]] if run.labels["arm"] == arm else 0.0
        made.append(record_of(run, {"token_accuracy": [0.5] * 16 + [0.5 + more] * 4}))
    assert still_improving(made) == said
    assert still_improving([]) == ""
