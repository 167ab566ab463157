"""A whole tier without notebooks, and what runs cost before they start."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import sound

from entp_lab import commands, estimates
from entp_lab.budgets import training_operations
from entp_lab.cli import main
from entp_lab.configs import StudyConfig
from entp_lab.registry import EXPERIMENTS, build_task, nightly_order
from entp_lab.store import Record, Store
from entp_lib import costs as passes
from entp_lib.model import build_model
from entp_lib.training import train
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3

# A whole tier without notebooks: its order, what is missing of it, and that it goes on where it stopped.


def test_the_order_names_experiments_that_have_the_tier():
    assert [e.name for e in commands.experiments_of("overnight")] == list(nightly_order())
    assert len(set(nightly_order())) == len(nightly_order()) > 0
    of_count3 = commands.experiments_of("overnight", [Path("notebooks/03_count3.ipynb")])
    assert {e.notebook for e in of_count3} == {"03_count3"}


def test_a_tier_is_completed_and_said_line_by_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    monkeypatch.setattr(commands, "nightly_order", lambda: ("rasp", "complexity"))
    niceness = []
    monkeypatch.setattr("os.nice", lambda more: niceness.append(more) or 0)  # of the tests' own process
    assert main(["train", "--tier", "smoke", "--jobs", "1"]) == 0
    assert "rasp smoke: 5 of 5 runs are left" in capsys.readouterr().err
    assert max(niceness) == 19
    assert Store(tmp_path / "smoke").missing(EXPERIMENTS["rasp"].configs("smoke"), EXPERIMENTS["rasp"].version) == []
    assert not (tmp_path / "records").exists()  # apart from records that claim something
    assert main(["train", "--tier", "smoke"]) == 0
    assert "rasp smoke: 0 of 5 runs are left" in capsys.readouterr().err


# Costs by counting: against a count by hand, and in proportion to what is counted.


def test_operations_of_a_run_by_hand(small_run):
    """8 tokens; prefixes of 4 to 8 tokens are scored; forward and backward are three forwards."""
    decoder = small_run("decoder")
    entp = small_run("entp")
    sequences = decoder.train.steps * decoder.train.batch_size
    unread = 3 * passes.head(decoder.model)  # of 8 tokens 5 are scored, and go through the output layer
    once = passes.decoder_pass(decoder.model, 8) - unread
    assert training_operations(decoder) == 3 * sequences * once
    assert training_operations(entp) == 3 * sequences * passes.training_pass(entp.model, range(4, 9), 8)
    longer = replace(decoder, train=replace(decoder.train, steps=24))
    assert training_operations(longer) == 2 * training_operations(decoder)


# How long runs will take is counted and measured before they start, and above an hour it is asked about.


def took(config, seconds):
    """A complete record that says how long its run took."""
    about = {"wall_seconds": 2 * seconds, "cpu_seconds": seconds, "steps": 1}
    return sound(Record(config.experiment, 1, config, {}, {}, about))


def test_records_tell_how_long_runs_like_them_take(store, capsys):
    """Runs and studies that differ in seeds alone take what their records took."""
    study = StudyConfig("compact", "quick", "triplets", {"width": 8, "graph_seed": 3})
    again = replace(study, params={"width": 8, "graph_seed": 4}, model_seed=1)
    third = replace(study, model_seed=2)
    wider = replace(study, params={"width": 16, "graph_seed": 3})
    for config, seconds in ((study, 600.0), (again, 800.0)):
        store.save(took(config, seconds))
    store.path("compact", "0" * 16).write_text("{")  # a damaged one tells nothing
    assert estimates.expected([third, again, wider], 1, store) == (1400.0, 1)
    assert estimates.expected([third, again], 2, store) == (700.0, 0)
    assert estimates.expected([third], 1, store, "cuda") == (0.0, 1)
    estimates.announce_runs("3 runs", [third, again, wider], 1, True, store=store)
    said = capsys.readouterr().err
    assert "3 runs (1 of them of a time" in said
    assert "about 23 minutes" in said


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_other_runs_take_what_their_own_steps_take_here(small_run, store, architecture, monkeypatch):
    """Within a factor of four of what training takes; it grows with the steps; the large is tried in parts."""
    config = small_run(architecture, steps=60, batch_size=64, eval_every=60, eval_sequences=1, final_eval_sequences=1)
    assert sum(1 for _ in store.all(config.experiment)) == 0
    seconds, unknown = estimates.expected([config], 1, store)
    run = training_seconds(config)
    assert unknown == 0
    assert run / 4 < seconds < 4 * run
    longer = replace(config, train=replace(config.train, steps=600, eval_every=60))
    assert 5 < estimates.expected([longer], 1, store)[0] / seconds < 20
    rate = estimates.rate_here.__wrapped__
    whole = rate(config.task, json.dumps(config.task_params), config.model, config.train, "cpu")
    monkeypatch.setattr(estimates, "TRIED_OPERATIONS", 1.0)
    assert rate(config.task, json.dumps(config.task_params), config.model, config.train, "cpu") > whole / 50
    elsewhere = replace(config, task="text", task_params={"corpus": "no such file", "context": 8})
    assert estimates.expected([elsewhere], 1, store) == (0.0, 1)  # the run itself says what is wrong


def training_seconds(config):
    task = build_task(config.task, config.task_params)
    began = time.process_time()
    train(build_model(config.model), task, config.train)
    return time.process_time() - began


@pytest.mark.parametrize("answer", ["", "no", "y"])
def test_above_an_hour_it_is_asked_about(monkeypatch, capsys, answer):
    monkeypatch.setattr(estimates.sys, "stdin", type("Input", (), {"isatty": lambda _: True})())
    monkeypatch.setattr(estimates, "expected", lambda *_: (7200.0, 0))
    monkeypatch.setattr("builtins.input", lambda _: answer)
    with contextlib.nullcontext() if answer == "y" else pytest.raises(ConfigError, match="--yes starts it"):
        estimates.announce_runs("6 runs", COUNT3.configs("quick"), 1, False)
    assert "6 runs: about 2.0 hours" in capsys.readouterr().err


def test_a_long_tier_is_asked_about_before_it_begins(tmp_path, monkeypatch):
    """What it would compute is announced with the answer to --yes, and nothing runs where it is no."""
    asked = []

    def refuse(what, configs, jobs, yes, limit, store):
        asked.append((len(configs), yes))
        raise ConfigError("not started")

    monkeypatch.setattr(commands, "announce_runs", refuse)
    monkeypatch.setattr(commands, "sweep", lambda *_, **__: pytest.fail("it began"))
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))  # none of its runs is there
    command = ["train", "--tier", "overnight"]
    assert main(command) == main([*command, "--yes"]) == 2
    assert asked[0][0] > 0
    assert [yes for _, yes in asked] == [False, True]
