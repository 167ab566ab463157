"""Pairless bounds: by brute force on small tasks, and stored for every task that a verdict rests
on.
"""

import itertools

import numpy as np
import pandas as pd
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
from entp_papers.entp.pairless import COUNT3_BOUNDS, bounds_study


def by_hand(prefixes, knows):
    """Share right and nats, mean over lengths, of whoever gives the commonest answer among what
    looks alike to them.
    """
    table = pd.DataFrame(prefixes, columns=["x", "answer"])
    table["n"] = table["x"].map(len)
    table["cell"] = table["x"].map(knows)
    alike = ["n", "cell"]
    same_answer = table.groupby([*alike, "answer"])["x"].transform("size")
    table["share"] = same_answer / table.groupby(alike)["x"].transform("size")
    table["right"] = table.groupby(alike)["share"].transform("max")
    table["nats"] = -np.log(table["share"])
    return table.groupby("n")[["right", "nats"]].mean().mean().tolist()


def on_the_diagonal(x, modulus, anchor):
    """Count the elements of x that make a triple with themselves."""
    return sum((2 * x_i + anchor) % modulus == 0 for x_i in x)


def on_the_anchor(x, modulus, anchor):
    """Count the elements of x that make a triple with the anchor twice."""
    return sum((x_i + 2 * anchor) % modulus == 0 for x_i in x)


def diagonal_and_last(x):
    return on_the_diagonal(x, len(x), x[-1]), x[-1]


COUNT3_KNOWS = {
    "mode": lambda x: 0,
    "last": lambda x: x[-1],
    "pairless": diagonal_and_last,
    "single": lambda x: (*diagonal_and_last(x), on_the_anchor(x, len(x), x[-1])),
}
COUNT2_KNOWS = dict.fromkeys(("last", "pairless"), lambda x: x[-1])


@pytest.mark.parametrize(
    ("order", "function", "knows"), [(3, count3, COUNT3_KNOWS), (2, count2, COUNT2_KNOWS)]
)
def test_the_bounds_of_counting_are_those_of_brute_force(order, function, knows):
    """On all prefixes of 4 to 7 of seven symbols, from every prompt of three."""
    prefixes = []
    for prompt in itertools.product(range(7), repeat=3):
        x = list(prompt)
        while len(x) < 7:
            x.append(function(x))
            prefixes.append((tuple(x), function(x)))
    params = dict(length=7, seed_length=3, symbols=7, order=order)
    metrics, curves = bounds_study("counting", params, 0)
    assert curves["n"] == [4, 5, 6, 7]
    for name, known in knows.items():
        found = metrics[name]
        scores = [found["token_accuracy"], found["loss"]]
        assert scores == pytest.approx(by_hand(prefixes, known))
        assert np.mean(curves[name]) == pytest.approx(found["token_accuracy"])


@pytest.mark.parametrize(("anchor", "at"), [("first", 0), ("last", -1)])
def test_the_bound_of_match3_knows_what_one_element_decides(anchor, at):
    prefixes = [
        (x, triplet_label(x, 7, anchor, "exists"))
        for length in range(1, 6)
        for x in itertools.product(range(7), repeat=length)
    ]

    def one(x):
        anchor = x[at]
        return on_the_diagonal(x, 7, anchor), on_the_anchor(x, 7, anchor), anchor

    params = dict(length=5, symbols=7, modulus=7, anchor=anchor)
    found = bounds_study("triplets", params, 0)[0]["pairless"]
    assert [found["token_accuracy"], found["loss"]] == pytest.approx(by_hand(prefixes, one))
    drawn = bounds_study("triplets", params, 40_000)[0]["pairless"]
    assert drawn["held_out_token_accuracy"] <= drawn["token_accuracy"]
    assert drawn["token_accuracy"] == pytest.approx(found["token_accuracy"], abs=0.01)


def test_a_chain_of_thought_asks_for_count3_of_drawn_prompts():
    prompts = [(x, count3(x)) for n in (2, 3) for x in itertools.product(range(4), repeat=n)]
    right, _ = by_hand(prompts, diagonal_and_last)
    found, _ = pairless.lookup("chain", dict(longest=3, symbols=4))
    assert found["pairless"]["token_accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("changes", [dict(held_out=0.3, held_out_by="multiset"), dict(drawn=2)])
def test_a_bound_is_that_of_the_task_without_its_split_and_drawing(changes):
    plain = dict(length=8, seed_length=3, symbols=6)
    assert pairless.lookup("counting", plain | changes) == bounds_study("counting", plain, 0)


def test_every_task_that_a_verdict_rests_on_has_its_bound_stored():
    """Else a ledger would compute it from fewer sequences, whenever it is shown."""
    store = Store()
    asked = set()
    for experiment, tier in itertools.product(EXPERIMENTS.values(), ("quick", "overnight")):
        measured = experiment.measure is not no_claims and experiment.stored(store, tier)
        for config in experiment.configs(tier) if measured else ():
            if isinstance(config, RunConfig):
                task = config.task
                params = config.task_params
            else:
                task = "counting"
                params = config.params.get("task")
                if "seed_length" not in (params or {}):
                    continue
            ordered = {"ascending", "either_way"} & (params or {}).keys()
            if task in pairless.DECIDES and not ordered:
                study = pairless.study_of(task, params)
                asked.add(config_id(study, COUNT3_BOUNDS.version))
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
        rows = inputs_BT.tolist()
        places = scored_BT.nonzero().tolist()
        answers = [self.answer(rows[b][: end + 1]) for b, end in places]
        return F.one_hot(torch.tensor(answers), TASK.vocab_size).float()


def parity_of_the_diagonal(x):
    return on_the_diagonal(x, len(x), x[-1]) % 2


@pytest.mark.parametrize(
    ("answer", "agreement", "accuracy"),
    [
        (count3, (1, 1), (1, 1)),
        (parity_of_the_diagonal, (1, 1), (0.05, 0.5)),  # the shortcut alone
        (lambda x: 0, (0.4, 0.6), (0.05, 0.5)),  # looks at nothing
        (lambda x: (count3(x) + 1) % 10, (0, 0.2), (0, 0.1)),
    ],
)
def test_agreement_is_one_with_the_shortcut_and_chance_without(answer, agreement, accuracy):
    found = probe(Answering(answer), TASK, 300)
    assert agreement[0] <= found["parity_agreement"] <= agreement[1]
    assert accuracy[0] <= found["token_accuracy"] <= accuracy[1]
    assert found["position"] == [6, 8, 10]
    assert 0.5 <= found["commonest"] < 0.7


def test_whole_sequences_of_match3_are_no_more_than_labels_allow():
    """At most those whose hardest label is right, at least those that miss none of them."""
    params = dict(length=4, symbols=5, modulus=5)
    right = np.array(bounds_study("triplets", params, 0)[1]["pairless"])
    share = pairless.whole_sequences(params, 0)
    assert 1 - (1 - right).sum() <= share <= right.min()
    assert 0.5 < share < 1
