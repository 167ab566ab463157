"""Matrix products by a softmax that is nearly linear (Lemma 7): 2 layers, 1 head. Our construction (see below).

For scores δ s_i, small, beside one score of C, large, softmax weighs token i with about e^-C (1 + δ s_i). With values
(e^C / δ) e_i the mean is s_i + 1/δ: 1/δ is subtracted, which the paper's [x + ε, *] leaves out. The error is

    δ s² / 2 (the softmax is not linear) + u / δ (rounding, u the machine epsilon) + n s e^-C

so that it is least near δ = √u. Two heads, δ and -δ, cancel the first term and leave δ² s³ / 6.
"""

import math

from torch import Tensor

from entp_lib.validation import one_of, require
from entp_papers.looped.fleq.frame import BOUND, Block, Frame, Maker
from entp_papers.looped.plan import LayerPlan

DELTA, SINK = 1e-7, 50.0


def product_block(
    left: str = "a", right: str = "b", delta: float = DELTA, sink: float = SINK, symmetric: bool = False
) -> Maker:
    """left^T right, each of them ``a`` or ``b`` (Lemma 7 and the three products that follow from it).

    ``delta`` is δ, ``sink`` is C; ``symmetric`` takes two heads. Raises ConfigError for other sides, δ or C below 0.
    """
    for side, value in (("left", left), ("right", right)):
        one_of(side, value, ("a", "b"))
    require(delta > 0, f"delta = {delta}: must be above 0")
    require(sink > 0, f"sink = {sink}: must be above 0")

    def exact(a: Tensor, b: Tensor) -> Tensor:
        sides = {"a": a, "b": b}
        return sides[left].transpose(-1, -2) @ sides[right]

    def make(frame: Frame, name: str) -> Block:
        data, found, got, unit = (frame.rows.add(f"{name}.{p}", frame.d) for p in ("data", "found", "got", "unit"))
        first, second = LayerPlan(f"{name}: products of columns"), LayerPlan(f"{name}: copy them to C")
        to_sink = ({frame.inside: sink}, {frame.rest: 1.0})  # the rest token holds no data: its score is C exactly
        for sign in (1.0, -1.0) if symmetric else (1.0,):
            scores = [({i: sign * delta}, {i: 1.0}) for i in data]
            weight = sign * math.exp(sink) / delta / (2 if symmetric else 1)
            frame.head(
                first, [*scores, to_sink], [({u: weight}, {f: 1.0}) for u, f in zip(unit, found, strict=True)], 1.0
            )
        if not symmetric:
            first.unit({frame.inside: 1.0}, dict.fromkeys(found, -1 / delta))
        frame.clear_c(first, data)

        c = frame.role["c"]
        frame.gather(second, (right,), [({f: 1.0}, {g: 1.0}) for f, g in zip(found, got, strict=True)])
        for x, g in zip(data, got, strict=True):
            second.add_where({g: 1.0}, {x: 1.0}, [c], BOUND)
        second.clear(found)
        second.clear(got)
        block = Block(name, frame, data, [found, got], [first, second], exact, 4 * frame.d)
        start = "ab".index(left) * frame.d
        block.constants = [(start + i, unit[i], 1.0) for i in range(frame.d)]
        return block

    return make
