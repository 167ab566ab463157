"""The pictures of notebook 14, through what they draw."""

import matplotlib.pyplot as plt
import pytest

from entp_lib.records.store import Record
from entp_papers.encoder_decoder.experiment import ARMS, plan, plan_objectives
from entp_papers.encoder_decoder.pictures import (
    LOOKS,
    draw_costs,
    draw_influence,
    draw_losses,
    draw_misprints,
    slopes_table,
)


@pytest.fixture
def axes():
    fig, found = plt.subplots(1, 3)
    yield found
    plt.close(fig)


def trained(seeds=2):
    found = []
    for run in plan_objectives("quick", seeds):
        seed = run.labels["seed"]
        metrics = {"accuracy": 0.2 + 0.1 * seed, "fresh_accuracy": None if run.labels["objective"] == "entp" else 0.05}
        curves = {"step": [10, 20], "next_token_loss": [3.0 + seed, 2.0 + seed]}
        found.append(Record("objectives", 1, run.config, metrics, curves, {}, labels=run.labels))
    return found


def test_losses_are_means_with_a_band(axes):
    draw_losses(axes[0], trained(), "step", "next_token_loss", xlabel="step")
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes[0].lines}
    assert lines == {arm: [3.5, 2.5] for arm in ARMS} and len(axes[0].collections) == len(ARMS)
    assert set(LOOKS) == set(ARMS) and axes[0].get_xlabel() == "step"


def test_misprints_have_a_row_for_every_arm_and_for_fresh_weights(axes):
    draw_misprints(axes[0], trained(), 0.03)
    names = [label.get_text() for label in axes[0].get_yticklabels()]
    assert names == [*ARMS, "masked, fresh", "causal, fresh"]
    assert axes[0].lines[0].get_xdata().tolist() == pytest.approx([0.2, 0.3])


def test_influence_is_dark_where_a_change_reaches(axes):
    draw_influence(axes, {name: [[1.0, 0.0], [1e-9, 2.0]] for name in ("printed", "corrected", "causal")})
    assert axes[0].images[0].get_array().tolist() == [[True, False], [False, True]]


def test_costs_are_drawn_by_way(axes):
    (run,) = [r for r in plan("smoke") if r.config.study.endswith("costs")]
    ways = ["decoder, cache"] * 2 + ["ENTP"] * 2
    curves = {"way": ways, "length": [4, 8] * 2, "counted": [1, 2, 3, 4], "ratio": [1.0, 1.0, 2.0, 3.0]}
    record = Record("encoder_decoder", 1, run.config, {}, curves, {}, labels=run.labels)
    draw_costs(axes[:2], [record])
    assert [line.get_ydata().tolist() for line in axes[1].lines] == [[1.0, 1.0], [2.0, 3.0]]
    table = slopes_table({"slopes": {"ENTP": {"attention": 3.0, "measured": 1.4}}})
    assert table.loc["ENTP", "attention"] == 3.0
