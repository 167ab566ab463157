"""What every task offers: batches from a seed, and how a batch is scored.

Letters: B batch, T tokens, N wanted positions, V vocabulary.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """One batch. ``targets_BT`` matters where ``wanted_BT`` is True; ``prompt_lengths_B`` for prefix decoders.

    Continuous inputs have a further dimension, (B, T, input_dim), and their targets are real. A task that places its
    tokens itself brings ``positions_BT``, one that says who sees whom ``mask_BTT`` (as in the model's call).
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    wanted_BT: Tensor
    prompt_lengths_B: Tensor | None = None
    positions_BT: Tensor | None = None
    mask_BTT: Tensor | None = None

    @property
    def targets_N(self) -> Tensor:
        return self.targets_BT[self.wanted_BT]

    def relations(self) -> dict[str, Tensor]:
        """The position ids and the mask that the task brings, by the names of the model's arguments."""
        named = {name: getattr(self, name) for name in ("positions_BT", "mask_BTT")}
        return {name: x for name, x in named.items() if x is not None}

    def rows(self, part: slice | Tensor) -> "Batch":
        """Some rows of the batch."""
        return Batch(**{name: None if x is None else x[part] for name, x in vars(self).items()})


@dataclass(frozen=True)
class CheckpointRule:
    """Which weights are tested beside the last: those of the evaluation that is best by a curve, lowest or highest."""

    curve: str
    highest: bool = False

    def better(self, value: float, than: float) -> bool:
        """Whether one value is strictly better than another: the first of equals stays."""
        return value > than if self.highest else value < than


def loss_curve(watched: str) -> str:
    """The curve that holds the losses of a scoring that ``Task.watched`` names."""
    return f"{watched}_loss"


class Task:
    """A source of fresh sequences. Subclasses are frozen dataclasses whose fields are the task's parameters.

    The core: sizes (``vocab_size``, and ``length``, the longest input), ``batch`` and ``losses``. Scoring is
    cross-entropy in nats and argmax accuracy; where ``continuous``, squared error alone, and ``input_dim`` takes the
    place of ``vocab_size``. All else has a default that says no more than this.
    """

    vocab_size: int
    length: int
    continuous = False
    input_dim: int | None = None
    stationary = False  # whether targets are distributed alike at every position: one baseline then does for all
    patience_score = "train_loss"  # the curve whose minima patience waits for
    same_prompts = True  # whether prompts, which a prefix decoder opens, are in training those of tests and generation
    added_tokens = 0  # at the end of the vocabulary: what a run that starts from others' weights may add to theirs

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        """``size`` fresh sequences on the generator's device, for training or for evaluation.

        Where a task is small enough to be learned by heart, it keeps the two apart; others need not care.
        """
        raise NotImplementedError

    def losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        """Loss of each wanted position, (N,), in nats; for real targets the squared error of the only output."""
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

    def prepare(self) -> None:
        """Get ready what batches need, before any clock of training runs; ConfigError where that cannot be."""

    @property
    def caveat(self) -> str:
        """What should stand beside whatever is concluded from scores on it, in a few words; empty for nothing."""
        return ""

    def facts(self) -> dict[str, Any]:
        """What a record reports of the task's data beside the scores, such as its checksum."""
        return {}

    def samples(self, model: nn.Module, generator: torch.Generator) -> dict[str, Any]:
        """What a record keeps of the trained model's own writing, for people to read; {} for nothing."""
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

    def checkpoint_rules(self) -> dict[str, CheckpointRule]:
        """By name, which weights are scored on the test set beside the last ones."""
        if self.continuous:
            return {"lowest_loss": CheckpointRule("loss")}
        return {
            "lowest_loss": CheckpointRule("loss"),
            "highest_accuracy": CheckpointRule("sequence_accuracy", highest=True),
        }

    def constants_T(self) -> Tensor:
        """Of real targets, the best guess at each position without a look at the input, (T,): zero in most tasks."""
        return torch.zeros(self.length)

    def wanted_sample(self) -> Tensor:
        """``wanted_BT`` of a few training sequences: enough to count what a run computes."""
        return self.batch(generator_for("cpu", "wanted"), 8).wanted_BT

    def groups(self, batch: Batch) -> list[str] | None:
        """A name for each sequence of a batch, by which its accuracy is reported apart; None for no groups."""
        return None


def kept_apart(x_BS: Tensor, share: float, salt: int = 0) -> Tensor:
    """Which rows of symbols are kept for evaluation, (B,): a fixed choice, about ``share`` of all, without meaning."""
    x_BS = x_BS.long()  # a narrower type would wrap elsewhere, and choose others
    mixed_B = torch.full_like(x_BS[:, 0], salt)
    for column_B in x_BS.unbind(1):
        mixed_B = ((mixed_B ^ column_B) * 0x9E3779B1 + 0x7F4A7C15) % 2**31
        mixed_B = mixed_B ^ (mixed_B >> 13)
    return mixed_B % 1000 < round(1000 * share)


def seed_from(*parts: int | str) -> int:
    """A seed that depends on every part, so that (data_seed, stream, step) never repeats a batch elsewhere.

    A run that resumes at step k draws what an uninterrupted one draws there: no generator state is stored.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(device: str | torch.device, *parts: int | str) -> torch.Generator:
    """A generator on ``device`` seeded with ``seed_from(*parts)``."""
    return torch.Generator(device=device).manual_seed(seed_from(*parts))
