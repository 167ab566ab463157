"""Templates by brute force, their floor by counting; both studies, and shares of a model with a
known rule.
"""

import functools
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import seeded
from scipy import stats

from entp_lab.studies import scale_up
from entp_lib.config import ModelConfig
from entp_lib.model import build_model
from entp_lib.tasks.base import generator_for
from entp_papers.compact.templates import (
    Templates,
    abstraction_study,
    all_templates,
    bayes_floor,
    floor_by_position,
    split,
    traced,
)

SOURCE = Templates()
SHORT = dict(template_length=4, variables=2, instances=2, digits=3, held_out=0.0)


def test_a_small_task_comes_near_its_floor_and_never_below_it():
    task = dict(template_length=3, variables=1, instances=2, digits=3, held_out=0.0, sample=1)
    metrics, _ = abstraction_study(
        task,
        architecture="decoder",
        n_layers=1,
        n_heads=2,
        width=32,
        steps=250,
        batch_size=8,
        rate=3e-3,
        evaluations=2,
        sequences=16,
    )
    above = metrics["seen"]["loss"] - metrics["floor"]
    assert -0.03 < above < 0.1
    assert metrics["last"]["seen"] > 0.95


def rule(inputs_BT, scored_BT, always=False):
    """Copy the token before where the first instantiation does so, or ``always``, else name the
    other variables in turn.
    """
    length = SOURCE.template_length
    last = SOURCE.last_prefix
    answers = []
    for row, text in enumerate(inputs_BT.tolist()):
        *others, before = text[last - length + 1 : last]
        others = sorted(set(others) - {before})
        repeats = always or text[length - 1] == text[length - 2]
        answers.append(before if repeats else others[row % len(others)])
    return F.one_hot(torch.tensor(answers), SOURCE.vocab_size).float()


def test_the_last_token_is_split_by_whether_it_repeats_the_one_before():
    apart = SOURCE.sides()[1]
    *_, before, last = apart.T
    repeats = float((before == last).double().mean())
    found = split(rule, SOURCE, 3000, generator_for("cpu", "test"))
    assert found["repeating"] == 1
    assert found["copied"] == 0
    assert found["others"] == pytest.approx(0.5, abs=0.05)
    assert found["last"] == pytest.approx(repeats + (1 - repeats) / 2, abs=0.04)
    always = split(functools.partial(rule, always=True), SOURCE, 500, generator_for("cpu", "test"))
    assert always["repeating"] == always["copied"] == 1
    assert always["others"] == 0
    assert always["last"] == pytest.approx(repeats, abs=0.07)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_traced_logits_are_the_model_s(architecture):
    task = Templates(**SHORT)
    cfg = ModelConfig(architecture, 3, 2, 16, task.vocab_size, task.length)
    model = scale_up(build_model(cfg, 0), 0)
    inputs_BT = task.batch(seeded(0), 6).inputs_BT[:, :6]
    logits, looked = traced(model, inputs_BT)
    scored_BT = torch.zeros_like(inputs_BT, dtype=torch.bool)
    scored_BT[:, 5] = True
    torch.testing.assert_close(logits, model(inputs_BT, scored_BT), rtol=1e-8, atol=1e-8)
    assert looked.shape == (3, 6, 2, 6)
    torch.testing.assert_close(looked.sum(-1), torch.ones_like(looked[..., 0]))


def texts(batch):
    return torch.cat([batch.inputs_BT[:, :1], batch.targets_BT], 1).tolist()


def canonical(symbols):
    order = list(dict.fromkeys(symbols))
    return tuple(order.index(s) for s in symbols)


@pytest.mark.parametrize(("length", "variables", "count"), [(4, 2, 6), (6, 3, 75), (8, 3, 903)])
def test_templates_by_brute_force(length, variables, count):
    every = itertools.product(range(variables), repeat=length)
    whole = {canonical(symbols) for symbols in every if len(set(symbols)) == variables}
    kept = {template for template in whole if template[-1] in template[:-1]}
    found = all_templates(length, variables)
    assert set(found) == kept
    assert len(found) == count


def test_sequences_are_instantiations_and_their_variables():
    task = Templates()
    batch = task.batch(seeded(0), 50)
    learned = set(map(tuple, task.sides()[0].tolist()))
    assert batch.scored_BT.all()
    for row in texts(batch):
        parts = [row[start : start + 8] for start in (0, 8, 16, 24)]
        (template,) = set(map(canonical, parts))
        assert template in learned
        assert row[32:] == [digit for part in parts for digit in dict.fromkeys(part)]


@pytest.mark.parametrize(
    ("evaluating", "seen", "expected"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_evaluation_has_templates_of_its_own(evaluating, seen, expected):
    task = Templates(template_length=5, instances=2, seen=seen)
    apart = set(map(tuple, task.sides()[1].tolist()))
    batch = task.batch(seeded(1), 40, evaluating)
    assert {canonical(row[:5]) in apart for row in texts(batch)} == {expected}


def test_scored_positions():
    generator = seeded(0)
    matching = Templates(scored="matching").batch(generator, 3).scored_BT[0]
    assert matching.nonzero().flatten().tolist() == [*range(31, 43)]
    sampled = Templates(scored="sampled", sample=5)
    assert (sampled.batch(generator, 30).scored_BT.sum(1) == 5).all()
    assert sampled.batch(generator, 3, evaluating=True).scored_BT.all()
    batch = Templates(scored="last").batch(generator, 20)
    assert torch.equal(batch.targets_N, batch.targets_BT[:, 30])


def test_floor_by_position_by_counting_every_sequence():
    task = Templates(**SHORT)
    pairs = list(itertools.permutations(range(3), 2))
    sequences = []
    for template, first, second in itertools.product(all_templates(4, 2), pairs, pairs):
        instances = [digits[v] for digits in (first, second) for v in template]
        sequences.append((*instances, *first, *second))
    entropies = []
    for length in range(1, task.length + 2):
        counts = Counter(text[:length] for text in sequences)
        entropies.append(stats.entropy(list(counts.values())))
    learned = task.sides()[0]
    found = floor_by_position(task, learned)
    assert found == pytest.approx(np.diff(entropies), abs=1e-9)
    assert bayes_floor(task, learned) == pytest.approx(np.mean(found))
