"""How long runs will take is counted and measured before they start, and above an hour it is asked about."""

import dataclasses

import pytest
from made_up import sound

from entp_lib.config import StudyConfig
from entp_lib.experiments.operations import training_operations
from entp_lib.records.store import Record, Store
from entp_lib.reports import estimates
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3


def test_short_runs_are_not_measured(small_run, monkeypatch):
    monkeypatch.setattr(estimates, "measured_rate", lambda *_: 1 / 0)
    assert estimates.expected([small_run()], 1).seconds == 0.0 and estimates.expected([], 2).seconds == 0.0


def test_a_mixture_is_weighed_by_what_each_costs(monkeypatch):
    """The paper's tier on a CPU, at a rate that is given: seconds are operations over the rate, spread over cores."""
    runs = COUNT3.configs("paper", 1)
    monkeypatch.setattr(estimates, "measured_rate", lambda *_: 1e10)
    total = sum(map(estimates.operations, runs))
    assert estimates.expected(runs, 1).seconds == pytest.approx(total / 1e10)
    longest = max(map(estimates.operations, runs))
    assert estimates.expected(runs, 100).seconds == pytest.approx(longest / 1e10)
    five = COUNT3.configs("paper", 5)
    assert estimates.expected(five, 1).seconds == pytest.approx(5 * total / 1e10)


def took(config, version, seconds):
    """A complete record that says how long its run took."""
    about = {"wall_seconds": 2 * seconds, "cpu_seconds": seconds, "steps": 1}
    return sound(Record(config.experiment, version, config, {}, {}, about))


def test_records_tell_how_long_runs_like_them_take(small_run, tmp_path, monkeypatch, capsys):
    """Runs and studies that differ in seeds alone take what their records took; what has none is measured or untold."""
    study = StudyConfig("compact", "quick", "triplets", {"width": 8, "graph_seed": 3})
    again = dataclasses.replace(study, params={"width": 8, "graph_seed": 4}, model_seed=1)
    wider = dataclasses.replace(study, params={"width": 16, "graph_seed": 3})
    run, store = small_run("entp"), Store(tmp_path, read_only=False)
    for config, seconds in ((study, 600.0), (again, 800.0), (run, 100.0)):
        store.save(took(config, 1, seconds))
    store.path("compact", "0" * 16).write_text("{")  # a damaged one tells nothing
    monkeypatch.setattr(estimates, "measured_rate", lambda *_: 1 / 0)
    third = dataclasses.replace(study, model_seed=2)
    found = estimates.expected([third, again, dataclasses.replace(run, model_seed=7), wider], 1, store=store)
    assert found == estimates.Estimate(700.0 * 2 + 100.0, 0, 1)
    assert estimates.expected([third, again], 2, store=store).seconds == 700.0
    estimates.announce_runs("3 runs", [third, again, wider], 1, True, store=store)
    assert "3 runs (1 of them studies or without their data" in (said := capsys.readouterr().err)
    assert "about 23 minutes on this machine, by the records of such runs" in said
    assert estimates.expected([third], 1, device="cuda", store=store) == estimates.Estimate(left_out=1)

    dear = COUNT3.configs("paper", 1)[:2]
    monkeypatch.setattr(estimates, "measured_rate", lambda *_: 1e10)
    assert estimates.expected([*dear, third], 1, store=store).measured == 2
    estimates.announce_runs("3 runs", [dataclasses.replace(third), *dear], 1, True, store=store)
    assert "by the first steps of 2 and the records of runs like the others" in capsys.readouterr().err


def test_evaluation_is_counted(small_run):
    run = small_run("entp")
    more = dataclasses.replace(run, train=dataclasses.replace(run.train, eval_sequences=64, final_eval_sequences=128))
    extra = estimates.operations(more) - estimates.operations(run)
    sequence = training_operations(run) / 3 / run.train.batch_size / run.train.steps
    assert extra == pytest.approx(sequence * (3 * 32 + 2 * 64))


def test_the_rate_is_that_of_real_steps(small_run):
    run = small_run("entp", steps=200, batch_size=64)
    assert 1e5 < estimates.measured_rate(run) < 1e13


def terminal(monkeypatch, there):
    monkeypatch.setattr(estimates.sys, "stdin", type("Input", (), {"isatty": lambda _: there})())


@pytest.mark.parametrize("answer", ["", "n", "no", "later"])
def test_above_an_hour_it_is_asked_about(monkeypatch, capsys, answer):
    terminal(monkeypatch, True)
    with pytest.raises(ConfigError, match="not started; --yes starts it"):
        estimates.announce("6 runs", 7200, False, lambda _: answer)
    assert "6 runs: about 2.0 hours on this machine" in capsys.readouterr().err
    estimates.announce("6 runs", 7200, False, lambda _: "y")


def test_what_is_agreed_to_short_or_without_a_terminal_is_only_said(monkeypatch, capsys):
    def asked(_):
        raise AssertionError("nobody is to be asked")

    terminal(monkeypatch, True)
    estimates.announce("6 runs", 7200, True, asked)
    estimates.announce("6 runs", 1800, False, asked)
    terminal(monkeypatch, False)
    estimates.announce("6 runs", 7200, False, asked)
    assert capsys.readouterr().err.count("6 runs: about") == 3
    estimates.announce("6 runs", 60, False, asked)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"), [(300, "5 minutes"), (7200, "2.0 hours"), (3 * 86400, "3.0 days"), (3e8, "9.5 years")]
)
def test_long_times_are_told_as_people_do(seconds, words):
    assert estimates.spoken(seconds) == words
