"""Scores against brute force, baselines with known answers."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from mistakes import refused
from scipy import stats

from entp_lib import evaluation
from entp_lib.evaluation import constant_baseline, evaluate, evaluation_batches
from entp_lib.tasks import Batch, Counting, Task
from entp_lib.tasks.counting import count3

SMALL = dict(length=6, seed_length=2, symbols=4)
COUNTING = Counting(**SMALL)


class Weighted(Task):
    """Targets drawn with known frequencies at position 1, always 2 at position 2, not scored at
    position 3.
    """

    length = 3

    def __init__(self, *frequencies, stationary=False):
        self.frequencies = frequencies
        self.vocab_size = len(frequencies)
        self.stationary = stationary

    def batch(self, generator, size, evaluating=False):
        targets = torch.full((size, 3), 2)
        targets[:, 0] = torch.multinomial(
            torch.tensor(self.frequencies), size, True, generator=generator
        )
        scored = torch.tensor([True, True, False]).expand(size, -1)
        return Batch(torch.zeros_like(targets), targets, scored)


class Leaning(torch.nn.Module):
    """A model that leans towards the right answer, so that some of its sequences are right."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs_BT, scored_BT, prompts_B):
        places = scored_BT.nonzero().tolist()
        answers = [count3(inputs_BT[b, : t + 1].tolist()) for b, t in places]
        right_NV = F.one_hot(torch.tensor(answers), 11)
        return self.model(inputs_BT, scored_BT, prompts_B) + 2 * right_NV


def test_scores_equal_a_count_by_hand(small_model):
    task = Counting(length=8, seed_length=3, symbols=11)
    model = Leaning(small_model(dtype=torch.float32))
    scores = evaluate(model, task, 300, "seed", detailed=True)  # two batches of unequal size
    batches = list(evaluation_batches(task, 300, "cpu", "evaluate", "seed"))
    inputs_BT, targets_BT, scored_BT = (
        torch.cat([getattr(batch, name) for batch in batches])
        for name in ("inputs_BT", "targets_BT", "scored_BT")
    )
    logits_BPV = model(inputs_BT, scored_BT, None).view(300, 5, 11)
    targets_BP = targets_BT[:, 3:]
    loss_BP = F.cross_entropy(logits_BPV.transpose(1, 2), targets_BP, reduction="none").double()
    right_BP = (logits_BPV.argmax(-1) == targets_BP).double()
    first_BP, second_BP = logits_BPV.topk(2).values.double().unbind(-1)
    margin_BP = first_BP - second_BP
    brief = {
        "loss": loss_BP.mean(),
        "token_accuracy": right_BP.mean(),
        "sequence_accuracy": right_BP.prod(1).mean(),
    }
    assert 0.05 < brief["sequence_accuracy"] < 0.95
    brief = {name: pytest.approx(value.item(), rel=1e-5) for name, value in brief.items()}
    assert evaluate(model, task, 300, "seed") == brief
    assert {name: scores[name] for name in brief} == brief
    assert scores["sequences"] == 300
    assert scores["position"] == [4, 5, 6, 7, 8]
    quantiles = margin_BP.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)).tolist()
    margin = [scores["margin"][name] for name in ("mean", "q05", "q50", "q95")]
    assert margin == pytest.approx([margin_BP.mean().item(), *quantiles], rel=1e-4)
    by_position = {"token_accuracy": right_BP, "loss": loss_BP, "margin": margin_BP}
    for name, values_BP in by_position.items():
        assert scores[f"{name}_by_position"] == pytest.approx(values_BP.mean(0).tolist(), rel=1e-5)
    assert evaluate(model, task, 300, "other seed")["loss"] != scores["loss"]


def test_the_mode_of_known_frequencies():
    """It gets the most frequent of three and the constant right; its loss is the entropy."""
    frequencies = (0.7, 0.2, 0.1)
    found = constant_baseline(Weighted(*frequencies), 4000, 1)
    assert found["position"] == [1, 2]
    assert found["token_accuracy_by_position"] == pytest.approx([0.7, 1.0], abs=0.03)
    assert found["token_accuracy"] == pytest.approx(0.85, abs=0.015)
    assert found["sequence_accuracy"] == pytest.approx(0.7, abs=0.03)
    assert found["loss_by_position"] == pytest.approx([stats.entropy(frequencies), 0.0], abs=0.05)


def test_the_mode_is_scored_on_other_sequences_than_it_is_fitted_on():
    """The mode of ten draws from 64 is one of them, so it would be right 1 time in 10 instead of 1
    in 64.
    """
    task = Weighted(*[1 / 64] * 64)
    found = [
        constant_baseline(task, 10, seed)["token_accuracy_by_position"][0] for seed in range(20)
    ]
    assert sum(found) / 20 < 0.07


def test_stationary_tasks_have_one_guess_for_all_positions():
    found = constant_baseline(Weighted(0.7, 0.2, 0.1, stationary=True), 4000, 1)
    assert found["token_accuracy_by_position"] == pytest.approx([0.1, 1.0], abs=0.03)


def test_a_target_that_the_mode_has_not_seen_costs_as_half_of_one_seen():
    """Of ten fitted draws of the one constant among four symbols, the others have half a count
    each.
    """
    found = constant_baseline(Weighted(1.0, 0.0, 0.0, 0.0), 10, 1)
    assert found["loss_by_position"][0] == pytest.approx(-math.log(10.5 / 12), rel=1e-5)


class Line(Task):
    """y = 2x of two numbers a row, the second alone scored."""

    continuous = True
    input_dim = 1
    length = 2

    def batch(self, generator, size, evaluating=False):
        x = torch.randn(size, 2, 1, generator=generator)
        scored = torch.tensor([False, True]).expand(size, -1)
        return Batch(x, 2 * x[..., 0], scored)


class Half(torch.nn.Module):
    """Answers half of the input."""

    def forward(self, inputs, scored, prompt_lengths):
        return inputs[scored] * 0.5


def test_real_targets_are_scored_by_squared_error():
    scores = evaluate(Half(), Line(), 300, "seed", detailed=True)
    batches = evaluation_batches(Line(), 300, "cpu", "evaluate", "seed")
    errors = torch.cat([(1.5 * batch.inputs_BT[:, 1, 0]).square() for batch in batches])
    mean = pytest.approx(errors.mean().item(), rel=1e-5)
    assert scores == {
        "loss": mean,
        "sequences": 300,
        "position": [2],
        "loss_by_position": [mean],
        "error_by_position": [pytest.approx(errors.std(correction=0).item() / 300**0.5, rel=1e-5)],
    }
    guess = constant_baseline(Line(), 300, "seed")
    assert guess["loss"] == pytest.approx(4, rel=0.3)  # of zero: E[(2x)²]


@dataclass(frozen=True)
class Sparse(Counting):
    """Counting, of which one sequence in ``every`` is scored, and not the first."""

    every: int = 4

    def batch(self, generator, size, evaluating=False):
        batch = super().batch(generator, size, evaluating)
        asked_B = torch.arange(1, size + 1) % self.every == 0
        return replace(batch, scored_BT=batch.scored_BT & asked_B[:, None])

    def groups(self, batch):
        return ["all"] * len(batch.scored_BT)


MISTAKES = {
    "sequences = 0": {"sequences": 0},
    "sequences = 16.0": {"sequences": 16.0},
    "device = 'gpu'": {"device": "gpu"},
    "precision = ": {"precision": "bfloat16"},
    "a model with 11 outputs": {"task": replace(COUNTING, symbols=12)},
    "no sequence of the evaluation has a scored position": {"task": Sparse(**SMALL, every=1000)},
}


def test_what_cannot_be_evaluated_is_named_and_leaves_the_model_as_it_was(small_model):
    model = small_model("decoder", dtype=torch.float32).train()
    model.ln_f.eval()  # as a part that the user froze
    for message, mistake in MISTAKES.items():
        with refused(message):
            evaluate(**{"model": model, "task": COUNTING, "sequences": 64} | mistake)
    evaluate(model, COUNTING, 8)
    assert model.training
    assert model.blocks[0].training
    assert not model.ln_f.training
    with refused("a model with 3 outputs: the task needs 6"):
        evaluate(small_model("decoder", vocab_size=0, input_dim=1, output_dim=3), COUNTING, 1)


def test_sequences_without_a_scored_position_are_not_right(small_model):
    model = small_model("decoder", dtype=torch.float32)
    scores = evaluate(model, Sparse(**SMALL), 64, detailed=True, grouped=True)
    assert scores["sequences"] == 16 and scores["sequence_accuracy"] < 0.5
    right = round(16 * scores["sequence_accuracy"])
    assert scores["groups"] == {"all": {"sequences": 16, "right": right}}


class Growing(torch.nn.Module):
    """Logits in double precision: 0, and after that a number that only double precision tells
    from the next; the right answer leads by 1 at the first position, by 3 at the second.
    """

    def forward(self, inputs, scored, prompt_lengths):
        leads = torch.tensor([1.0, 3.0], dtype=torch.float64).repeat(len(inputs))
        return torch.stack([torch.full_like(leads, 1e9), 1e9 + leads], 1)


class Ones(Task):
    vocab_size = length = 2

    def batch(self, generator, size, evaluating=False):
        ones = torch.ones(size, 2, dtype=torch.long)
        return Batch(ones, ones, ones.bool())


def test_double_precision_and_every_position_count(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_QUANTILE", 100)
    scores = evaluate(Growing(), Ones(), 200, detailed=True)
    assert scores["token_accuracy"] == 1
    assert [scores["margin"][name] for name in ("q05", "mean", "q95")] == [1, 2, 3]
