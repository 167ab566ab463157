"""Both studies of templates: deterministic, paired, above the floor; heads and shares of models with a known rule."""

import json

import pytest
import torch
from mistakes import named
from torch import nn

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.tasks.base import generator_for
from entp_papers.compact import template_studies
from entp_papers.compact.template_studies import abstraction_study, last_token_study, split
from entp_papers.compact.templates import Templates

TASK = dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3)
SOURCE = Templates()
TINY = dict(n_layers=2, n_heads=2, width=16, steps=4, batch_size=8, evaluations=2, sequences=16)


def test_deterministic_and_plain():
    first = abstraction_study(TASK, "decoder", **TINY)
    assert first == abstraction_study(TASK, "decoder", **TINY)
    metrics, curves = json.loads(json.dumps(first))
    assert curves["step"] == [2, 4] and len(metrics["held_out"]["loss_by_position"]) == 11
    assert set(metrics["last"]) == set(metrics["matching"]) == {"held_out", "seen"}
    assert metrics["seen"]["loss"] > metrics["floor"]


def test_a_small_task_comes_near_its_floor_and_never_below_it():
    task = dict(template_length=3, variables=1, instances=2, digits=3, held_out=0.0, sample=1)
    metrics, _ = abstraction_study(task, "decoder", **{**TINY, "steps": 250, "width": 32, "n_layers": 1, "rate": 3e-3})
    assert metrics["floor"] - 0.03 < metrics["seen"]["loss"] < metrics["floor"] + 0.1
    assert metrics["last"]["seen"] > 0.95


class Rule(nn.Module):
    """Copies the token before where the first instantiation does so, else names the ``other`` variables in turn."""

    def __init__(self, always: bool = False):
        super().__init__()
        self.always = always

    def forward(self, inputs_BT, scored_BT, _):
        length, last = SOURCE.template_length, SOURCE.last_prefix
        logits_BV = torch.zeros(len(inputs_BT), SOURCE.vocab_size)
        for row, text in enumerate(inputs_BT.tolist()):
            here = text[last - length + 1 : last]
            others = sorted(set(here) - {here[-1]})
            repeats = self.always or text[length - 1] == text[length - 2]
            logits_BV[row, here[-1] if repeats else others[row % len(others)]] = 1.0
        return logits_BV


def test_the_last_token_is_split_by_whether_it_repeats_the_one_before():
    apart = SOURCE.sides()[1]
    repeats = float((apart[:, -1] == apart[:, -2]).double().mean())
    found = split(Rule(), SOURCE, 3000, generator_for("cpu", "test"))
    assert found["repeating"] == 1 and found["copied"] == 0 and found["others"] == pytest.approx(0.5, abs=0.05)
    assert found["last"] == pytest.approx(repeats + (1 - repeats) / 2, abs=0.04)
    found = split(Rule(always=True), SOURCE, 500, generator_for("cpu", "test"))
    assert (found["repeating"], found["others"], found["copied"]) == (1, 0, 1)
    assert found["last"] == pytest.approx(repeats, abs=0.07)


def test_both_studies_train_alike(monkeypatch):
    weights = []
    train = template_studies.train

    def kept(model, *arguments):
        curves = train(model, *arguments)
        weights.append(model.state_dict())
        return curves

    monkeypatch.setattr(template_studies, "train", kept)
    abstraction_study(TASK, "decoder", **TINY)
    metrics, curves = last_token_study(TASK, "decoder", **TINY)
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert curves["step"] == [2, 4] and metrics["last"] == curves["last"][-1]
    assert 0 < metrics["repeats"] < 1 and metrics["rule"] == 1  # of two variables the other one is known


def network(architecture="decoder", n_layers=2):
    task = Templates(**TASK)
    model = build_model(ModelConfig(architecture, n_layers, 2, 16, task.vocab_size, task.length), 0)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(8)
    return model.double().eval(), task.batch(torch.Generator().manual_seed(0), 6, evaluating=True)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_traced_logits_are_the_model_s(architecture, n_layers=3):
    model, batch = network(architecture, n_layers)
    scored = torch.zeros_like(batch.wanted_BT)
    scored[:, 5] = True
    logits, looked = template_studies.traced(model, batch.inputs_BT[:, :6])
    torch.testing.assert_close(logits, model(batch.inputs_BT, scored, None), rtol=1e-8, atol=1e-8)
    assert looked.shape == (n_layers, 6, 2, 6)
    torch.testing.assert_close(looked.sum(-1), torch.ones_like(looked[..., 0]))


test_mistakes_are_named = named(
    (lambda: last_token_study({**TASK, "template_length": 2}, "decoder", **TINY), "template_length"),
    (lambda: last_token_study({**TASK, "scored": "last"}, "decoder", **TINY), "task.scored"),
    (lambda: last_token_study(TASK, "decoder", **{**TINY, "n_heads": 3}), "n_heads"),
    (lambda: last_token_study(TASK, "decoder", **{**TINY, "steps": 0}), "steps"),
)
