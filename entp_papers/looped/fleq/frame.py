"""What the function blocks of FLEQ have in common (Definition 1, eq. 10): where A, B and C are, and how they are read.

A matrix has a token per column. Tokens 0 to d - 1 hold A, the next d hold B, the next d hold C = f(A, B), in d rows of
the block's own; further tokens are the block's to use, and the last one, the rest token, holds 0 in every row that
changes. Tokens of a block are ``inside``; in the machine there are others, memory and commands, which are ``outside``.

Letters: d largest height and width of a matrix, S tokens inside, T tokens, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from entp_lib.validation import require
from entp_papers.looped.layers import Stack
from entp_papers.looped.plan import LayerPlan, Rows, Terms

FAR = 200.0  # a score that is lower by this much is not seen: e^-200 is lost beside anything
HEAT = 64.0  # λ of heads that choose; their scores differ by 1 at least
BOUND = 4096.0  # the G of gates: data must stay below. A power of 2, so that integers pass them exactly

ROLES = ("a", "b", "c")


class Frame:
    """The rows that all blocks share: inside, outside, the three roles, the rest token, the column within a matrix.

    ``tokens`` counts those inside: at least 3 d + 1. ``constants`` has (token, coordinate, value), never changed.
    """

    def __init__(self, d: int, tokens: int, rows: Rows | None = None):
        require(d >= 1, f"d = {d}: must be at least 1")
        require(tokens >= 3 * d + 1, f"tokens = {tokens}: must be at least 3 d + 1 = {3 * d + 1}")
        self.d, self.tokens, self.rows = d, tokens, rows or Rows()
        self.constants: list[tuple[int, int, float]] = []
        (self.inside,), (self.outside,) = self.rows.add("inside"), self.rows.add("outside")
        self.role = {name: self.rows.add(f"in_{name}")[0] for name in ROLES}
        (self.rest,) = self.rows.add("rest")
        self.slot = self.rows.add("slot", d)
        self.constants += [(t, self.inside, 1.0) for t in range(tokens)]
        self.constants.append((tokens - 1, self.rest, 1.0))
        for i, name in enumerate(ROLES):
            for j in range(d):
                self.constants += [(i * d + j, self.role[name], 1.0), (i * d + j, self.slot[j], 1.0)]

    def head(
        self,
        plan: LayerPlan,
        scores: list[tuple[Terms, Terms]],
        values: list[tuple[Terms, Terms]],
        heat: float = HEAT,
    ) -> None:
        """A head whose tokens inside do not see those outside, nor the other way round.

        The unseen scores are lowered, not the others raised: products need scores that are exact near 0.
        """
        apart = [({self.inside: -FAR / heat}, {self.outside: 1.0}), ({self.outside: -FAR / heat}, {self.inside: 1.0})]
        plan.head(scores + apart, values, heat)

    def others_rest(self, readers: Terms) -> tuple[Terms, Terms]:
        """The score that sends every token inside but the ``readers`` to the rest token."""
        query = {self.inside: 4.0}
        for i, w in readers.items():
            query[i] = query.get(i, 0.0) - 4.0 * w
        return query, {self.rest: 1.0}

    def gather(self, plan: LayerPlan, sources: Sequence[str], values: list[tuple[Terms, Terms]]) -> None:
        """C's tokens attend to the tokens of the same column in ``sources``, equally; all others to the rest token."""
        c = self.role["c"]
        by_role = ({c: 1.0}, {self.role[s]: 1.0 for s in sources})
        by_slot = [({i: 1.0}, {i: 1.0}) for i in self.slot]
        self.head(plan, [by_role, *by_slot, self.others_rest({c: 1.0})], values)

    def clear_c(self, plan: LayerPlan, data: range) -> None:
        """Forget what C's tokens held."""
        for i in data:
            plan.add_where({i: -1.0}, {i: 1.0}, [self.role["c"]], BOUND)


@dataclass
class Block:
    """A function as Transformer layers: its rows within a frame, its layers, and what it computes.

    ``data`` are the rows of A, B and C, ``temporary`` what it leaves behind, ``private`` all rows that it added.
    ``exact`` is the function on matrices (d, d), for the interpreter and the tests.
    """

    name: str
    frame: Frame
    data: range
    temporary: list[range]
    plans: list[LayerPlan]
    exact: Callable[[Tensor, Tensor], Tensor]
    private: int = 0
    constants: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def layers(self) -> int:
        return len(self.plans)

    @property
    def heads(self) -> int:
        return max(len(plan.heads) for plan in self.plans)


Maker = Callable[[Frame, str], Block]


class BlockStack(Stack):
    """One block by itself, as a Transformer of its own."""

    def __init__(self, maker: Maker, d: int, tokens: int = 0, dtype: torch.dtype = torch.float64):
        frame = Frame(d, max(tokens, tokens_needed(d)))
        block = maker(frame, "f")
        width = frame.rows.width
        super().__init__([plan.build(width, dtype) for plan in block.plans], width, frame.tokens)
        self.block, self.frame, self.dtype = block, frame, dtype

    def encode(self, a_Bdd: Tensor, b_Bdd: Tensor, c_Bdd: Tensor | None = None) -> Tensor:
        """State (B, S, D) of batches of matrices; ``c_Bdd`` is what C's tokens held before."""
        frame, block, d = self.frame, self.block, self.frame.d
        x_BTD = torch.zeros(len(a_Bdd), frame.tokens, self.width, dtype=self.dtype)
        for t, i, value in (*frame.constants, *block.constants):
            x_BTD[:, t, i] = value
        data = slice(block.data.start, block.data.stop)
        for k, matrix in enumerate((a_Bdd, b_Bdd, c_Bdd)):
            if matrix is not None:
                x_BTD[:, k * d : (k + 1) * d, data] = matrix.transpose(1, 2).to(self.dtype)
        return x_BTD

    def matrix(self, x_BTD: Tensor, role: str) -> Tensor:
        """A, B or C (B, d, d) of a state."""
        start, data = ROLES.index(role) * self.frame.d, self.block.data
        return x_BTD[:, start : start + self.frame.d, data.start : data.stop].transpose(1, 2)

    @torch.inference_mode()
    def apply(self, a_Bdd: Tensor, b_Bdd: Tensor) -> Tensor:
        """f(A, B), (B, d, d)."""
        return self.matrix(self(self.encode(a_Bdd, b_Bdd)), "c")


def tokens_needed(d: int) -> int:
    """Tokens inside that suffice for every block: three matrices, or the d² of a transpose, and the rest token."""
    return max(3 * d, d * d) + 1
