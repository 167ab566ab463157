"""Live cells are short where nobody waits for them."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from entp_lab import live
from entp_lab.parameters import notebook_parameters
from entp_lab.stopping import Stopped


@pytest.mark.parametrize(("setting", "made"), [("", 600), ("short", live.FEW)])
def test_a_live_cell_is_short_only_where_that_is_asked_for(monkeypatch, setting, made):
    monkeypatch.setenv("ENTP_LIVE", setting)
    assert live.steps(600, "best") == made
    assert live.steps(1, "best") == 1
    assert live.steps(600, "smoke") == live.FEW


@pytest.fixture
def shell():
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_an_interrupted_cell_fails_with_one_line_and_the_next_one_runs(shell, capsys):
    shell.user_ns |= {"start": notebook_parameters, "tier": "best"}
    shell.run_cell("seeds, fresh, jobs, time_limit = 0, False, 0, 0.0; start(globals());")
    capsys.readouterr()
    done = shell.run_cell("raise KeyboardInterrupt")
    shown = capsys.readouterr()
    assert isinstance(done.error_in_exec, KeyboardInterrupt)
    assert len((shown.out + shown.err).splitlines()) == 1
    assert shell.run_cell("1 + 1").result == 2
    shell.user_ns["Stopped"] = Stopped
    shell.run_cell("raise Stopped('3 of 10 runs are kept')")
    assert capsys.readouterr().out.endswith("\n3 of 10 runs are kept\n")
