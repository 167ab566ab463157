"""Every experiment of every paper, live: its smoke runs from nothing, and what it measures on them."""

import importlib.util

import pandas as pd
import pytest
import torch
from mistakes import named
from torch import nn

from entp_lab import paths
from entp_lab.measurements import Check
from entp_lab.parameters import NotebookParameters
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Record
from entp_lab.studies import at_least, by_study, descend, largest, of_study, plan_studies, scale_up
from entp_lib.training import TrainingError
from entp_papers.entp.downstream.experiment import train_missing

SMOKE = NotebookParameters(tier="smoke", jobs=1)
COMMITTED = pd.read_csv(paths.root() / "results" / "claims.csv").set_index("id")["verdict"]
BEYOND_SMOKE = ("LT-6.3",)  # claims whose studies are too small at this scale


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
    for check in experiment.measure(done.complete):
        if isinstance(check, Check) and check.claim not in BEYOND_SMOKE:
            assert check.verdict == COMMITTED[check.claim], f"{check.claim} at smoke scale"
    assert all((tmp_path / "smoke" / "records" / r.experiment / f"{r.id}.json").exists() for r in done.complete)


# Common parts of the papers' studies: a step of descent, weights that matter, plans, records by study.


test_mistakes_are_named = named((lambda: at_least(2, rows=3, steps=1), "steps = 1: must be at least 2"))


def test_a_step_goes_down_the_sum_of_its_parts_by_the_clipped_gradient():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 3.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=9.0)
    parts = (model.weight.sum() * factor for factor in (3.0, 5.0))  # a gradient of 8
    assert descend(model, optimizer, parts, rate=0.5, clip=2.0) == pytest.approx(24.0)
    assert model.weight.item() == pytest.approx(3.0 - 0.5 * 2.0, rel=1e-5) and model.weight.grad is None
    with pytest.raises(TrainingError, match="nan"):
        descend(model, optimizer, [model.weight.sum() * torch.nan])
    assert model.weight.item() == pytest.approx(2.0, rel=1e-5)


def test_weights_are_scaled_in_double_precision_by_the_seed_alone():
    one, same, other = (scale_up(nn.LayerNorm(4), seed).bias for seed in (0, 0, 1))
    assert one.dtype == torch.float64 and largest(one, same) == 0 < 1e-3 < largest(one, other)


def test_studies_are_planned_and_found_by_name():
    runs = plan_studies("made", {"smoke": {"one": dict(n=1), "two": {}}})("smoke", 3)
    assert [run.config.study for run in runs] == ["made_one", "made_two"]
    records = [Record("made", 1, run.config, {"n": 1}, {}, {}) for run in runs]
    assert list(by_study(records)) == ["one", "two"] and of_study(records, "two") is records[1]
    with pytest.raises(KeyError, match="three"):
        of_study(records, "three")
