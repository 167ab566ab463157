"""The command line: whatever it finds, it says so in a line; nothing it looks at is changed by
looking.
"""

import dataclasses
import os
import shutil
import signal
import time
import tomllib

import pytest
from made_up import forge_record, unchanged

from entp_lab import cli, commands, ledger, paths
from entp_lab.registry import EXPERIMENTS
from entp_lib.validation import ConfigError


@pytest.fixture
def results(results):
    """A copy of two experiments' records as the project's results."""
    for name in ("count3", "complexity"):
        shutil.copytree(paths.root() / "results/records" / name, results / "records" / name)
    return results


def a_record(results):
    return min((results / "records/count3").iterdir())


def test_a_damaged_record_is_one_line_and_stays_where_it_is(results, refusal, capsys):
    path = a_record(results)
    path.write_bytes(path.read_bytes()[:99])
    with unchanged(results):
        for command in ("claims", "readme --check", "readme"):
            assert refusal(command).startswith(f"entp: record {path}: ")
        assert cli.main(["records"]) == 1
    assert f"record {path}" in capsys.readouterr().out


def test_a_mistake_in_a_measure_function_keeps_its_traceback(results, monkeypatch):
    def measure(records):
        return undefined(records)  # noqa: F821

    broken = dataclasses.replace(EXPERIMENTS["complexity"], measure=measure)
    monkeypatch.setattr("entp_papers.entp.complexity.experiment.COMPLEXITY", broken)
    with pytest.raises(NameError, match="undefined") as raised:
        cli.main(["claims"])
    assert raised.traceback[-1].name == "measure"
    assert "records of complexity" in raised.value.__notes__[0]


def test_foreign_results_are_looked_at_before_they_are_copied(results, capsys, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(results / "records", other / "records")
    path = a_record(other)
    os.mkfifo(path.with_name("0123456789abcdef.json"))
    forge_record(path, "metrics", token_accuracy=7.5)
    assert cli.main(["records", str(other)]) == 1
    first, second, last = capsys.readouterr().out.strip().splitlines()
    assert "no regular file" in second
    assert path.stem in first
    assert "7.5" in first
    assert last.endswith("records are sound, 2 are not")
    assert cli.main(["records"]) == 0
    assert cli.main(["records", str(other / "records")]) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("claims", "stopped"),
        ("train count3 --tier smoke", cli.KEPT),
        ("train count3 --tier smoke --fresh", "stopped"),
    ],
)
def test_sigterm_is_handled_as_an_interrupt_is(capsys, monkeypatch, line, said):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def command(*_, **__):
        try:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            seen.append("put away")
            raise

    monkeypatch.setattr(ledger, "write_ledger", command)
    monkeypatch.setattr(commands, "train", command)
    assert cli.main(line.split()) == 143
    assert seen == ["put away"]
    assert capsys.readouterr().err.strip() == said
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ENTP_RESULTS", __file__),
        ("ENTP_FIGURES", f"{__file__}/below"),
        ("ENTP_RECORDS", "readonly"),
        ("ENTP_LIVE", "shrot"),
    ],
)
def test_a_variable_that_cannot_be_right_is_named(monkeypatch, refusal, variable, value):
    monkeypatch.setenv(variable, value)
    line = refusal("records")
    assert variable in line
    assert value in line


def test_a_value_of_many_signs_is_shown_in_part(refusal):
    line = refusal(f"run --only 03 -p seeds={'9' * 100_000}")
    assert "seeds = " in line
    assert line.endswith("must be a whole number")
    assert len(line) < 3000


def test_the_version_is_that_of_the_project(capsys):
    assert cli.main(["--version"]) == 0
    text = (paths.repository() / "pyproject.toml").read_text(encoding="utf-8")
    version = tomllib.loads(text)["project"]["version"]
    assert capsys.readouterr().out == f"entp {version}\n"


def test_claims_of_a_missing_paper_are_no_verdicts(results, refusal, monkeypatch):
    monkeypatch.setattr(ledger, "papers", lambda: {"entp": None})
    assert "is missing, and results/reference/" in refusal("claims")
    assert not (results / "claims.csv").exists()


def test_what_runs_need_is_asked_for_before_any_is_trained(results, refusal, monkeypatch):
    def lacking(configs):
        raise ConfigError(f"{len(configs)} runs need a package")

    monkeypatch.setitem(vars(EXPERIMENTS["count3"]), "check_prerequisites", lacking)
    assert "10 runs need a package" in refusal("train count3 --tier smoke")


def test_of_several_experiments_those_without_such_runs_are_left_out():
    asked = [EXPERIMENTS["in_context_baselines"], EXPERIMENTS["count3"]]
    ((found, runs),) = commands.with_runs(asked, "gpu", 0, ["entp"], [])
    assert found.name == "count3"
    assert {run.labels["arm"] for run in runs} >= {"entp"}
