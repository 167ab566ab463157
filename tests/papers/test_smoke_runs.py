"""Every experiment of every paper, live: its smoke runs, and what it measures on them."""

import pandas as pd
import pytest
import torch
from mistakes import named
from torch import nn

from entp_lab import paths
from entp_lab.measurements import Check
from entp_lab.parameters import NotebookParameters
from entp_lab.registry import EXPERIMENTS
from entp_lab.studies import at_least, descend, largest, scale_up
from entp_lib.tasks import text
from entp_lib.training import TrainingError
from entp_papers.entp.downstream.experiment import train_missing

SMOKE = NotebookParameters(tier="smoke", jobs=1)
COMMITTED = pd.read_csv(paths.root() / "results" / "claims.csv").set_index("id")["verdict"]
BEYOND_SMOKE = ("LT-6.3",)  # claims whose studies are too small at this scale


@pytest.mark.parametrize("name", [e.name for e in EXPERIMENTS.values() if e.configs("smoke")])
def test_smoke_runs_are_computed_and_measured(name, results, monkeypatch):
    monkeypatch.setattr(text, "SAMPLE_TOKENS", 2)  # nobody reads them here
    experiment = EXPERIMENTS[name]
    if name in ("downstream", "pronouns"):
        train_missing(SMOKE)  # they start from the language models of another experiment
    planned = len(experiment.configs("smoke"))
    for reused in (0, planned):
        found = experiment.collect(SMOKE)
        assert (len(found.complete), found.reused) == (planned, reused)
    for check in experiment.measure(found.complete):
        if isinstance(check, Check) and check.claim not in BEYOND_SMOKE:
            assert check.verdict == COMMITTED[check.claim], f"{check.claim} at smoke scale"


# Common parts of the papers' studies: a step of descent, weights that matter, records by study.


test_mistakes_are_named = named(
    (lambda: at_least(2, rows=3, steps=1), "steps = 1: must be at least 2")
)


@pytest.fixture
def one_weight():
    """A model of one weight, 3."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 3.0)
    return model


def test_a_step_goes_down_the_sum_of_its_parts_by_the_clipped_gradient(one_weight):
    weight = one_weight.weight
    optimizer = torch.optim.SGD([weight], lr=9.0)
    parts = (weight.sum() * factor for factor in (3.0, 5.0))  # a gradient of 8
    loss = descend(one_weight, optimizer, parts, rate=0.5, clip=2.0)
    assert loss == pytest.approx(24.0)
    assert weight.item() == pytest.approx(3.0 - 0.5 * 2.0, rel=1e-5)
    assert weight.grad is None


def test_a_loss_that_is_no_number_makes_no_step(one_weight):
    optimizer = torch.optim.SGD(one_weight.parameters(), lr=9.0)
    with pytest.raises(TrainingError, match="nan"):
        descend(one_weight, optimizer, [one_weight.weight.sum() * torch.nan])
    assert one_weight.weight.item() == 3.0


def test_weights_are_scaled_in_double_precision_by_the_seed_alone():
    def bias(seed):
        return scale_up(nn.LayerNorm(4), seed).bias

    assert bias(0).dtype == torch.float64
    assert torch.equal(bias(0), bias(0))
    assert largest(bias(0), bias(1)) > 1e-3
