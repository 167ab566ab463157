"""Training against theorems 4.1 and 4.2: an encoder learns the decoder's function, and vice versa.

Both proofs force an error on a line of the input plane, y1 + p1 = y2 + p2, that is x1 - x2 = p2 -
p1. There a candidate's first output on (x1) equals its second on (x1, x2), while the function's two
outputs differ. One of the candidate's outputs is off by half of that difference: by 9/8 |p1 - p2|
in theorem 4.1, by beta/2 |p1 - p2| in theorem 4.2. Training has two ways out: positions so far
apart that the line misses the trained box, or so near that the bound vanishes. With p1 = p2 theorem
4.1 forces 1/6 |x1 - x2| on the third output instead, which does not see tokens 1 and 2 change
places; theorem 4.2 says nothing.

Letters: B batch, T tokens, D width inside (inputs have width 1), L layers.
"""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Generator, Tensor, nn

from entp_lab.configs import Json
from entp_lab.studies import Study, at_least, descend, gaussians, seeded
from entp_lib.validation import one_of, require
from entp_papers.entp.expressivity import attention
from entp_papers.entp.expressivity.attention import AttentionStack

# By trained model: the function that it imitates, and the refuter that shows by theorem 4.1 or 4.2
# that it must fail.
DIRECTIONS = {
    "encoder": (attention.theorem_4_1_decoder, attention.refute_encoder),
    "decoder": (attention.theorem_4_2_encoder, attention.refute_decoder),
}
POINTS = 60  # the most points of a loss curve
REACH = 4.0  # the plane is shown from -REACH to REACH at GRID points a side
GRID = 41
WIDTH = 8  # of a candidate inside, which has two layers
BATCH = 128
TRIES = 4096  # sequences inside the box on which the error is measured


class Candidate(nn.Module):
    """An encoder or a decoder on real numbers: a stack with MLPs between two linear maps of x + p.

    The maps lead to ``WIDTH`` and back. The model is wider inside than the theorems' own (D = 1
    throughout), but the same proofs refute it: they use only that x_t and p_t enter as their sum.
    ``distance``: p_2 - p_1 of fixed positions; None: positions are drawn from a normal distribution
    and trained.
    """

    def __init__(self, causal: bool, distance: float | None, seed: int):
        super().__init__()
        normal = partial(gaussians, seeded(seed))
        p_TD = normal(3, 1)
        held_TD = torch.tensor([[-0.5], [0.5], [1.5]], dtype=torch.float64)
        p_TD = p_TD if distance is None else distance * held_TD
        self.positions_TD = nn.Parameter(p_TD, requires_grad=distance is None)
        drawn = normal(1, WIDTH), normal(WIDTH), normal(WIDTH, 1) / WIDTH
        self.w_in_1D, self.b_in_D, self.w_out_D1 = map(nn.Parameter, drawn)
        self.stack = AttentionStack(WIDTH, 2, causal=causal, mlp_width=4 * WIDTH, seed=seed)

    def encode(self, x_TD: Tensor) -> Tensor:
        """Return outputs (T, 1) of one sequence (T, 1)."""
        x_TD = x_TD + self.positions_TD[: len(x_TD)]
        return self.stack.encode(x_TD @ self.w_in_1D + self.b_in_D) @ self.w_out_D1


def causal_outputs(model, x_BT: Tensor) -> Tensor:
    """Return T_f of a batch of sequences of numbers, (B, T).

    A decoder takes one pass, because it is its own causal model.
    """
    encode = torch.vmap(model.encode)
    if getattr(model, "stack", model).causal:
        return encode(x_BT[:, :, None])[:, :, 0]
    return torch.stack(
        [encode(x_BT[:, :t, None])[:, -1, 0] for t in range(1, x_BT.shape[1] + 1)], 1
    )


def function_of(direction: str) -> AttentionStack:
    """Return the function that a candidate of this direction imitates: the other architecture's, at
    width 1.
    """
    one_of("direction", direction, DIRECTIONS)
    return DIRECTIONS[direction][0](1)


def boxes(batch: int, length: int, generator: Generator) -> Tensor:
    """Draw sequences (B, T) uniformly from [-1, 1]^T."""
    return 2 * torch.rand(batch, length, generator=generator, dtype=torch.float64) - 1


def train(
    model: Candidate, function: AttentionStack, length: int, steps: int, seed: int
) -> Iterator[float]:
    """Train with Adam, and yield the squared error before each of ``steps`` steps.

    The learning rate falls from 0.01 to 0 by a cosine.
    """
    generator = seeded(seed)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        x_BT = boxes(BATCH, length, generator)
        with torch.no_grad():
            y_BT = causal_outputs(function, x_BT)
        error = (causal_outputs(model, x_BT) - y_BT).square().mean()
        loss = descend(model, optimizer, [error])
        schedule.step()
        yield loss


@torch.no_grad()
def errors(model: Candidate, function: AttentionStack, x_BT: Tensor) -> Tensor:
    """Return |T_model - T_function| at every position, (B, T)."""
    return (causal_outputs(model, x_BT) - causal_outputs(function, x_BT)).abs()


def line(distance: float, reach: float, points: int) -> Tensor:
    """Return points (B, 2) with x1 - x2 = ``distance`` inside the square [-reach, reach]².

    There are none if the line misses the square.
    """
    low = max(-reach, distance - reach)
    high = min(reach, distance + reach)
    x1_B = torch.linspace(low, high, points if low <= high else 0, dtype=torch.float64)
    return torch.stack([x1_B, x1_B - distance], 1)


@torch.no_grad()
def forced_at(function: AttentionStack, x_BT: Tensor) -> Tensor:
    """Return the error (B,) that the proof forces at points (B, 2) of such a line."""
    y_BT = causal_outputs(function, x_BT)
    return (y_BT[:, 0] - y_BT[:, 1]).abs() / 2


def imitation_study(
    direction: str, length: int, steps: int, distance: float | None = None, seed: int = 0
) -> Study:
    """Train one candidate on sequences of ``length`` 2 or 3 from the box [-1, 1].

    Curves: "loss" (mean over the steps up to "step"), "axis" and "error" (the larger error of
    outputs 1 and 2, a row per x2), and along the line inside the plane "line_x1", "line_error" and
    "line_forced". Metrics: the largest error in the box before and after training and by position,
    the positions, the largest error that the line forces in the box, and the refuter's verdict.
    Raises ConfigError for another direction or length, or too few steps.
    """
    function = function_of(direction)
    require(length in (2, 3), f"length = {length}: must be 2 or 3")
    at_least(1, steps=steps)
    model = Candidate(direction == "decoder", distance, seed)
    box_BT = boxes(TRIES, length, seeded(10_000 + seed))
    before = float(errors(model, function, box_BT).max())
    losses = list(train(model, function, length, steps, seed))
    by_position = errors(model, function, box_BT).amax(0).tolist()
    p_T = model.positions_TD.detach().flatten()
    found = float(p_T[1] - p_T[0])
    metrics = {
        "positions": p_T.tolist(),
        "distance": found,
        "box_before": before,
        "box_error": max(by_position),
        "box_error_by_position": by_position,
        "first_two_error": max(by_position[:2]),
        "forced_in_box": float(max(forced_at(function, line(found, 1.0, 81)), default=0.0)),
        "refutation": refutation(direction, model),
    }
    window = math.ceil(steps / POINTS)
    chunks = [losses[i : i + window] for i in range(0, steps, window)]
    axis = torch.linspace(-REACH, REACH, GRID, dtype=torch.float64)
    plane_BT = torch.cartesian_prod(axis, axis).flip(1)  # rows by x2, within a row x1
    line_BT = line(found, REACH, GRID)
    curves = {
        "step": [min(steps, (i + 1) * window) for i in range(len(chunks))],
        "loss": [sum(chunk) / len(chunk) for chunk in chunks],
        "axis": axis.tolist(),
        "error": errors(model, function, plane_BT)
        .amax(1)
        .view(GRID, GRID)
        .round(decimals=4)
        .tolist(),
        "line_x1": line_BT[:, 0].round(decimals=4).tolist(),
        "line_error": errors(model, function, line_BT).amax(1).tolist(),
        "line_forced": forced_at(function, line_BT).tolist(),
    }
    return metrics, curves


def refutation(direction: str, model: Candidate) -> Json:
    """Return the refuter's verdict on a model; ``case`` says why where the proof does not
    cover it.
    """
    try:
        found = DIRECTIONS[direction][1](model)
    except ValueError as error:
        return {"refuted": False, "case": str(error)}
    return {
        "refuted": 0 < found.difference >= found.guaranteed * (1 - 1e-6),
        "case": found.case,
        "inputs": found.inputs_TD.flatten().tolist(),
        "difference": found.difference,
        "guaranteed": found.guaranteed,
    }
