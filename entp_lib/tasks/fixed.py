"""A data set of fixed examples with training, validation and test parts, as a task.

Letters: B batch, P examples of a part.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from entp_lib.tasks.base import Batch, Task

PARTS = ("train", "validation", "test")


class FixedData(Task):
    """Examples that are drawn from, not made up: training at random, evaluation each once in random order.

    Subclasses are frozen dataclasses with a field ``part``, and define ``count`` and ``rows_of``. ``part`` is "train"
    (trained on that part, evaluated on validation), "test" for the test part in both roles, or "seen", evaluated on
    the training examples themselves.
    """

    part: str

    def count(self, part: str) -> int:
        """How many examples a part of ``PARTS`` has."""
        raise NotImplementedError

    def rows_of(self, part: str, chosen_B: Tensor) -> Batch:
        """The examples of a part with these numbers, on the device of the choice."""
        raise NotImplementedError

    def part_of(self, evaluating: bool) -> str:
        """The part of ``PARTS`` that examples come from."""
        if self.part == "train":
            return "validation" if evaluating else "train"
        return "train" if self.part == "seen" else self.part

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        part = self.part_of(evaluating)
        count = self.count(part)
        return self.rows_of(part, torch.randint(count, (size,), generator=generator, device=generator.device))

    def evaluation(self, generator: torch.Generator, sequences: int, most: int) -> Iterator[Batch]:
        """Each example once, or so many of them, in random order."""
        part = self.part_of(evaluating=True)
        order_P = torch.randperm(self.count(part), generator=generator, device=generator.device)
        for chosen_B in order_P[:sequences].split(most):
            yield self.rows_of(part, chosen_B)

    def test(self) -> Task | None:
        """The task on its test part: scored there are the weights that each checkpoint rule chooses."""
        return replace(self, part="test") if self.part == "train" else None
