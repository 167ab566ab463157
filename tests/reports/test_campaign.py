"""The first half hour on a new machine, in a second: its parts in order, its budget, its archive."""

import json
import tarfile

import pytest

from entp_lib.__main__ import main
from entp_lib.models import packed_attention
from entp_lib.records.store import Store
from entp_lib.reports import campaign, checks


@pytest.fixture
def quickly(monkeypatch):
    """One experiment, tiny shapes, no benchmark."""
    monkeypatch.setattr(campaign, "ORDER", (("rasp", 1.0),))
    monkeypatch.setattr(campaign, "benchmark", lambda _: None)
    monkeypatch.setattr(packed_attention, "SHAPES", {"tiny": (2, 8, 6)})
    monkeypatch.setenv(packed_attention.VARIABLE, "masked")


def said(folder):
    return [json.loads(line)["what"] for line in (folder / "campaign.log").read_text().splitlines()]


def test_a_campaign_leaves_records_a_log_and_an_archive_and_goes_on(quickly, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(campaign, "CHECKS", {"memory": checks.memory})
    folder = tmp_path / "out"
    assert main(["campaign", "--device", "cpu", "--tier", "smoke", "--budget", "5m", "--out", str(folder)]) == 0
    lines = said(folder)
    assert lines[1].startswith("check memory: passed") and lines[2].startswith("attention: ")
    assert lines[3].startswith("rasp: 5 complete, 0 cut, 0 failed of 5 planned")
    before = {p: p.stat().st_mtime_ns for p in (folder / "records").rglob("*.json")}
    assert len(before) == 6  # with the choice of attention
    assert campaign.run_campaign("cpu", "smoke", 300.0, folder) == 0
    assert {p: p.stat().st_mtime_ns for p in (folder / "records").rglob("*.json")} == before
    with tarfile.open(folder / "campaign.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "campaign"))
    capsys.readouterr()
    assert main(["records"]) == 0 and "6 records are sound, 0 are not" in capsys.readouterr().out
    assert Store().all("engine")[0].metrics["choice"] in packed_attention.WAYS


def test_nothing_is_trained_where_a_check_fails(quickly, tmp_path, monkeypatch):
    def broken(device):
        raise RuntimeError("no kernel image is available\nfor execution")

    monkeypatch.setattr(campaign, "CHECKS", {"engine": broken, "memory": lambda device: ("fine", True)})
    assert campaign.run_campaign("cpu", "smoke", 300.0, tmp_path) == 1
    text = "\n".join(said(tmp_path))
    assert "check engine: FAILED: RuntimeError: no kernel image is available (" in text
    assert "check memory: passed" in text and "nothing is trained" in text and "rasp" not in text
    assert (tmp_path / "campaign.tar.gz").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cpu"], "--tier gpu on a CPU would take weeks"),
        (["--device", "cpu", "--tier", "smoke", "--budget", "0"], "--budget 0: must be more than 0"),
        (["--device", "cpu", "--tier", "smoke", "--budget", "soon"], "write 900, 900s, 15m or 2h"),
        (["--tier", "smoke"], "--device cuda: torch sees no GPU"),
    ],
)
def test_what_makes_no_sense_is_a_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["campaign", *arguments, "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
