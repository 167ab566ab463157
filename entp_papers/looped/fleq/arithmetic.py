"""Blocks that are linear in their data: sum, difference, multiples, transpose, diagonal (Lemmas 6, 8, 9, Corollary 3).

The supplied text has the proofs of Lemma 8 only; the others are our constructions within the stated numbers of layers.
"""

from torch import Tensor

from entp_lib.validation import require
from entp_papers.looped.fleq.frame import BOUND, Block, Frame, Maker
from entp_papers.looped.plan import LayerPlan


def sum_block(sign: float = 1.0) -> Maker:
    """A + sign · B of whole matrices (Lemmas 8 and 9): 2 layers of the 3 that the paper allows, 1 head."""
    require(sign in (1.0, -1.0), f"sign = {sign}: must be 1 or -1")

    def make(frame: Frame, name: str) -> Block:
        data, signed = frame.rows.add(f"{name}.data", frame.d), frame.rows.add(f"{name}.signed", frame.d)
        first, second = LayerPlan(f"{name}: give B its sign"), LayerPlan(f"{name}: add the columns of A and B")
        frame.clear_c(first, data)
        for x, y in zip(data, signed, strict=True):
            first.add({x: 1.0}, {y: 1.0})
            if sign < 0:
                first.add_where({x: -2.0}, {y: 1.0}, [frame.role["b"]], 2 * BOUND)
        frame.gather(second, ("a", "b"), [({y: 2.0}, {x: 1.0}) for x, y in zip(data, signed, strict=True)])
        second.clear(signed)
        return Block(name, frame, data, [signed], [first, second], lambda a, b: a + sign * b, 2 * frame.d)

    return make


def multiple_block(factor: float) -> Maker:
    """factor · A (Corollary 3 for 0.01): 2 layers, 1 head."""

    def make(frame: Frame, name: str) -> Block:
        data, scaled = frame.rows.add(f"{name}.data", frame.d), frame.rows.add(f"{name}.scaled", frame.d)
        first, second = LayerPlan(f"{name}: multiply A"), LayerPlan(f"{name}: copy it to C")
        frame.clear_c(first, data)
        for x, y in zip(data, scaled, strict=True):
            first.add({x: factor}, {y: 1.0})
        frame.gather(second, ("a",), [({y: 1.0}, {x: 1.0}) for x, y in zip(data, scaled, strict=True)])
        second.clear(scaled)
        return Block(name, frame, data, [scaled], [first, second], lambda a, b: factor * a, 2 * frame.d)

    return make


def diagonal_block() -> Maker:
    """The diagonal matrix of A's first column: 2 layers, 1 head. With a product it multiplies entry by entry."""

    def make(frame: Frame, name: str) -> Block:
        data, read = frame.rows.add(f"{name}.data", frame.d), frame.rows.add(f"{name}.read", frame.d)
        (start,) = frame.rows.add(f"{name}.start")
        first, second = LayerPlan(f"{name}: forget C"), LayerPlan(f"{name}: read the column, keep a row per token")
        frame.clear_c(first, data)
        c = frame.role["c"]
        scores = [({c: 1.0}, {start: 1.0}), frame.others_rest({c: 1.0})]
        frame.head(second, scores, [({x: 1.0}, {y: 1.0}) for x, y in zip(data, read, strict=True)])
        for x, y, slot in zip(data, read, frame.slot, strict=True):
            second.add_where({y: 1.0}, {x: 1.0}, [c, slot], BOUND)
        second.clear(read)
        block = Block(name, frame, data, [read], [first, second], lambda a, b: a[..., 0].diag_embed(), 2 * frame.d + 1)
        block.constants = [(0, start, 1.0)]
        return block

    return make


def transpose_block() -> Maker:
    """A^T in 4 layers with 1 head (Lemma 6), over a grid of d² tokens: token k d + j is at row k, column j of it.

    One entry of the matrix per token of the grid, the grid turned over, its columns read together again.
    """

    def make(frame: Frame, name: str) -> Block:
        d, rows = frame.d, frame.rows
        require(frame.tokens > d * d, f"tokens = {frame.tokens}: a transpose needs d² + 1 = {d * d + 1}")
        data, column, spread = (rows.add(f"{name}.{part}", d) for part in ("data", "column", "spread"))
        (entry,), (moved,) = rows.add(f"{name}.entry"), rows.add(f"{name}.moved")
        across, down, of_a, of_c = (rows.add(f"{name}.{part}", d) for part in ("across", "down", "of_a", "of_c"))
        plans = [
            LayerPlan(f"{name}: {says}")
            for says in (
                "read column j of A at (k, j), keep its row k",
                "exchange (k, j) and (j, k)",
                "put the entry into row k",
                "read the tokens (·, j) into column j of C",
            )
        ]
        frame.head(
            plans[0],
            [({q: 1.0}, {k: 1.0}) for q, k in zip(across, of_a, strict=True)],
            [({x: 1.0}, {y: 1.0}) for x, y in zip(data, column, strict=True)],
        )
        frame.clear_c(plans[0], data)
        for y, gate in zip(column, down, strict=True):
            plans[0].add_where({y: 1.0}, {entry: 1.0}, [gate], BOUND)
        plans[0].clear(column)

        turned = [({q: 1.0}, {k: 1.0}) for q, k in zip((*across, *down), (*down, *across), strict=True)]
        frame.head(plans[1], turned, [({entry: 1.0}, {moved: 1.0})])
        plans[1].clear([entry])

        for y, gate in zip(spread, down, strict=True):
            plans[2].add_where({moved: 1.0}, {y: 1.0}, [gate], BOUND)
        plans[2].clear([moved])

        together = [({q: 1.0}, {k: 1.0}) for q, k in zip(of_c, across, strict=True)]
        frame.head(
            plans[3],
            [*together, frame.others_rest({frame.role["c"]: 1.0})],
            [({y: float(d)}, {x: 1.0}) for x, y in zip(data, spread, strict=True)],
        )
        plans[3].clear(spread)

        def exact(a: Tensor, b: Tensor) -> Tensor:
            return a.transpose(-1, -2)

        temporary = [column, spread, range(entry, entry + 1), range(moved, moved + 1)]
        block = Block(name, frame, data, temporary, plans, exact, 7 * d + 2)
        for j in range(d):
            block.constants += [(j, of_a[j], 1.0), (2 * d + j, of_c[j], 1.0)]
            for k in range(d):
                block.constants += [(k * d + j, across[j], 1.0), (k * d + j, down[k], 1.0)]
        return block

    return make
