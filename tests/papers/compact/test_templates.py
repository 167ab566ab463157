"""Templates by brute force, their floor by counting; both studies, and shares of a model with a
known rule.
"""

import dataclasses
import itertools
import math
from collections import Counter

import pytest
import torch
from torch import nn

from entp_lib.config import ModelConfig
from entp_lib.model import build_model
from entp_lib.tasks.base import generator_for
from entp_papers.compact import templates
from entp_papers.compact.templates import Templates, abstraction_study, all_templates, split

TASK = dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3)
SOURCE = Templates()
TINY = dict(
    architecture="decoder",
    n_layers=2,
    n_heads=2,
    width=16,
    steps=4,
    batch_size=8,
    evaluations=2,
    sequences=16,
)


def test_a_small_task_comes_near_its_floor_and_never_below_it():
    task = dict(template_length=3, variables=1, instances=2, digits=3, held_out=0.0, sample=1)
    metrics, _ = abstraction_study(
        task, **{**TINY, "steps": 250, "width": 32, "n_layers": 1, "rate": 3e-3}
    )
    assert metrics["floor"] - 0.03 < metrics["seen"]["loss"] < metrics["floor"] + 0.1
    assert metrics["last"]["seen"] > 0.95


class Rule(nn.Module):
    """Copies the token before where the first instantiation does so, else names the ``other``
    variables in turn.
    """

    def __init__(self, always: bool = False):
        super().__init__()
        self.always = always

    def forward(self, inputs_BT, scored_BT, _):
        length = SOURCE.template_length
        last = SOURCE.last_prefix
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
    assert found["repeating"] == 1
    assert found["copied"] == 0
    assert found["others"] == pytest.approx(0.5, abs=0.05)
    assert found["last"] == pytest.approx(repeats + (1 - repeats) / 2, abs=0.04)
    found = split(Rule(always=True), SOURCE, 500, generator_for("cpu", "test"))
    assert (found["repeating"], found["others"], found["copied"]) == (1, 0, 1)
    assert found["last"] == pytest.approx(repeats, abs=0.07)


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
    scored = torch.zeros_like(batch.scored_BT)
    scored[:, 5] = True
    logits, looked = templates.traced(model, batch.inputs_BT[:, :6])
    torch.testing.assert_close(logits, model(batch.inputs_BT, scored, None), rtol=1e-8, atol=1e-8)
    assert looked.shape == (n_layers, 6, 2, 6)
    torch.testing.assert_close(looked.sum(-1), torch.ones_like(looked[..., 0]))


SMALL = dict(template_length=4, variables=2, instances=2, digits=3, held_out=0.0)


def canonical(symbols):
    order = list(dict.fromkeys(symbols))
    return tuple(order.index(s) for s in symbols)


@pytest.mark.parametrize("length, variables, count", [(4, 2, 6), (6, 3, 75), (8, 3, 903)])
def test_templates_by_brute_force(length, variables, count):
    every = itertools.product(range(variables), repeat=length)
    kept = {canonical(s) for s in every if len(set(s)) == variables and s[-1] in s[:-1]}
    assert set(all_templates(length, variables)) == kept
    assert len(all_templates(length, variables)) == count


def test_sequences_are_instantiations_and_their_variables():
    task = Templates()
    batch = task.batch(torch.Generator().manual_seed(0), 50)
    text = torch.cat([batch.inputs_BT[:, :1], batch.targets_BT], 1).tolist()
    learned = {tuple(t) for t in task.sides()[0].tolist()}
    assert batch.scored_BT.all()
    for row in text:
        parts = [row[8 * i : 8 * i + 8] for i in range(4)]
        (template,) = {canonical(p) for p in parts}
        assert template in learned
        assert row[32:] == [digit for p in parts for digit in dict.fromkeys(p)]


def test_evaluation_has_templates_of_its_own():
    task = Templates(template_length=5, instances=2)
    apart = {tuple(t) for t in task.sides()[1].tolist()}
    for evaluating, seen, expected in (
        (True, False, True),
        (True, True, False),
        (False, False, False),
    ):
        batch = dataclasses.replace(task, seen=seen).batch(
            torch.Generator().manual_seed(1), 40, evaluating
        )
        rows = torch.cat([batch.inputs_BT[:, :1], batch.targets_BT], 1)[:, :5].tolist()
        assert {canonical(r) in apart for r in rows} == {expected}


def test_scored_positions():
    generator = torch.Generator().manual_seed(0)
    matching = Templates(scored="matching").batch(generator, 3).scored_BT[0]
    assert matching.nonzero().flatten().tolist() == [*range(31, 43)]
    sampled = Templates(scored="sampled", sample=5)
    assert (sampled.batch(generator, 30).scored_BT.sum(1) == 5).all()
    assert sampled.batch(generator, 3, evaluating=True).scored_BT.all()
    batch = Templates(scored="last").batch(generator, 20)
    assert torch.equal(batch.targets_N, batch.targets_BT[:, 30])


def test_floor_of_the_paper():
    every = torch.tensor(all_templates(8, 3))
    expected = (math.log(903) + 4 * math.log(9 * 8 * 7) - math.log(9)) / 43
    assert templates.bayes_floor(Templates(held_out=0.0), every) == pytest.approx(
        expected, abs=1e-12
    )


def test_floor_by_position_by_counting_every_sequence():
    task = Templates(**SMALL)
    counts: Counter = Counter()
    for template in all_templates(4, 2):
        for first, second in itertools.product(itertools.permutations(range(3), 2), repeat=2):
            text = [m[v] for m in (first, second) for v in template]
            counts[tuple(text + [d for m in (first, second) for d in m])] += 1
    total = sum(counts.values())

    def entropy(length):
        prefixes: Counter = Counter()
        for text, count in counts.items():
            prefixes[text[:length]] += count
        return -sum(c / total * math.log(c / total) for c in prefixes.values())

    expected = [entropy(t + 1) - entropy(t) for t in range(1, task.length + 1)]
    assert templates.floor_by_position(task, task.sides()[0]) == pytest.approx(expected, abs=1e-9)
