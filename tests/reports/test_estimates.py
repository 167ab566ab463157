"""How long runs will take is counted and measured before they start, and above an hour it is asked about."""

import dataclasses

import pytest
from made_up import sound

from entp_lib.config import StudyConfig
from entp_lib.experiments.budgets import training_operations
from entp_lib.records.store import Record
from entp_lib.reports import estimates
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3


def took(config, seconds):
    """A complete record that says how long its run took."""
    about = {"wall_seconds": 2 * seconds, "cpu_seconds": seconds, "steps": 1}
    return sound(Record(config.experiment, 1, config, {}, {}, about))


def test_records_tell_how_long_runs_like_them_take(store, capsys):
    """Runs and studies that differ in seeds alone take what their records took."""
    study = StudyConfig("compact", "quick", "triplets", {"width": 8, "graph_seed": 3})
    again = dataclasses.replace(study, params={"width": 8, "graph_seed": 4}, model_seed=1)
    third = dataclasses.replace(study, model_seed=2)
    wider = dataclasses.replace(study, params={"width": 16, "graph_seed": 3})
    for config, seconds in ((study, 600.0), (again, 800.0)):
        store.save(took(config, seconds))
    store.path("compact", "0" * 16).write_text("{")  # a damaged one tells nothing
    assert estimates.expected([third, again, wider], 1, store) == (1400.0, 1)
    assert estimates.expected([third, again], 2, store) == (700.0, 0)
    assert estimates.expected([wider], 2, store) == (0.0, 1)
    estimates.announce_runs("3 runs", [third, again, wider], 1, True, store=store)
    assert "3 runs (1 of them unlike any" in (said := capsys.readouterr().err) and "about 23 minutes" in said
    assert estimates.expected([third], 1, store, "cuda") == (0.0, 1)


def test_other_runs_take_their_multiply_adds_at_the_rate_of_records(store):
    """Of their experiment's, whatever their size and architecture; on a GPU of runs on a GPU."""
    quick, paper = COUNT3.configs("quick", 1), COUNT3.configs("paper", 1)
    rate = 1e9
    for config in quick:
        store.save(took(config, training_operations(config) / rate))
    costs = [training_operations(config) / rate for config in paper]
    assert estimates.expected(paper, 1, store) == (pytest.approx(sum(costs)), 0)
    assert estimates.expected(paper, 100, store) == (pytest.approx(max(costs)), 0)
    assert estimates.expected(paper, 1, store, "cuda")[1] == len(paper)  # the project has no records of a GPU
    gpu = took(dataclasses.replace(quick[0], tier="gpu"), training_operations(quick[0]) / rate)
    gpu.provenance["packed_attention"] = gpu.provenance.pop("cpu_seconds")  # as runs on a GPU say it
    store.save(gpu)
    assert estimates.expected(paper, 1, store, "cuda") == (pytest.approx(2 * sum(costs)), 0)  # by the clock


def terminal(monkeypatch, there):
    monkeypatch.setattr(estimates.sys, "stdin", type("Input", (), {"isatty": lambda _: there})())


@pytest.mark.parametrize("answer", ["", "no"])
def test_above_an_hour_it_is_asked_about(monkeypatch, capsys, answer):
    terminal(monkeypatch, True)
    with pytest.raises(ConfigError, match="not started; --yes starts it"):
        estimates.announce("6 runs", 7200, False, lambda _: answer)
    assert "6 runs: about 2.0 hours" in capsys.readouterr().err
    estimates.announce("6 runs", 7200, False, lambda _: "y")
