"""Count3 (equation 6) and its control Count2 (appendix C.1, footnote 8).

    Count3(x_1..x_n) = #{(i, j) in [n]^2 : x_i + x_j + x_n = 0 (mod n)}  (mod n)
    Count2(x_1..x_n) = #{ i     in [n]   : x_i       + x_n = 0 (mod n)}  (mod n)

Pairs are ordered and i = j counts. A sequence starts with random symbols, the seed, and is
continued by the function: the task is to predict the continuation.

    >>> count3([4, 41, 1, 40, 44, 26, 38, 34, 44, 0, 58, 46, 10, 10, 24, 49])  # seed of Figure 2
    6

Letters: B batch, T tokens, S symbols of a seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from entp_lib.tasks.base import (
    Batch,
    Task,
    draw_on_side,
    integers,
    is_held_out,
    some_positions,
)
from entp_lib.validation import check_intervals, check_types, one_of, require


def count3(x: Sequence[int]) -> int:
    """Compute Count3 by Algorithm 3: a table of residues. O(n) time, O(n) space."""
    n = len(x)
    table = [0] * n
    for value in x:
        table[value % n] += 1
    return sum(table[-(value + x[-1]) % n] for value in x) % n


def count3_pairs(x: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ordered pairs (i, j) that Count3 counts, 1-based as in equation 6."""
    n = len(x)
    pairs = ((i, j) for i in range(n) for j in range(n))
    return [(i + 1, j + 1) for i, j in pairs if (x[i] + x[j] + x[-1]) % n == 0]


def count2(x: Sequence[int]) -> int:
    """Compute Count2, the control: single elements instead of pairs."""
    n = len(x)
    return sum((value + x[-1]) % n == 0 for value in x) % n


def next_symbols(x_BT: Tensor, order: int) -> Tensor:
    """Compute Count3 (``order`` 3) or Count2 (2) of each row, (B,): Algorithm 3 for a batch."""
    one_of("order", order, (2, 3))
    n = x_BT.shape[1]
    x_BT = x_BT.long()
    # the residue that completes each element to 0
    missing_BT = -(x_BT + x_BT[:, -1:]) % n
    if order == 2:
        return (missing_BT == 0).sum(1) % n
    table_BT = torch.zeros_like(x_BT).scatter_add_(1, x_BT % n, torch.ones_like(x_BT))
    return table_BT.gather(1, missing_BT).sum(1) % n


@dataclass(frozen=True)
class Counting(Task):
    """Sequences of ``length`` + 1 integers: ``seed_length`` random symbols, then the function.

    Symbols are in [0, ``symbols``). Predictions from prefixes of ``first_scored`` to ``length``
    elements are scored. The paper has length 64, seed length 16 and 64 symbols. Its published
    curves leave out the first generated element, so that ``first_scored`` defaults to
    ``seed_length`` + 1.

    ``held_out``: share of all seeds kept for evaluation. The paper's 64^16 seeds never repeat, the
    few of a reduced task do. ``held_out_by``: ``sequence`` decides for each seed by itself,
    ``multiset`` for all orders of a seed together, since the function ignores the order once
    another element follows. ``drawn``: how many prefixes of each training sequence are scored,
    drawn at random; 0 for all. Evaluation scores all.
    """

    order: Literal[2, 3] = 3
    length: int = 64
    seed_length: int = 16
    symbols: int = 64
    first_scored: int = 0
    held_out: float = 0.0
    drawn: int = 0
    held_out_by: Literal["sequence", "multiset"] = "sequence"

    def __post_init__(self):
        check_types(self)
        check_intervals(
            self,
            {"seed_length": "[1, inf)", "symbols": "[2, inf)", "held_out": "[0, 0.9]"},
        )
        require(
            self.length >= self.seed_length,
            f"length = {self.length}: must be at least seed_length = {self.seed_length}",
        )
        if self.first_scored == 0:
            first = min(self.seed_length + 1, self.length)
            object.__setattr__(self, "first_scored", first)
        intervals = {
            "first_scored": f"[{self.seed_length}, {self.length}]",
            "drawn": f"[0, {self.length - self.first_scored + 1}]",
        }
        check_intervals(self, intervals)
        if self.held_out > 0:  # else drawing from the empty side would never end
            generator = torch.Generator().manual_seed(0)
            some_BS = integers(generator, self.symbols, 20_000, self.seed_length)
            require(
                len(self.is_held_out(some_BS).unique()) == 2,
                f"held_out = {self.held_out}: leaves one side without a seed; use a larger share",
            )

    @property
    def vocab_size(self) -> int:
        return max(self.symbols, self.length)

    @property
    def caveat(self) -> str:
        # nearly all held-out seeds of a small task reorder training seeds
        is_reordered = self.held_out > 0 and self.held_out_by == "sequence"
        return "scored on sets of training in other orders" if is_reordered else ""

    def reported_apart(self) -> dict[str, Task]:
        """Return the scoring of the first generated element, which is not scored by default."""
        n = self.seed_length
        if self.first_scored == n:
            return {}
        return {"first_generated": replace(self, length=n, first_scored=n, drawn=0)}

    def is_held_out(self, seeds_BS: Tensor) -> Tensor:
        """Tell which seeds are kept for evaluation, (B,)."""
        if self.held_out_by == "multiset":
            seeds_BS = seeds_BS.sort(1).values
        return is_held_out(seeds_BS, self.held_out)

    def sequences(
        self, generator: Generator, size: int, evaluating: bool = False
    ) -> Tensor:
        """Return (size, length + 1) integers: seeds from one side of the split, continued."""
        x_BT = draw_on_side(
            lambda rows: integers(generator, self.symbols, rows, self.seed_length),
            size,
            self.is_held_out,
            evaluating and self.held_out > 0,
        )
        while x_BT.shape[1] <= self.length:
            x_BT = torch.cat([x_BT, next_symbols(x_BT, self.order)[:, None]], 1)
        return x_BT

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        x_BT = self.sequences(generator, size, evaluating)
        length_T = torch.arange(1, self.length + 1, device=x_BT.device)
        scored_BT = (length_T >= self.first_scored).expand(size, -1)
        # drawn last, so that paired runs share sequences
        if self.drawn and not evaluating:
            scored_BT = some_positions(generator, scored_BT, self.drawn, lowest=True)
        return Batch.of_text(
            x_BT, scored_BT, torch.full_like(x_BT[:, 0], self.seed_length)
        )
