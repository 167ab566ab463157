"""The command line: whatever it finds, it says so in a line; nothing it looks at is changed by looking."""

import dataclasses
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from entp_lab import cli, paths, report
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import checksum


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A copy of two experiments' records as the project's results."""
    for name in ("count3", "complexity"):
        shutil.copytree(paths.root() / "results" / "records" / name, tmp_path / "records" / name)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    return tmp_path


def a_record(results):
    return sorted((results / "records" / "count3").iterdir())[0]


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path)


DAMAGE = {"truncated": lambda path: path.write_bytes(path.read_bytes()[:99]), "a link to itself": link_to_itself}


def lines(capsys):
    return capsys.readouterr().err.strip().splitlines()


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_record_is_one_line_and_stays_where_it_is(results, capsys, how):
    path = a_record(results)
    DAMAGE[how](path)
    before = {p: p.lstat().st_mtime_ns for p in sorted(results.rglob("*"))}
    for arguments in (["claims"], ["readme", "--check"], ["readme"]):
        assert cli.main(arguments) == 2
        (line,) = lines(capsys)
        assert line.startswith(f"entp: record {path}: ")
    assert cli.main(["records"]) == 1
    assert f"record {path}" in capsys.readouterr().out
    assert {p: p.lstat().st_mtime_ns for p in sorted(results.rglob("*"))} == before


def forge(path, change):
    """Change a record and give it the checksum that fits."""
    body = json.loads(path.read_text())
    body.pop("checksum")
    change(body)
    path.write_text(json.dumps(body | {"checksum": checksum(body)}))


def test_records_that_lack_what_is_measured_are_named(results, capsys):
    paths_of_records = sorted((results / "records" / "complexity").iterdir())
    for path in paths_of_records:
        forge(path, lambda body: body["metrics"].pop("streamed_error"))
    assert cli.main(["claims"]) == 2
    (line,) = lines(capsys)
    names = [f"record complexity/{path.stem} has no 'streamed_error' in its metrics" for path in paths_of_records]
    assert any(name in line for name in names)
    assert "--fresh" in line


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
    path = Path(shutil.copytree(results / "records", other / "records")) / "count3" / a_record(results).name
    os.mkfifo(path.with_name("0123456789abcdef.json"))
    forge(path, lambda body: body["metrics"].update(token_accuracy=7.5))
    assert cli.main(["records", str(other)]) == 1
    *told, last = capsys.readouterr().out.strip().splitlines()
    assert len(told) == 2
    assert path.stem in told[0]
    assert "7.5" in told[0]
    assert "no regular file" in told[1]
    assert last.endswith("records are sound, 2 are not")
    assert cli.main(["records"]) == 0
    assert cli.main(["records", str(other / "records")]) == 2


CLAIMS = {
    "cut in a line": (lambda text: text[: text.rindex(",,")], "has no notebook|is no table"),
    "without a column": (lambda text: text.replace("sign,", "sing,", 1), "lacks the columns sign"),
}


@pytest.mark.parametrize("how", CLAIMS)
def test_a_list_of_claims_that_is_damaged_is_one_line(results, capsys, monkeypatch, tmp_path, how):
    change, message = CLAIMS[how]
    text = (paths.reference() / "entp" / "claims.csv").read_text(encoding="utf-8")
    shutil.copytree(paths.reference(), tmp_path / "reference")
    (tmp_path / "reference" / "entp" / "claims.csv").write_text(change(text), encoding="utf-8")
    monkeypatch.setattr(paths, "reference", lambda: tmp_path / "reference")
    assert cli.main(["claims"]) == 2
    (line,) = lines(capsys)
    assert "claims.csv" in line
    assert any(part in line for part in message.split("|"))
    assert not (results / "claims.csv").exists()


def test_sigterm_is_handled_as_an_interrupt_is(capsys, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def command(*_):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            seen.append("put away")
            raise

    monkeypatch.setattr(report, "write_ledger", command)
    assert cli.main(["claims"]) == 143
    assert seen == ["put away"]
    assert "finished records are kept" in capsys.readouterr().err
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
def test_a_variable_that_cannot_be_right_is_named(monkeypatch, capsys, variable, value):
    monkeypatch.setenv(variable, value)
    assert cli.main(["records"]) == 2
    (line,) = lines(capsys)
    assert variable in line
    assert value in line


def test_a_value_of_many_signs_is_shown_in_part(capsys):
    assert cli.main(["run", "--only", "03", "-p", f"seeds={'9' * 100_000}"]) == 2
    (line,) = lines(capsys)
    assert "seeds = " in line
    assert line.endswith("must be a whole number")
    assert len(line) < 3000
