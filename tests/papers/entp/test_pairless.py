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
    accuracy = []
    nats = []
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


def on_the_diagonal(x, modulus, anchor):
    """Count the elements of x that make a triple with themselves."""
    return sum((2 * x_i + anchor) % modulus == 0 for x_i in x)


def on_the_anchor(x, modulus, anchor):
    """Count the elements of x that make a triple with the anchor twice."""
    return sum((x_i + 2 * anchor) % modulus == 0 for x_i in x)


@pytest.mark.parametrize(("order", "function"), [(3, count3), (2, count2)])
def test_the_bounds_of_counting_are_those_of_brute_force(order, function):
    prefixes = defaultdict(list)
    for seed in itertools.product(range(7), repeat=3):
        x = list(seed)
        while len(x) <= 7:
            x.append(function(x))
            if len(x) > 4:
                prefixes[len(x) - 1].append((tuple(x[:-1]), x[-1]))
    knows = {"mode": lambda x: 0, "last": lambda x: x[-1], "pairless": lambda x: x[-1]}
    if order == 3:
        knows["pairless"] = lambda x: (on_the_diagonal(x, len(x), x[-1]), x[-1])
        knows["single"] = lambda x: (knows["pairless"](x), on_the_anchor(x, len(x), x[-1]))
    metrics, curves = bounds_study(
        "counting", dict(length=7, seed_length=3, symbols=7, order=order), 0
    )
    assert set(metrics) == set(knows) and curves["n"] == [4, 5, 6, 7]
    for name, found in metrics.items():
        assert (found["token_accuracy"], found["loss"]) == pytest.approx(
            by_hand(prefixes, knows[name])
        )
        assert np.mean(curves[name]) == pytest.approx(found["token_accuracy"])
    if order == 3:  # what the bound rests on: pairs of two elements come in twos
        for x, answer in (*prefixes[4], *prefixes[6]):
            assert answer % 2 == on_the_diagonal(x, len(x), x[-1]) % 2


@pytest.mark.parametrize("anchor", ["first", "last"])
def test_the_bound_of_match3_knows_what_one_element_decides(anchor):
    at = 0 if anchor == "first" else -1
    prefixes = defaultdict(list)
    for x in itertools.product(range(7), repeat=5):
        for t in range(1, 6):
            prefixes[t].append((x[:t], triplet_label(x[:t], 7, anchor, "exists")))

    def one(x):
        return on_the_diagonal(x, 7, x[at]), on_the_anchor(x, 7, x[at]), x[at]

    params = dict(length=5, symbols=7, modulus=7, anchor=anchor)
    found = bounds_study("triplets", params, 0)[0]["pairless"]
    assert (found["token_accuracy"], found["loss"]) == pytest.approx(by_hand(prefixes, one))
    drawn = bounds_study("triplets", params, 40_000)[0]["pairless"]
    assert drawn["held_out_token_accuracy"] <= drawn["token_accuracy"]
    assert drawn["token_accuracy"] == pytest.approx(found["token_accuracy"], abs=0.01)


def test_a_chain_of_thought_asks_for_count3_of_drawn_prompts():
    prefixes = {n: [(x, count3(x)) for x in itertools.product(range(4), repeat=n)] for n in (2, 3)}
    scored = by_hand(prefixes, lambda x: (on_the_diagonal(x, len(x), x[-1]), x[-1]))
    assert bound("chain", dict(longest=3, symbols=4))["token_accuracy"] == pytest.approx(scored[0])


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
    store = Store()
    asked = set()
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


def test_whole_sequences_of_match3_are_no_more_than_labels_allow():
    """At most those whose hardest label is right, at least those that miss none of them."""
    params = dict(length=4, symbols=5, modulus=5)
    labels = bounds_study("triplets", params, 0)[1]["pairless"]
    share = pairless.whole_sequences(params, 0)
    assert 1 - sum(1 - right for right in labels) <= share <= min(labels) and 0.5 < share < 1
