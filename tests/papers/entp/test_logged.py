"""The authors' logs in steps and in compute: their steps, what a step costs, and what the ledger says of both."""

import numpy as np
import pytest

from entp_lib.config import ModelConfig
from entp_lib.experiments.frames import published
from entp_lib.models import costs
from entp_lib.records.store import Record
from entp_lib.validation import ConfigError
from entp_papers.entp import logged
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
