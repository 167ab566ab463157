"""How long runs will take is counted and measured before they start, and above an hour it is asked about."""

import dataclasses

import pytest

from entp_lib.papers.entp.count3 import COUNT3
from entp_lib.report import estimates
from entp_lib.report.costs import training_operations
from entp_lib.runs import progress
from entp_lib.runs.progress import Meter
from entp_lib.runs.sweeps import step_weights
from entp_lib.strict import ConfigError


def test_short_runs_are_not_measured(small_run, monkeypatch):
    monkeypatch.setattr(estimates, "measured_rate", lambda *_: 1 / 0)
    assert estimates.expected_seconds([small_run()], 1) == 0.0 and estimates.expected_seconds([], 2) == 0.0


def test_a_mixture_is_weighed_by_what_each_costs(monkeypatch):
    """The paper's tier on a CPU, at a rate that is given: seconds are operations over the rate, spread over cores."""
    runs = COUNT3.configs("paper", 1)
    monkeypatch.setattr(estimates, "measured_rate", lambda *_: 1e10)
    total = sum(map(estimates.operations, runs))
    assert estimates.expected_seconds(runs, 1) == pytest.approx(total / 1e10)
    longest = max(map(estimates.operations, runs))
    assert estimates.expected_seconds(runs, 100) == pytest.approx(longest / 1e10)
    five = COUNT3.configs("paper", 5)
    assert estimates.expected_seconds(five, 1) == pytest.approx(5 * total / 1e10)


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


def test_the_bar_weighs_a_step_by_its_cost(small_run, tmp_path, monkeypatch):
    """ENTP's steps cost more than a decoder's: half of all steps, the cheap ones, are not half of the work."""
    todo = {"cheap": small_run("decoder"), "dear": small_run("entp")}
    weights = step_weights(todo)
    assert weights["cheap"] == 1.0 and weights["dear"] > 1.5
    told = []
    monkeypatch.setattr(progress, "event", lambda name, **about: told.append(about))
    meter = Meter(tmp_path, {"cheap": 10, "dear": 10}, "x", weights)
    meter.finished.add("cheap")
    meter.update()
    assert told[-1]["done"] == 10 and told[-1]["total"] == meter.total == round(10 * (1 + weights["dear"]))
    meter.finished.add("dear")
    meter.update()
    assert told[-1]["done"] == meter.total
    meter.close()
