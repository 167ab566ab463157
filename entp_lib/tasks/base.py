"""The interface of a task: batches from a seed, how they are scored, and data sets of fixed examples.

Letters: B batch, T tokens, N scored positions, P examples of a part, S symbols of a prompt, V vocabulary.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Batch:
    """One batch. ``targets_BT`` matters where ``scored_BT`` is True; ``prompt_lengths_B`` for prefix decoders.

    Continuous inputs are (B, T, input_dim), their targets real. ``positions_BT``, ``mask_BTT``: as in the model's call.
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    scored_BT: Tensor
    prompt_lengths_B: Tensor | None = None
    positions_BT: Tensor | None = None
    mask_BTT: Tensor | None = None

    @classmethod
    def of_text(
        cls, text_BT: Tensor, scored_BT: Tensor | None = None, prompt_lengths_B: Tensor | None = None
    ) -> "Batch":
        """Predict each next token of texts (B, T + 1): everywhere, after prompts of one token, unless given."""
        if scored_BT is None:
            scored_BT = torch.ones_like(text_BT[:, 1:], dtype=torch.bool)
        if prompt_lengths_B is None:
            prompt_lengths_B = torch.ones_like(text_BT[:, 0])
        return cls(text_BT[:, :-1], text_BT[:, 1:], scored_BT, prompt_lengths_B)

    @property
    def targets_N(self) -> Tensor:
        return self.targets_BT[self.scored_BT]

    def relations(self) -> dict[str, Tensor]:
        """The position ids and the mask that the task brings, by the names of the model's arguments."""
        return {name: x for name in ("positions_BT", "mask_BTT") if (x := getattr(self, name)) is not None}

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with every tensor changed alike."""
        return Batch(**{name: None if x is None else change(x) for name, x in vars(self).items()})

    def rows(self, part: slice | Tensor) -> "Batch":
        """Some rows of the batch."""
        return self.map(lambda x: x[part])


def loss_curve(watched: str) -> str:
    """Name of the curve with the losses of a scoring that ``Task.watched`` names."""
    return f"{watched}_loss"


class Task:
    """A source of fresh sequences. Subclasses are frozen dataclasses whose fields are the task's parameters.

    A task has ``vocab_size``, ``length`` (of the longest input) and ``batch``; all else has a default. Scoring is
    cross-entropy in nats and argmax accuracy; where ``continuous``, squared error alone, and ``input_dim`` takes the
    place of ``vocab_size``.
    """

    vocab_size: int
    length: int
    continuous = False
    input_dim: int | None = None
    stationary = False  # whether targets are distributed alike at every position: one baseline then does for all
    patience_score = "train_loss"  # the curve whose minima patience waits for
    same_prompts = True  # whether prompts, which a prefix decoder opens, are in training those of tests and generation
    added_tokens = 0  # at the end of the vocabulary: what a run that starts from others' weights may add to theirs
    caveat = ""  # a reservation about every conclusion from its scores, in a few words

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        """``size`` fresh sequences on the generator's device; small tasks keep training and evaluation apart."""
        raise NotImplementedError

    def losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        """Loss of each scored position, (N,), in nats; for real targets the squared error of the only output."""
        if self.continuous:
            return (logits_NV[:, 0].float() - targets_N).square()
        return F.cross_entropy(logits_NV.float(), targets_N, reduction="none")

    def evaluation(self, generator: torch.Generator, sequences: int, most: int) -> Iterator[Batch]:
        """``sequences`` sequences for evaluation, at most ``most`` at a time; a fixed set has each of its own once."""
        for start in range(0, sequences, most):
            yield self.batch(generator, min(most, sequences - start), evaluating=True)

    def at_step(self, step: int) -> "Task":
        """The task that training batches of the 1-based ``step`` come from: an easier one early in a curriculum."""
        return self

    def facts(self) -> dict[str, Any]:
        """Facts about the task's data, such as its checksum, which this loads or makes. ConfigError without it."""
        return {}

    def samples(self, model: nn.Module, generator: torch.Generator) -> dict[str, Any]:
        """The trained model's own writing, for people to read in the record; {} for none."""
        return {}

    def watched(self) -> dict[str, "Task"]:
        """Other scorings of the task at every evaluation; the curves have their losses, named by ``loss_curve``."""
        return {}

    def reported_apart(self) -> dict[str, "Task"]:
        """Other scorings of the same task, by the name under which a record reports them."""
        return {}

    def test(self) -> "Task | None":
        """The task on its test set, on which the weights of every checkpoint rule are scored; None without one."""
        return None

    def checkpoint_rules(self) -> dict[str, str]:
        """Curves by whose lowest or highest value, as the name says, weights are chosen that are tested, too."""
        rules = {f"lowest_{curve}": curve for curve in ("loss", *map(loss_curve, self.watched()))}
        return rules if self.continuous else rules | {"highest_accuracy": "sequence_accuracy"}

    def constants_T(self) -> Tensor:
        """Best constant guess of real targets at each position, without a look at the input, (T,)."""
        return torch.zeros(self.length)

    def scored_sample(self) -> Tensor:
        """``scored_BT`` of a few training sequences: enough to count the operations of a run."""
        return self.batch(generator_for("cpu", "wanted"), 8).scored_BT

    def groups(self, batch: Batch) -> list[str] | None:
        """A name for each sequence of a batch, by which its accuracy is reported apart; None for no groups."""
        return None


class FixedData(Task):
    """A data set with training, validation and test parts: training draws at random, evaluation goes through once.

    Subclasses define ``examples`` and have a field ``part``: "train" (trained on that part, evaluated on validation),
    "test" for the test part in both roles, or "seen", evaluated on the training examples themselves.
    """

    part: str

    def examples(self, part: str) -> Batch:
        """All examples of a part of ``PARTS`` on the CPU, in types as narrow as will do; cached by the subclass."""
        raise NotImplementedError

    def count(self, part: str) -> int:
        return len(self.examples(part).scored_BT)

    def rows_of(self, part: str, chosen_B: Tensor) -> Batch:
        """The examples of a part with these numbers, on the device of the choice."""
        rows, narrow = self.examples(part).rows(chosen_B.cpu()), (torch.int8, torch.int32)
        return rows.map(lambda x: x.to(chosen_B.device, torch.long if x.dtype in narrow else x.dtype))

    def part_of(self, evaluating: bool) -> str:
        """The part of ``PARTS`` that examples come from."""
        if self.part == "train":
            return "validation" if evaluating else "train"
        return "train" if self.part == "seen" else self.part

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        part = self.part_of(evaluating)
        chosen_B = torch.randint(self.count(part), (size,), generator=generator, device=generator.device)
        return self.rows_of(part, chosen_B)

    def evaluation(self, generator: torch.Generator, sequences: int, most: int) -> Iterator[Batch]:
        """Each example once, or so many of them, in random order."""
        part = self.part_of(evaluating=True)
        order_P = torch.randperm(self.count(part), generator=generator, device=generator.device)
        for chosen_B in order_P[:sequences].split(most):
            yield self.rows_of(part, chosen_B)

    def test(self) -> Task | None:
        return replace(self, part="test") if self.part == "train" else None


def some_positions(generator: torch.Generator, scored_BT: Tensor, count: int, lowest: bool = False) -> Tensor:
    """``count`` of the scored positions of each row, drawn at random, (B, T): those of largest (or lowest) rank."""
    ranks_BT = torch.rand(scored_BT.shape, generator=generator, device=scored_BT.device)
    ranks_BT = ranks_BT.masked_fill(~scored_BT, 2.0 if lowest else -1.0)
    return torch.zeros_like(scored_BT).scatter(1, ranks_BT.topk(count, largest=not lowest).indices, True)


def is_held_out(x_BS: Tensor, share: float, salt: int = 0) -> Tensor:
    """Rows of symbols that are kept for evaluation, (B,): a fixed choice, about ``share`` of all, without meaning."""
    x_BS = x_BS.long()  # a narrower type would wrap elsewhere, and choose others
    mixed_B = torch.full_like(x_BS[:, 0], salt)
    for column_B in x_BS.unbind(1):
        mixed_B = ((mixed_B ^ column_B) * 0x9E3779B1 + 0x7F4A7C15) % 2**31
        mixed_B = mixed_B ^ (mixed_B >> 13)
    return mixed_B % 1000 < round(1000 * share)


def draw_on_side(draw: Callable[[int], Tensor], size: int, held_out: Callable[[Tensor], Tensor], side: bool) -> Tensor:
    """``size`` rows of ``draw`` for which ``held_out`` gives ``side``: what lies on the other side is drawn again."""
    x_BS = draw(size)
    while (wrong_B := held_out(x_BS) != side).any():
        x_BS[wrong_B] = draw(int(wrong_B.sum()))
    return x_BS


def seed_from(*parts: int | str) -> int:
    """A seed that depends on every part, so that a run which resumes at a step draws what it would have drawn there."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(device: str | torch.device, *parts: int | str) -> torch.Generator:
    """A generator on ``device`` seeded with ``seed_from(*parts)``."""
    return torch.Generator(device=device).manual_seed(seed_from(*parts))
