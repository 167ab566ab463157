"""Templates by brute force, sequences by their definition, and the floor by counting every sequence there is."""

import itertools
import math
from collections import Counter

import pytest
import torch
from mistakes import named

from entp_papers.compact import templates
from entp_papers.compact.templates import Templates, all_templates

SMALL = dict(template_length=4, variables=2, instances=2, digits=3, held_out=0.0)


def canonical(symbols):
    order = list(dict.fromkeys(symbols))
    return tuple(order.index(s) for s in symbols)


@pytest.mark.parametrize("length, variables, count", [(4, 2, 6), (6, 3, 75), (8, 3, 903)])
def test_templates_by_brute_force(length, variables, count):
    every = itertools.product(range(variables), repeat=length)
    kept = {canonical(s) for s in every if len(set(s)) == variables and s[-1] in s[:-1]}
    assert set(all_templates(length, variables)) == kept and len(all_templates(length, variables)) == count


def test_sequences_are_instantiations_and_their_variables():
    task = Templates()
    batch = task.batch(torch.Generator().manual_seed(0), 50)
    text = torch.cat([batch.inputs_BT[:, :1], batch.targets_BT], 1).tolist()
    sides = [{tuple(t) for t in side.tolist()} for side in task.sides()]
    assert len(text[0]) == 44 and batch.wanted_BT.all() and len(sides[0] & sides[1]) == 0
    for row in text:
        parts = [row[8 * i : 8 * i + 8] for i in range(4)]
        assert len({canonical(p) for p in parts}) == 1 and canonical(parts[0]) in sides[0]
        assert row[32:] == [digit for p in parts for digit in dict.fromkeys(p)]


def test_evaluation_has_templates_of_its_own():
    task = Templates(template_length=5, instances=2)
    apart = {tuple(t) for t in task.sides()[1].tolist()}
    for evaluating, seen, expected in ((True, False, True), (True, True, False), (False, False, False)):
        batch = task.variant(seen=seen).batch(torch.Generator().manual_seed(1), 40, evaluating)
        rows = torch.cat([batch.inputs_BT[:, :1], batch.targets_BT], 1)[:, :5].tolist()
        assert {canonical(r) in apart for r in rows} == {expected}


def test_scored_positions():
    generator = torch.Generator().manual_seed(0)
    for scored, places in (("last", [30]), ("matching", [*range(31, 43)])):
        assert Templates(scored=scored).batch(generator, 3).wanted_BT[0].nonzero().flatten().tolist() == places
    sampled = Templates(scored="sampled", sample=5)
    assert (sampled.batch(generator, 30).wanted_BT.sum(1) == 5).all()
    assert sampled.batch(generator, 30).wanted_BT.any(0).sum() > 30
    assert sampled.batch(generator, 3, evaluating=True).wanted_BT.all()
    batch = Templates(scored="last").batch(generator, 20)
    assert torch.equal(batch.targets_N, batch.targets_BT[:, 30])


def test_floor_of_the_paper():
    every = torch.tensor(all_templates(8, 3))
    expected = (math.log(903) + 4 * math.log(9 * 8 * 7) - math.log(9)) / 43
    assert templates.bayes_floor(Templates(held_out=0.0), every) == pytest.approx(expected, abs=1e-12)
    assert expected == pytest.approx(0.686, abs=5e-4)
    assert templates.bayes_floor(Templates(), Templates().sides()[0]) == pytest.approx(0.681, abs=5e-4)
    assert templates.bayes_floor(Templates(digits=10), every) == pytest.approx(0.717, abs=5e-4)


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


test_mistakes_are_named = named(
    (lambda: Templates(digits=2), "digits"),
    (lambda: Templates(template_length=4, held_out=0.05), "held_out"),
    (lambda: Templates(scored="sampled", sample=44), "sample"),
)
