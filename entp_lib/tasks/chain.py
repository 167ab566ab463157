"""Count3 by chain of thought (Remark 6.4): the trace of Algorithm 6, or the answer at once.

    x_1 .. x_n EOS | r_1 .. r_n  c_1 .. c_n  answer  EOS

r_j = (-x_j mod n) + 1; c_j is the number of i with x_i + x_j + x_n = 0 (mod n); the answer is their
sum mod n, Count3. The trace takes 2n + 2 tokens in place of one. Rows of shorter prompts are padded
with EOS, which is not scored.

Letters: B batch, T tokens, n the length of a prompt, R rows of one n.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from entp_lib.tasks.base import Batch, Task, draw_on_side, integers, is_held_out
from entp_lib.validation import check_intervals, check_types, require

MAX_LISTED = 4096  # prompts of one length; with more, neither side can be empty


def traces(x_Bn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (residues (B, n), counts (B, n), answers (B,)): what Algorithm 6 writes."""
    n = x_Bn.shape[1]
    residues_Bn = -x_Bn % n
    table_Bn = torch.zeros_like(x_Bn).scatter_add_(
        1, residues_Bn, torch.ones_like(x_Bn)
    )
    counts_Bn = table_Bn.gather(1, (x_Bn + x_Bn[:, -1:]) % n)
    return residues_Bn + 1, counts_Bn, counts_Bn.sum(1) % n


@dataclass(frozen=True)
class Chain(Task):
    """Prompts of 2 to ``longest`` symbols in [0, ``symbols``) and what follows EOS.

    ``scored``: ``trace`` writes Algorithm 6's tokens and scores them all, ``last`` writes them and
    scores the answer alone, ``direct`` has the answer follow EOS. A share ``held_out`` of all
    prompts is kept for evaluation.
    """

    longest: int = 16
    symbols: int = 16
    scored: Literal["trace", "last", "direct"] = "trace"
    held_out: float = 0.2

    def __post_init__(self):
        check_types(self)
        check_intervals(
            self,
            {"longest": "[2, inf)", "symbols": "[2, inf)", "held_out": "[0.001, 0.9]"},
        )
        # drawing from a side without prompts would never end
        for n in range(2, self.longest + 1):
            if self.symbols**n > MAX_LISTED:
                break
            prompts = torch.cartesian_prod(*[torch.arange(self.symbols)] * n)
            require(
                len(self.is_held_out(prompts).unique()) == 2,
                f"held_out = {self.held_out}, symbols = {self.symbols}: one side has no prompt of "
                f"length {n}",
            )

    @property
    def eos(self) -> int:
        """The id of EOS, the last; lower ids are symbols, residues and counts up to ``longest``."""
        return self.vocab_size - 1

    @property
    def vocab_size(self) -> int:
        return max(self.symbols, self.longest + 1) + 1

    @property
    def length(self) -> int:
        return self.longest + 1 if self.scored == "direct" else 3 * self.longest + 2

    def reported_apart(self) -> dict[str, Task]:
        """Return, for a trace, the scoring of the answer alone after the right chain."""
        if self.scored != "trace":
            return {}
        return {"answer": replace(self, scored="last")}

    def is_held_out(self, x_Bn: Tensor) -> Tensor:
        """Tell which prompts are kept for evaluation, (B,)."""
        return is_held_out(x_Bn, self.held_out, salt=x_Bn.shape[1])

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        n_B = 2 + integers(generator, self.longest - 1, size)
        text_BT = n_B.new_full((size, self.length + 1), self.eos)
        scored_BT = torch.zeros_like(text_BT[:, 1:], dtype=torch.bool)
        for n in range(2, self.longest + 1):
            rows = (n_B == n).nonzero()[:, 0]

            def draw(size: int, n: int = n) -> Tensor:
                return integers(generator, self.symbols, size, n)

            x_Rn = draw_on_side(draw, len(rows), self.is_held_out, evaluating)
            residues_Rn, counts_Rn, answer_R = traces(x_Rn)
            text_BT[rows, :n] = x_Rn
            end = n  # of what the answer follows
            if self.scored != "direct":
                end = 3 * n
                text_BT[rows, n + 1 : end + 1] = torch.cat([residues_Rn, counts_Rn], 1)
            text_BT[rows, end + 1] = answer_R
            scored = slice(n, end + 2) if self.scored == "trace" else end
            scored_BT[rows, scored] = True
        return Batch.of_text(text_BT, scored_BT, n_B + 1)
