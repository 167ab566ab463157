"""Match3′ (§6.4) and its neighbours: the three differences from Count3 as parameters of one task.

    Match3′(x_1..x_t) = 1 if some pair (i, j) in [t]^2 has x_1 + x_i + x_j = 0 (mod 128), else 0

Inputs are i.i.d. symbols and every position t has a label. §6.4 explains by three differences why a
decoder learns this and not Count3, but changes all three at once. Here each is a parameter:

    modulus  a number (Match3′: 128)       or 0: the current length t, as in Count3
    anchor   "first": x_1 (Match3′)        or "last": x_t
    output   "exists": 0 or 1 (Match3′)    or "count": the number of pairs, modulo the modulus

With modulus 8, anchor "first" and output "exists":

    x      3  1  4  4  6
    label  0  0  1  1  1     at t = 3: 3 + 1 + 4 = 8

Letters: B batch, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from entp_lib.tasks.base import Batch, Task, integers
from entp_lib.validation import check_intervals, check_types, require


def triplet_label(x: Sequence[int], modulus: int, anchor: str, output: str) -> int:
    """Return the label after all of ``x`` by trying every pair: the definition.

    Modulus 0 is the length of ``x``.
    """
    m = modulus or len(x)
    a = x[0] if anchor == "first" else x[-1]
    pairs = sum((a + x_i + x_j) % m == 0 for x_i in x for x_j in x)
    return pairs % m if output == "count" else int(pairs > 0)


@dataclass(frozen=True)
class Triplets(Task):
    """Labels of the triplet relation at every position of ``length`` symbols in [0, ``symbols``).

    The defaults are Match3′ as the authors ran it. Labels are tokens of their own, after the
    symbols. ``ascending``: symbols after the first are drawn in ascending order; with
    ``either_way``, in ascending or descending order, by the toss of a coin.
    """

    length: int = 64
    symbols: int = 64
    modulus: int = 128
    anchor: Literal["first", "last"] = "first"
    output: Literal["exists", "count"] = "exists"
    ascending: bool = False
    either_way: bool = False

    def __post_init__(self):
        check_types(self)
        check_intervals(self, {"length": "[1, inf)", "symbols": "[2, inf)"})
        require(
            self.modulus == 0 or self.modulus >= 2,
            f"modulus = {self.modulus}: must be 0 (the current length) or at least 2",
        )
        require(
            self.ascending or not self.either_way,
            "either_way = True: needs ascending = True",
        )

    @property
    def n_labels(self) -> int:
        return 2 if self.output == "exists" else self.modulus or self.length

    @property
    def vocab_size(self) -> int:
        return self.symbols + self.n_labels

    def labels(self, x_BT: Tensor) -> Tensor:
        """Return the label at every position of symbols ``x_BT``, (B, T), from 0 on."""
        labels_BT = torch.empty_like(x_BT)
        anchor = 0 if self.anchor == "first" else -1
        for t in range(1, x_BT.shape[1] + 1):
            m = self.modulus or t
            prefix_BT = x_BT[:, :t]
            anchor_B1 = prefix_BT[:, anchor, None]
            table = x_BT.new_zeros(len(x_BT), m)
            table.scatter_add_(1, prefix_BT % m, torch.ones_like(prefix_BT))
            pairs_B = table.gather(1, -(prefix_BT + anchor_B1) % m).sum(1)
            labels_BT[:, t - 1] = pairs_B % m if self.output == "count" else pairs_B > 0
        return labels_BT

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        x_BT = integers(generator, self.symbols, size, self.length)
        if self.ascending:
            x_BT[:, 1:] = x_BT[:, 1:].sort(1).values
        if self.either_way:
            turned_B1 = integers(generator, 2, size, 1) > 0
            x_BT[:, 1:] = torch.where(turned_B1, x_BT[:, 1:].flip(1), x_BT[:, 1:])
        labels_BT = self.labels(x_BT) + self.symbols
        scored_BT = torch.ones_like(x_BT, dtype=torch.bool)
        return Batch(x_BT, labels_BT, scored_BT, torch.ones_like(x_BT[:, 0]))
