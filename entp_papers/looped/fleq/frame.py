"""Rows, tokens and contract that all function blocks of FLEQ share (Definition 1, eq. 10).

A matrix has a token per column. Tokens 0 to d - 1 hold A, the next d hold B, the next d hold C = f(A, B), in d rows of
the block's own; further tokens are the block's to use, and the last one, the rest token, holds 0 in every row that
changes. Tokens of a block are ``inside``; in the machine there are others, memory and commands, which are ``outside``.

Letters: B batch, d largest height and width of a matrix, S tokens inside, T tokens, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from entp_lib.experiments.studies import at_least, largest
from entp_lib.validation import require
from entp_papers.looped.layers import Stack
from entp_papers.looped.weights import LayerPlan, Rows, Terms, paired

FAR = 200.0  # a score that is lower by this much is not seen: e^-200 vanishes in any sum
HEAT = 64.0  # λ of heads that choose; their scores differ by 1 at least
BOUND = 4096.0  # the G of gates: data must stay below. A power of 2, so that integers pass them exactly
ROLES = ("a", "b", "c")


def tokens_needed(d: int) -> int:
    """Tokens inside that suffice for every block: three matrices, or the d² of a transpose, and the rest token."""
    return max(3 * d, d * d) + 1


class Frame:
    """The rows that all blocks share: inside, outside, the three roles, the rest token, the column within a matrix.

    ``tokens`` counts those inside: at least 3 d + 1. ``constants`` has (token, coordinate, value), never changed.
    """

    def __init__(self, d: int, tokens: int):
        at_least(1, d=d)
        require(tokens >= 3 * d + 1, f"tokens = {tokens}: must be at least 3 d + 1 = {3 * d + 1}")
        self.d, self.tokens, self.rows = d, tokens, Rows()
        (self.inside,), (self.outside,), *roles = self.rows.add(inside=1, outside=1, in_a=1, in_b=1, in_c=1)
        self.role = {name: row for name, (row,) in zip(ROLES, roles, strict=True)}
        (self.rest,), self.slot = self.rows.add(rest=1, slot=d)
        self.constants = [(t, self.inside, 1.0) for t in range(tokens)]
        self.constants.append((tokens - 1, self.rest, 1.0))
        for i, name in enumerate(ROLES):
            for j in range(d):
                self.constants += [(i * d + j, self.role[name], 1.0), (i * d + j, self.slot[j], 1.0)]

    def add(self, block: str, **sizes: int) -> list[range]:
        """Rows of a block's own, named after it."""
        return self.rows.add(**{f"{block}.{part}": size for part, size in sizes.items()})

    def head(
        self, plan: LayerPlan, scores: list[tuple[Terms, Terms]], values: list[tuple[Terms, Terms]], heat: float = HEAT
    ) -> None:
        """A head whose tokens inside do not see those outside, nor the other way round.

        The unseen scores are lowered, not the others raised: products need scores that are exact near 0.
        """
        apart = [({self.inside: -FAR / heat}, {self.outside: 1.0}), ({self.outside: -FAR / heat}, {self.inside: 1.0})]
        plan.head(scores + apart, values, heat)

    def others_rest(self, reader: int) -> tuple[Terms, Terms]:
        """The score that sends every token inside to the rest token, but those where the row ``reader`` is 1."""
        return {self.inside: 4.0, reader: -4.0}, {self.rest: 1.0}

    def read_columns(self, plan: LayerPlan, sources: Sequence[str], values: list[tuple[Terms, Terms]]) -> None:
        """C's tokens attend to the tokens of the same column in ``sources``, equally; all others to the rest token."""
        c = self.role["c"]
        by_role = ({c: 1.0}, {self.role[s]: 1.0 for s in sources})
        self.head(plan, [by_role, *paired(self.slot, self.slot), self.others_rest(c)], values)

    def clear_c(self, plan: LayerPlan, data: range) -> None:
        """Set C's tokens to 0."""
        for i in data:
            plan.add_where({i: -1.0}, {i: 1.0}, [self.role["c"]], BOUND)


@dataclass
class Block:
    """A function as Transformer layers within a frame.

    ``data`` are the rows of A, B and C, ``temporary`` those that must be 0 afterwards. ``exact`` is the function on
    matrices (..., d, d), for the interpreter and the tests. ``constants`` are as in ``Frame``.
    """

    data: range
    temporary: list[range]
    plans: list[LayerPlan]
    exact: Callable[[Tensor, Tensor], Tensor]
    constants: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def heads(self) -> int:
        """Of the layer that has most."""
        return max(len(plan.heads) for plan in self.plans)


Maker = Callable[[Frame, str], Block]


class BlockStack(Stack):
    """One block by itself, as a Transformer of its own."""

    def __init__(self, maker: Maker, d: int, dtype: torch.dtype = torch.float64):
        frame = Frame(d, tokens_needed(d))
        block = maker(frame, "f")
        width = frame.rows.width
        super().__init__([plan.build(width, dtype) for plan in block.plans], width, frame.tokens)
        self.block, self.frame, self.dtype = block, frame, dtype

    def encode(self, a_Bdd: Tensor, b_Bdd: Tensor, c_Bdd: Tensor | None = None) -> Tensor:
        """State (B, S, D) of batches of matrices; ``c_Bdd`` are the former contents of C's tokens."""
        frame, block, d = self.frame, self.block, self.frame.d
        x_BSD = torch.zeros(len(a_Bdd), frame.tokens, self.width, dtype=self.dtype)
        for t, i, value in (*frame.constants, *block.constants):
            x_BSD[:, t, i] = value
        for k, matrix in enumerate((a_Bdd, b_Bdd, c_Bdd)):
            if matrix is not None:
                x_BSD[:, k * d : (k + 1) * d, block.data.start : block.data.stop] = matrix.mT.to(self.dtype)
        return x_BSD

    def matrix(self, x_BSD: Tensor, role: str) -> Tensor:
        """A, B or C (B, d, d) of a state."""
        start, data = ROLES.index(role) * self.frame.d, self.block.data
        return x_BSD[:, start : start + self.frame.d, data.start : data.stop].mT

    @torch.inference_mode()
    def apply(self, a_Bdd: Tensor, b_Bdd: Tensor) -> Tensor:
        """f(A, B), (B, d, d)."""
        return self.matrix(self(self.encode(a_Bdd, b_Bdd)), "c")


def violations(maker: Maker, d: int, seed: int = 0) -> dict[str, float]:
    """The largest deviation from each term of Definition 1, by name, over random matrices.

    error: C from the exact function · inputs: A and B afterwards · previous: C for another content of C before ·
    left_behind: temporary rows afterwards · together: C of one pair alone and within the batch.
    """
    stack = BlockStack(maker, d)
    generator = torch.Generator().manual_seed(seed)
    a, b, before = torch.randn(3, 4, d, d, generator=generator, dtype=torch.float64)
    after = stack(stack.encode(a, b, before))
    c, again = stack.matrix(after, "c"), stack.apply(a, b)

    return {
        "error": largest(c, stack.block.exact(a, b)),
        "inputs": max(largest(stack.matrix(after, "a"), a), largest(stack.matrix(after, "b"), b)),
        "previous": largest(again, c),
        "left_behind": max(largest(after[..., r.start : r.stop]) for r in stack.block.temporary),
        "together": largest(stack.apply(a[:1], b[:1])[0], again[0]),
    }


def padding_error(maker: Maker, small: int, large: int, seed: int = 0) -> float:
    """Difference of f of matrices in a corner of larger ones from f of themselves, zeros around them included."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, 3, small, small, generator=generator, dtype=torch.float64)
    room = (0, large - small, 0, large - small)
    wide = BlockStack(maker, large).apply(pad(a, room), pad(b, room))
    return largest(wide, pad(BlockStack(maker, small).apply(a, b), room))
