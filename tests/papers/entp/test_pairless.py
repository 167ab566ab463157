"""Pairless bounds: by brute force on small tasks, and stored for every task that a verdict rests
on.
"""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from entp_lab.configs import RunConfig, config_id
from entp_lab.experiment import no_claims
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lib.tasks import Counting
from entp_lib.tasks.counting import count2, count3
from entp_lib.tasks.triplets import triplet_label
from entp_papers.entp import pairless
from entp_papers.entp.count3_studies import probe
from entp_papers.entp.pairless import COUNT3_BOUNDS, bounds_study, diagonal


def bound(task, params):
    """Both scores of the pairless predictor."""
    return pairless.lookup(task, params)[0]["pairless"]


def by_hand(prefixes, knows):
    """Share right and nats, mean over lengths, of whoever gives the commonest answer among what
    looks alike to them.
    """
    accuracy, nats = [], []
    for found in prefixes.values():
        cells = defaultdict(Counter)
        for x, answer in found:
            cells[knows(x)][answer] += 1
        accuracy.append(sum(max(cell.values()) for cell in cells.values()) / len(found))
        told = [
            (count, count / sum(cell.values()))
            for cell in cells.values()
            for count in cell.values()
        ]
        nats.append(-sum(count * np.log(p) for count, p in told) / len(found))
    return np.mean(accuracy), np.mean(nats)


@pytest.mark.parametrize(("order", "function"), [(3, count3), (2, count2)])
def test_the_bounds_of_counting_are_those_of_brute_force(order, function):
    prefixes = defaultdict(list)
    for seed in itertools.product(range(7), repeat=3):
        x = list(seed)
        while len(x) <= 7:
            if len(x) > 3:
                prefixes[len(x)].append((tuple(x), function(x)))
            x.append(function(x))

    def diagonal(x):
        return sum((2 * x_i + x[-1]) % len(x) == 0 for x_i in x)

    knows = {
        "mode": lambda x: 0,
        "last": lambda x: x[-1],
        "pairless": lambda x: (diagonal(x) if order == 3 else 0, x[-1]),
        "single": lambda x: (diagonal(x), sum((x_i + 2 * x[-1]) % len(x) == 0 for x_i in x), x[-1]),
    }
    metrics, curves = bounds_study(
        "counting", dict(length=7, seed_length=3, symbols=7, order=order), 0
    )
    assert set(metrics) == set(knows) - ({"single"} if order == 2 else set()) and curves["n"] == [
        4,
        5,
        6,
        7,
    ]
    for name, found in metrics.items():
        assert (found["token_accuracy"], found["loss"]) == pytest.approx(
            by_hand(prefixes, knows[name])
        )
        assert np.mean(curves[name]) == pytest.approx(found["token_accuracy"])
    if order == 3:  # what the bound rests on: pairs of two elements come in twos
        even = [(x, answer) for n in (4, 6) for x, answer in prefixes[n]]
        assert (
            all(answer % 2 == diagonal(x) % 2 for x, answer in even)
            and len({a for _, a in even}) > 3
        )
        assert metrics["mode"]["token_accuracy"] < metrics["pairless"]["token_accuracy"] < 1


@pytest.mark.parametrize("anchor", ["first", "last"])
def test_the_bound_of_match3_knows_what_one_element_decides(anchor):
    prefixes, at = defaultdict(list), 0 if anchor == "first" else -1
    for x in itertools.product(range(7), repeat=5):
        for t in range(1, 6):
            prefixes[t].append((x[:t], triplet_label(x[:t], 7, anchor, "exists")))

    def one(x):
        return (
            sum((2 * x_i + x[at]) % 7 == 0 for x_i in x),
            sum((x_i + 2 * x[at]) % 7 == 0 for x_i in x),
            x[at],
        )

    params = dict(length=5, symbols=7, modulus=7, anchor=anchor)
    metrics, _ = bounds_study("triplets", params, 0)
    found = metrics["pairless"]
    assert (found["token_accuracy"], found["loss"]) == pytest.approx(
        by_hand(prefixes, one)
    ) and found["loss"] > 0.01
    drawn = bounds_study("triplets", params, 40_000)[0]["pairless"]
    assert drawn["held_out_token_accuracy"] <= drawn["token_accuracy"]
    assert drawn["token_accuracy"] == pytest.approx(found["token_accuracy"], abs=0.01)
    assert drawn["loss"] < found["loss"] + 0.01 < drawn["held_out_loss"] + 0.02


def test_a_chain_of_thought_asks_for_count3_of_drawn_prompts():
    prefixes = {
        n: [(x, count3(x)) for x in itertools.product(range(4), repeat=n)] for n in (2, 3, 4)
    }
    scored = by_hand(prefixes, lambda x: (sum((2 * x_i + x[-1]) % len(x) == 0 for x_i in x), x[-1]))
    assert bound("chain", dict(longest=4, symbols=4))["token_accuracy"] == pytest.approx(scored[0])


def test_a_bound_is_that_of_the_task_without_its_split_and_drawing():
    plain = dict(length=8, seed_length=3, symbols=6)
    split = plain | dict(held_out=0.3, held_out_by="multiset", drawn=2)
    assert (
        bound("counting", split)
        == bound("counting", plain)
        == bounds_study("counting", plain, 0)[0]["pairless"]
    )
    curves = pairless.lookup("counting", plain)[1]
    assert np.mean(curves["pairless"]) == pytest.approx(bound("counting", plain)["token_accuracy"])


def test_every_task_that_a_verdict_rests_on_has_its_bound_stored():
    """Else a ledger would compute it from fewer sequences, whenever it is shown."""
    store, asked = Store(), set()
    for experiment, tier in itertools.product(EXPERIMENTS.values(), ("quick", "overnight")):
        measured = experiment.measure is not no_claims and experiment.stored(store, tier)
        for config in experiment.configs(tier) if measured else ():
            trained = isinstance(config, RunConfig)
            task = (
                (config.task, config.task_params)
                if trained
                else ("counting", config.params.get("task"))
            )
            if task[0] in pairless.DECIDES and (trained or "seed_length" in (task[1] or {})):
                asked.add(config_id(pairless.study_of(*task), COUNT3_BOUNDS.version))
    assert len(asked) >= 12
    assert asked <= {record.id for record in COUNT3_BOUNDS.stored(store, "quick")}


# The probe for Count3's shortcut tells a model that counts the diagonal from one that does not.


TASK = Counting(length=10, seed_length=4, symbols=10)


class Answering(nn.Module):
    """A model that answers every scored prefix by a function of it."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, inputs_BT, scored_BT, prompt_lengths_B=None):
        rows_N, ends_N = scored_BT.nonzero(as_tuple=True)
        answers = [
            self.answer(inputs_BT[b, : end + 1])
            for b, end in zip(rows_N.tolist(), ends_N.tolist(), strict=True)
        ]
        return F.one_hot(torch.tensor(answers), TASK.vocab_size).float()


def parity_of_the_diagonal(x_n):
    return int(diagonal(x_n[None], x_n[-1:], len(x_n))) % 2


@pytest.mark.parametrize(
    ("answer", "agreement", "accuracy"),
    [
        (lambda x: count3(x.tolist()), (1, 1), (1, 1)),
        (
            parity_of_the_diagonal,
            (1, 1),
            (0.05, 0.5),
        ),  # the shortcut alone: the parity always, the answer seldom
        (lambda x: 0, (0.4, 0.6), (0.05, 0.5)),  # looks at nothing
        (lambda x: (count3(x.tolist()) + 1) % 10, (0, 0.2), (0, 0.1)),
    ],
)
def test_agreement_is_one_with_the_shortcut_and_chance_without(answer, agreement, accuracy):
    found = probe(Answering(answer), TASK, 300)
    assert agreement[0] <= found["parity_agreement"] <= agreement[1]
    assert accuracy[0] <= found["token_accuracy"] <= accuracy[1]
    assert found["position"] == [6, 8, 10] and 0.5 <= found["commonest"] < 0.7


def test_whole_sequences_of_match3_by_hand():
    """Every label of a sequence by the commonest answer among prefixes with its x_1, k and s, on
    all sequences.
    """
    modulus, length = 5, 4
    everything = list(itertools.product(range(modulus), repeat=length))
    right = dict.fromkeys(everything, True)
    for n in range(1, length + 1):
        cells, knows = defaultdict(Counter), {}
        for x in everything:
            k = sum((2 * a + x[0]) % modulus == 0 for a in x[:n])
            s = sum((a + 2 * x[0]) % modulus == 0 for a in x[:n])
            knows[x] = (
                (x[0], k, s),
                int(any((x[0] + a + b) % modulus == 0 for a in x[:n] for b in x[:n])),
            )
            cells[knows[x][0]][knows[x][1]] += 1
        for x, (cell, label) in knows.items():
            right[x] &= label == max(cells[cell], key=lambda a: (cells[cell][a], -a))
    params = dict(length=length, symbols=modulus, modulus=modulus)
    share = np.mean(list(right.values()))
    assert 0.5 < share < 1 and pairless.whole_sequences(params, 0) == pytest.approx(share)
