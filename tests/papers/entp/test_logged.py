"""The authors' logs in steps and in compute: their steps, what a step costs, and what the ledger says of both."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pytest

from entp_lib.config import ModelConfig
from entp_lib.experiments.frames import published
from entp_lib.models import costs
from entp_lib.records.store import Record, Store
from entp_lib.validation import ConfigError
from entp_papers.entp import count3_pictures, logged, pairless
from entp_papers.entp.logged import AUTHORS_LOG, logged_study, ratios, spent


def records(steps=None):
    """Records of every pair; ``steps``: (decoder's, ENTP's) to each score, in place of the logged ones."""
    runs, made = AUTHORS_LOG.plan("quick"), []
    for run in runs:
        curves = {"level": [0.1, 0.2], "decoder": [100, 200], "entp": [50, None]}
        if steps:
            curves |= {"decoder": [steps[0]] * 2, "entp": [steps[1]] * 2}
        metrics = {"decoder": {"step": 10}, "entp": {"step": 200}}
        made.append(Record("authors_log", 1, run.config, metrics, curves, {}))
    return AUTHORS_LOG.labelled(made, runs)


def test_the_steps_of_count3_lie_on_the_thinned_log():
    """The two tables of one log: at the step to a level the thinned curve has it, up to an evaluation's noise."""
    steps, curves = published("entp", "logged_steps"), published("entp", "count3_curves")
    found = steps.query("task == 'count3'")
    assert len(found) == 14 and found["step"].notna().all()
    for row in found.itertuples():
        curve = curves.query("size == @row.model and architecture == @row.architecture")
        assert np.interp(row.step, curve["step"], curve["token_accuracy"]) == pytest.approx(row.level, abs=0.015)


def test_a_steps_multiply_adds_are_those_of_the_counter():
    metrics, curves = logged_study("shakespeare", "small")
    for arm in logged.ARMS:
        assert metrics[arm]["counted"] == metrics[arm]["forward"]
        assert metrics[arm]["step"] == 3 * 64 * metrics[arm]["forward"]
    cfg = ModelConfig.from_size("small", architecture="decoder", vocab_size=65, max_length=64)
    assert metrics["decoder"]["forward"] == costs.decoder_pass(cfg, 64)
    assert curves["level"] == [2.0, 1.9, 1.8, 1.7, 1.65] and curves["decoder"][-1] == 2400


def test_a_pair_that_is_not_logged_is_refused_in_a_line():
    with pytest.raises(ConfigError, match="task = 'count3', model = 'small': not among the authors' logged pairs"):
        logged_study("count3", "small")


def test_ratios_are_of_scores_that_both_reach():
    record = records()[0]
    found = spent(record)
    assert found["ratio"].dropna().to_numpy().tolist() == [[2.0, 10.0]]
    assert found.loc[0.2, ("multiply-adds", "decoder")] == 2000 and np.isnan(found.loc[0.2, ("steps", "entp")])
    row = ratios(records()).loc[("count3", "medium")]
    assert row.tolist() == [1, "2.0 to 2.0", "10.0 to 10.0"]


@pytest.mark.parametrize(
    ("steps", "fewer", "more"),
    [((100, 50), "verified", "verified"), ((50, 100), "refuted", "verified"), ((9000, 100), "verified", "refuted")],
)
def test_rows_follow_the_logs(steps, fewer, more):
    found = {check.claim: check for check in AUTHORS_LOG.measure(records(steps))}
    assert (found["F3-log-steps"].verdict, found["F3-log-compute"].verdict) == (fewer, more)
    assert found["F5-log-compute"].verdict == found["T3-log-compute"].verdict == more
    assert found["F3-log-sequences"].remark == "0.979 of them, the decoder 0.000"
    assert len(found["F5-log-compute"].records) == 4 and len(found["T3-log-compute"].records) == 3
    assert AUTHORS_LOG.measure([]) == []


def test_the_figure_has_steps_beside_compute():
    fig = count3_pictures.steps_and_compute(dataclasses.replace(records((100, 50))[0]))
    (steps, operations) = ([line.get_ydata().tolist() for line in ax.lines] for ax in fig.axes)
    assert steps == [[0.1, 0.1], [0.05, 0.05]] and operations[1] == pytest.approx([10 * y for y in operations[0]])
    plt.close(fig)


def test_step_ratios_of_the_log_and_of_ours_are_at_the_same_share_of_the_way(small_run):
    """Ours made to fall in a straight line, the decoder's half as fast: a ratio of two at every share it reaches."""
    params = dict(length=24, seed_length=8, symbols=24)
    config = dataclasses.replace(small_run(), task="counting", task_params=params)
    start, end = (pairless.lookup("counting", params)[0][name]["loss"] for name in ("last", "pairless"))

    def made(arm, seed, factor):
        steps = list(range(10, 3000, 10))
        curves = {"step": [factor * s for s in steps], "loss": [start - s / 2000 * (start - end) for s in steps]}
        return Record("ours", 1, config, {}, curves, {}, labels={"arm": arm, "seed": seed})

    runs = [made(arm, seed, factor) for seed in (0, 1) for arm, factor in (("decoder", 2), ("entp", 1))]
    table = count3_pictures.ratios_by_share({"ours": runs}).set_index("setting")
    ours, log = (table.loc[name].groupby("share")["ratio"].mean() for name in ("ours", count3_pictures.LOG))
    assert ours.to_numpy() == pytest.approx(2.0, abs=0.02) and list(ours.index) == list(log.index)
    assert log[0.3] < 1.4 < log[0.5] < log[1.0] and 2 < log[1.0] < 2.6
    fig = count3_pictures.step_ratio({"ours": runs})
    lines = {line.get_label(): line.get_ydata() for line in fig.axes[0].lines}
    assert lines[count3_pictures.LOG] == pytest.approx(log.to_numpy()) and lines["ours"] == pytest.approx(
        ours.to_numpy()
    )
    plt.close(fig)


def test_stored_records_hold_what_the_table_has_now():
    stored = AUTHORS_LOG.stored(Store(), "quick")
    for record in stored:
        log = published("entp", "logged_steps").query(
            "task == @record.labels['task'] and model == @record.labels['model']"
        )
        for arm in logged.ARMS:
            steps = log.query("architecture == @arm")["step"]
            assert [step or 0 for step in record.curves[arm]] == steps.fillna(0).astype(int).tolist()
            counted = record.metrics[arm]["counted"] / record.metrics[arm]["forward"]
            assert counted == pytest.approx(1, abs=0.005)  # a padded row in the widest batch
    rows = {check.claim: check for check in AUTHORS_LOG.measure(stored)}
    assert rows["F3-log-steps"].remark == "2.3 to 3.2 times fewer"
    assert rows["F3-log-compute"].remark == "7.5 to 10.6 times as many"
