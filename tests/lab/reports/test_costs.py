"""A whole tier without notebooks, and what runs cost before they start."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import sound
from mistakes import refused

from entp_lab import commands, estimates
from entp_lab.cli import main
from entp_lab.configs import StudyConfig
from entp_lab.registry import EXPERIMENTS, build_task, nightly_order
from entp_lab.store import Record, Store
from entp_lib.model import build_model
from entp_lib.training import train
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3

# A whole tier without notebooks: its order, what is missing of it, and that it goes on where it
# stopped.


def test_the_order_names_experiments_that_have_the_tier():
    order = list(nightly_order())
    assert [e.name for e in commands.experiments_of("overnight")] == order
    assert len(set(order)) == len(order) > 0
    of_count3 = commands.experiments_of("overnight", [Path("notebooks/03_count3.ipynb")])
    assert {e.notebook for e in of_count3} == {"03_count3"}
    # runs at overnight, but not of a night
    assert commands.experiments_of("overnight", [Path("notebooks/05_pretrained.ipynb")]) == []


def test_a_tier_is_completed_and_said_line_by_line(results, monkeypatch, capsys):
    monkeypatch.setattr(commands, "nightly_order", lambda: ("compact_statements", "count3_bounds"))
    niceness = []
    # of the tests' own process
    monkeypatch.setattr("os.nice", lambda more: niceness.append(more) or 0)
    for left in (2, 0):
        assert main(["train", "--tier", "smoke", "--jobs", "1"]) == 0
        assert f"compact_statements smoke: {left} of 2 runs are left" in capsys.readouterr().err
        experiment = EXPERIMENTS["compact_statements"]
        store = Store(results / "smoke")
        assert store.missing(experiment.configs("smoke"), experiment.version) == []
    assert max(niceness) == 19
    assert not (results / "records").exists()  # apart from records that claim something


# How long runs will take is counted and measured before they start, and above an hour it is asked
# about.


def took(config, seconds):
    """A complete record that says how long its run took."""
    about = {"wall_seconds": 2 * seconds, "cpu_seconds": seconds, "steps": 1}
    return sound(Record(config.experiment, 1, config, {}, {}, about))


def test_records_tell_how_long_runs_like_them_take(store):
    """Runs and studies that differ in seeds alone take what their records took."""
    study = StudyConfig("compact", "quick", "triplets", {"width": 8, "graph_seed": 3})
    again = replace(study, params={"width": 8, "graph_seed": 4}, model_seed=1)
    third = replace(study, model_seed=2)
    wider = replace(study, params={"width": 16, "graph_seed": 3})
    store.save(took(study, 600.0))
    store.save(took(again, 800.0))
    store.path(f"compact/{'0' * 16}").write_text("{")  # a damaged one tells nothing
    assert estimates.expected([third, again, wider], 1, store) == (1400.0, 1)
    assert estimates.expected([third, again], 2, store) == (700.0, 0)
    assert estimates.expected([third], 1, store, "cuda") == (0.0, 1)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_other_runs_take_what_their_own_steps_take_here(
    small_run, store, architecture, monkeypatch
):
    """Within a factor of four of what training takes; it grows with the steps; the large is tried
    in parts.
    """
    config = small_run(
        architecture,
        steps=60,
        batch_size=64,
        eval_every=60,
        eval_sequences=1,
        final_eval_sequences=1,
    )
    seconds, unknown = estimates.expected([config], 1, store)
    began = time.process_time()
    train(build_model(config.model), build_task(config.task, config.task_params), config.train)
    took = time.process_time() - began
    assert unknown == 0
    assert took / 4 < seconds < 4 * took
    longer = replace(config, train=replace(config.train, steps=600))
    assert 5 < estimates.expected([longer], 1, store)[0] / seconds < 20
    arguments = (config.task, json.dumps(config.task_params), config.model, config.train, "cpu")
    whole = estimates.rate_here.__wrapped__(*arguments)
    monkeypatch.setattr(estimates, "TRIED_OPERATIONS", 1.0)
    assert estimates.rate_here.__wrapped__(*arguments) > whole / 50


def test_what_cannot_be_tried_is_of_unknown_time(small_run, store):
    """The run itself says what is wrong."""
    config = replace(small_run(), task="text", task_params={"corpus": "no such file", "context": 8})
    assert estimates.expected([config], 1, store) == (0.0, 1)


@pytest.mark.parametrize("answer", ["", "no", "y"])
def test_above_an_hour_it_is_asked_about(monkeypatch, capsys, answer):
    monkeypatch.setattr(estimates.sys, "stdin", type("Input", (), {"isatty": lambda _: True})())
    monkeypatch.setattr(estimates, "expected", lambda *_: (7200.0, 0))
    monkeypatch.setattr("builtins.input", lambda _: answer)
    with contextlib.nullcontext() if answer == "y" else refused("--yes starts it"):
        estimates.announce_runs("6 runs", COUNT3.configs("quick"), 1, False, 0, Store())
    assert "6 runs: about 2.0 hours" in capsys.readouterr().err


def test_a_long_tier_is_asked_about_before_it_begins(results, monkeypatch):
    """What it would compute is announced, and nothing runs where the answer is no."""
    asked = []

    def refuse(what, configs, jobs, yes, limit, store):
        asked.append((len(configs), yes))
        raise ConfigError("not started")

    monkeypatch.setattr(commands, "announce_runs", refuse)
    monkeypatch.setattr(commands, "sweep", lambda *_, **__: pytest.fail("it began"))
    command = ["train", "--tier", "overnight"]
    assert main(command) == main([*command, "--yes"]) == 2
    assert asked[0][0] > 0
    assert [yes for _, yes in asked] == [False, True]
