"""Lemmas 2 and 3 by themselves: ``read`` and ``write`` of real vectors, a layer and a head each.

Letters: B batch, T tokens, D width, d length of the vectors.
"""

import torch
from torch import Tensor

from entp_lib.validation import one_of, require
from entp_papers.looped.circuits import copy_to_memory, copy_to_scratchpad
from entp_papers.looped.layers import Stack
from entp_papers.looped.plan import LayerPlan, Rows, same
from entp_papers.looped.subleq import temperature
from entp_papers.looped.words import pointer_bits, to_bits

OPERATIONS = ("read", "write")


class Copying(Stack):
    """One layer that copies a vector of length d between the scratchpad, token 0, and the token that it points to.

    ``bound`` is the lemmas' C: above twice the largest difference of two values. ``error`` is the ε of
    λ = ln(n³ / ε). ``printed`` takes Lemma 3's formula as printed.
    """

    def __init__(self, operation: str, tokens: int, d: int, bound: float, error: float = 1e-3, printed: bool = False):
        one_of("operation", operation, OPERATIONS)
        require(tokens >= 2, f"tokens = {tokens}: must be at least 2, the scratchpad and one more")
        rows, L = Rows(), pointer_bits(tokens)
        for name, size in (("memory", d), ("held", d), ("pointer", L), ("position", L), ("new", d), ("scratchpad", 1)):
            rows.add(name, size)
        plan, bit = LayerPlan(operation), rows["scratchpad"][0]
        match = [(terms, terms) for terms in same(rows["pointer"], rows["position"])]
        values = zip(same(rows["memory"], rows["held"]), same(rows["new"]), strict=True)
        plan.head(match, list(values), temperature(tokens, error))
        if operation == "read":
            copy_to_scratchpad(plan, rows["held"], rows["new"], bit, bound)
        else:
            copy_to_memory(plan, rows["memory"], rows["new"], bit, bound, printed)
        super().__init__([plan.build(rows.width)], rows.width)
        self.rows, self.tokens, self.operation = rows, tokens, operation

    def encode(self, memory_BTd: Tensor, held_Bd: Tensor, pointers_B: Tensor) -> Tensor:
        """State (B, T, D) of the vectors of all tokens but the first, and of the scratchpad's vectors and pointers."""
        rows, L = self.rows, pointer_bits(self.tokens)
        x_BTD = torch.zeros(len(held_Bd), self.tokens, self.width, dtype=torch.float64)
        x_BTD[:, 1:, rows.slice("memory")] = memory_BTd[:, 1:]
        x_BTD[:, 0, rows.slice("held")] = held_Bd
        x_BTD[:, 0, rows.slice("pointer")] = to_bits(pointers_B, L)
        x_BTD[:, 1:, rows.slice("position")] = to_bits(torch.arange(1, self.tokens), L)
        x_BTD[:, 0, rows.slice("scratchpad")] = 1.0
        return x_BTD

    def expected(self, x_BTD: Tensor, pointers_B: Tensor) -> Tensor:
        """The state that the operation should leave behind."""
        after, batch = x_BTD.clone(), torch.arange(len(x_BTD))
        memory, held = self.rows.slice("memory"), self.rows.slice("held")
        if self.operation == "read":
            after[:, 0, held] = x_BTD[batch, pointers_B, memory]
        else:
            after[batch, pointers_B, memory] = x_BTD[:, 0, held]
        return after
