"""Every experiment of every paper, live: its smoke runs from nothing, and what it measures on them."""

import importlib.util

import pytest

from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.registry import EXPERIMENTS
from entp_papers.entp.downstream.experiment import train_missing

SMOKE = NotebookParameters(tier="smoke", jobs=1)


@pytest.mark.parametrize("name", [e.name for e in EXPERIMENTS.values() if e.configs("smoke", 0)])
def test_smoke_runs_are_computed_and_measured(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    experiment = EXPERIMENTS[name]
    if name == "compact_real_graph" and importlib.util.find_spec("pykeen") is None:
        pytest.skip("its graphs are files of the package pykeen, which is not installed")
    if name in ("downstream", "pronouns"):
        train_missing(SMOKE)  # they start from the language models of another experiment
    done = experiment.collect(SMOKE)
    assert done.computed == len(done.complete) == len(experiment.configs("smoke", 0)) and not done.reused
    again = experiment.collect(SMOKE)
    assert again.reused == len(done.complete) and not again.computed
    assert [m.claim for m in experiment.measure(again.complete)] == [m.claim for m in experiment.measure(done.complete)]
    assert all((tmp_path / "smoke" / "records" / r.experiment / f"{r.id}.json").exists() for r in done.complete)
