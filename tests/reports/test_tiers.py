"""A whole tier without notebooks: its order, what is missing of it, and that it goes on where it stopped."""

from entp_lib.records.store import Store
from entp_lib.registry import EXPERIMENTS, nightly_order
from entp_lib.reports import training


def test_the_order_names_experiments_that_have_the_tier():
    assert len(set(nightly_order())) == len(nightly_order()) > 0
    assert all(EXPERIMENTS[name].plan("overnight", 0) for name in nightly_order())
    assert [e.name for e in training.experiments_of("overnight")] == list(nightly_order())
    assert {e.notebook[:2] for e in training.experiments_of("overnight", ["03"])} == {"03"}


def test_a_tier_is_completed_and_said_line_by_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    monkeypatch.setattr(training, "nightly_order", lambda: ("rasp",))
    monkeypatch.setattr("os.nice", lambda _: 0)  # of the tests' own process
    rasp = EXPERIMENTS["rasp"]
    store = Store(tmp_path / "smoke")  # apart from records that claim something
    assert len(rasp.missing(store, "smoke")) == len(rasp.plan("smoke", 0)) == 5
    assert training.run_tier("smoke", jobs=1) == 0
    said = capsys.readouterr().err
    assert "rasp: 0 of 5 runs are complete" in said and "rasp: 5 more in" in said
    assert rasp.missing(store, "smoke") == [] and not (tmp_path / "records").exists()
    assert training.run_tier("smoke", jobs=1) == 0
    assert "rasp: 5 of 5 runs are complete" in capsys.readouterr().err
