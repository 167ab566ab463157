"""The interface of a task: batches from a seed, how they are scored, and data sets of examples.

Letters: B batch, T tokens, N scored positions, P examples of a part, S symbols of a prompt,
V vocabulary.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from entp_lib.validation import Json

PARTS = ("train", "validation", "test")
NARROW = (torch.int8, torch.int32)  # types in which ids are stored


@dataclass(frozen=True)
class Batch:
    """One batch of sequences.

    ``targets_BT`` is used where ``scored_BT`` is True; ``prompt_lengths_B`` is for prefix decoders.
    Continuous inputs are (B, T, input_dim), with real targets. ``positions_BT`` and ``mask_BTT``
    are as in ``Transformer.forward``.
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    scored_BT: Tensor
    prompt_lengths_B: Tensor | None = None
    positions_BT: Tensor | None = None
    mask_BTT: Tensor | None = None

    @classmethod
    def of_text(
        cls,
        text_BT: Tensor,
        scored_BT: Tensor | None = None,
        prompt_lengths_B: Tensor | None = None,
    ) -> "Batch":
        """Return a batch that predicts each next token of texts (B, T + 1).

        ``scored_BT`` (B, T): whether the token after each is predicted, by default everywhere.
        ``prompt_lengths_B``: by default 1 for each text.
        """
        if scored_BT is None:
            scored_BT = torch.ones_like(text_BT[:, 1:], dtype=torch.bool)
        if prompt_lengths_B is None:
            prompt_lengths_B = torch.ones_like(text_BT[:, 0])
        return cls(text_BT[:, :-1], text_BT[:, 1:], scored_BT, prompt_lengths_B)

    @property
    def targets_N(self) -> Tensor:
        return self.targets_BT[self.scored_BT]

    def model_arguments(self) -> dict[str, Any]:
        """Return the task's position ids and mask, if any, as keyword arguments of the model."""
        given = {"positions_BT": self.positions_BT, "mask_BTT": self.mask_BTT}
        return {name: x for name, x in given.items() if x is not None}

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with ``change`` applied to every tensor."""
        given = {name: change(x) for name, x in vars(self).items() if x is not None}
        return Batch(**given)

    def rows(self, part: slice | Tensor) -> "Batch":
        """Return some rows of the batch."""
        return self.map(lambda x: x[part])


class Task:
    """A source of fresh sequences. A subclass is a frozen dataclass of the task's parameters.

    A task has ``vocab_size``, ``length`` (of the longest input) and ``batch``; everything else has
    a default. It is scored by cross-entropy in nats and argmax accuracy. A ``continuous`` task is
    scored by squared error alone and has ``input_dim`` in place of ``vocab_size``; its model has
    ``vocab_size=0``.
    """

    vocab_size: int
    length: int
    continuous = False
    input_dim: int | None = None
    stationary = False  # whether targets have the same distribution at every position
    patience_score = "train_loss"  # the curve that patience watches for new minima
    same_prompts = True  # whether training has the prompts that a prefix decoder needs
    # appended to the vocabulary, for runs that start from stored weights
    added_tokens = 0
    caveat = ""  # a caveat of every conclusion from its scores, in a few words

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        """Return ``size`` fresh sequences on the generator's device.

        Small tasks hold out the sequences of evaluation from training.
        """
        raise NotImplementedError

    def losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        """Return the loss of each scored position, (N,), in nats; for reals the squared error."""
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        if self.continuous:
            return (logits_NV[:, 0] - targets_N).square()
        return F.cross_entropy(logits_NV, targets_N, reduction="none")

    def evaluation(
        self, generator: Generator, sequences: int, most: int
    ) -> Iterator[Batch]:
        """Yield ``sequences`` sequences for evaluation, at most ``most`` at a time."""
        for start in range(0, sequences, most):
            yield self.batch(generator, min(most, sequences - start), evaluating=True)

    def at_step(self, step: int) -> "Task":
        """Return the task of the 1-based training ``step``: an easier one early in a curriculum."""
        return self

    def facts(self) -> Json:
        """Load or make the data, and return facts about them such as their checksum."""
        return {}

    def samples(self, model: nn.Module, generator: Generator) -> Json:
        """Return text written by the trained model, for people to read in the record."""
        return {}

    def extra_scorings(self) -> dict[str, "Task"]:
        """Return other scorings for every evaluation; their losses are curves (``loss_curve``)."""
        return {}

    def reported_apart(self) -> dict[str, "Task"]:
        """Return further scorings of the final weights, by their name in the record."""
        return {}

    def test(self) -> "Task | None":
        """Return the task on its test set, if any, to score the weights that each rule kept."""
        return None

    def checkpoint_rules(self) -> dict[str, str]:
        """Return the rules that keep weights, with the curve whose minimum or maximum decides."""
        curves = ["loss", *map(loss_curve, self.extra_scorings())]
        rules = {f"lowest_{curve}": curve for curve in curves}
        if not self.continuous:
            rules["highest_accuracy"] = "sequence_accuracy"
        return rules

    def constants_T(self) -> Tensor:
        """Return the best constant guess of real targets at each position, (T,)."""
        return torch.zeros(self.length)

    def scored_sample(self) -> Tensor:
        """Return ``scored_BT`` of a few training sequences: enough to count a run's operations."""
        return self.batch(generator_for("cpu", "wanted"), 8).scored_BT

    def groups(self, batch: Batch) -> list[str]:
        """Return a name for each sequence, by which accuracy is reported; empty for no groups."""
        return []


class FixedData(Task):
    """A data set with parts: training draws at random, evaluation goes through once.

    A subclass defines ``examples`` and has a field ``part``: "train" (trained on that part,
    evaluated on validation), "test" for the test part in both roles, or "seen", evaluated on the
    training examples themselves.
    """

    part: Any

    def examples(self, part: str) -> Batch:
        """Return all examples of a part of ``PARTS`` on the CPU, cached; ids may be narrow."""
        raise NotImplementedError

    def count(self, part: str) -> int:
        """Count the examples of a part."""
        return len(self.examples(part).scored_BT)

    def rows_of(self, part: str, chosen_B: Tensor) -> Batch:
        """Return the examples ``chosen_B`` of a part, on the device of ``chosen_B``."""
        rows = self.examples(part).rows(chosen_B.cpu())
        return rows.map(
            lambda x: (x.long() if x.dtype in NARROW else x).to(chosen_B.device)
        )

    def part_of(self, evaluating: bool) -> str:
        """Return the part of ``PARTS`` that examples come from."""
        if self.part == "train":
            return "validation" if evaluating else "train"
        return "train" if self.part == "seen" else self.part

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        part = self.part_of(evaluating)
        return self.rows_of(part, integers(generator, self.count(part), size))

    def evaluation(
        self, generator: Generator, sequences: int, most: int
    ) -> Iterator[Batch]:
        """Yield each example once, or ``sequences`` of them, in random order."""
        part = self.part_of(evaluating=True)
        order_P = torch.randperm(
            self.count(part), generator=generator, device=generator.device
        )
        for chosen_B in order_P[:sequences].split(most):
            yield self.rows_of(part, chosen_B)

    def test(self) -> Task | None:
        return replace(self, part="test") if self.part == "train" else None  # type: ignore


def integers(generator: Generator, below: int, *shape: int) -> Tensor:
    """Draw whole numbers from 0 to ``below`` - 1 on the generator's device."""
    return torch.randint(below, shape, generator=generator, device=generator.device)


def loss_curve(scoring: str) -> str:
    """Name the curve with the losses of one of ``Task.extra_scorings``."""
    return f"{scoring}_loss"


def some_positions(
    generator: Generator, scored_BT: Tensor, count: int, lowest: bool = False
) -> Tensor:
    """Draw ``count`` of each row's scored positions, (B, T), or all: the largest (lowest) ranks."""
    ranks_BT = torch.rand(scored_BT.shape, generator=generator, device=scored_BT.device)
    ranks_BT = ranks_BT.masked_fill(~scored_BT, 2.0 if lowest else -1.0)
    chosen = ranks_BT.topk(count, largest=not lowest).indices
    return torch.zeros_like(scored_BT).scatter(1, chosen, True) & scored_BT


def is_held_out(x_BS: Tensor, share: float, salt: int = 0) -> Tensor:
    """Tell which rows of symbols are held out, (B,): by a hash, about ``share`` of all.

    The hash is unrelated to what a task computes from the symbols.
    """
    x_BS = x_BS.long()  # a narrower type would overflow, and hold out other rows
    mixed_B = torch.full_like(x_BS[:, 0], salt)
    for column_B in x_BS.unbind(1):
        mixed_B = ((mixed_B ^ column_B) * 0x9E3779B1 + 0x7F4A7C15) % 2**31
        mixed_B = mixed_B ^ (mixed_B >> 13)
    return mixed_B % 1000 < round(1000 * share)


def draw_on_side(
    draw: Callable[[int], Tensor],
    size: int,
    held_out: Callable[[Tensor], Tensor],
    side: bool,
) -> Tensor:
    """Return ``size`` rows of ``draw`` for which ``held_out`` is ``side``; others are redrawn."""
    x_BS = draw(size)
    while (wrong_B := held_out(x_BS) != side).any():
        x_BS[wrong_B] = draw(int(wrong_B.sum()))
    return x_BS


def seed_from(*parts: int | str) -> int:
    """Return a seed that depends on every part.

    A resumed run therefore draws the same data at a step as an uninterrupted one.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(device: str | torch.device, *parts: int | str) -> Generator:
    """Return a generator on ``device`` seeded with ``seed_from(*parts)``."""
    return torch.Generator(device=device).manual_seed(seed_from(*parts))
