"""Functions learned in context (§7.2, appendix C.2): layout and curriculum of Garg et al. (2022).

    x_1  y_1  x_2  y_2  ..  x_N         y_i = f(x_i), with a fresh f for every prompt

Each y is coordinate 0 of a vector that is 0 elsewhere. It is predicted after its x from the pairs
before it, the first from none; the last y is not an input. ``points`` is N, the number of x's, so
that the last prediction has N - 1 examples. The paper has N = 40, and 100 for networks; for trees
it states neither N nor the depth. Garg et al. have 41 and 101, and depth 4. Prompts that differ
from those of training are our own: they resemble those of Garg et al., but results must not be
compared with theirs.

Letters: B prompts, N points, T = 2N - 1 tokens, d dimensions, h hidden units, i inner nodes of a
tree, l its leaves.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from entp_lib.tasks.base import Batch, Task, integers
from entp_lib.validation import check_intervals, check_types, one_of

MAX_DEPTH = 16  # a tree holds 2^depth leaves for each prompt
FIRST_DIMS = 5  # of a curriculum
# the paper's points, those at the start of a curriculum, and how many each stage adds
FEW = (40, 11, 2)
MANY = (100, 26, 5)
POINTS = {"linear": FEW, "sparse": FEW, "network": MANY, "tree": MANY}


def linear(task: "InContext", x_BNd: Tensor, generator: Generator) -> Tensor:
    """Return w·x with w ~ N(0, I), (B, N); if sparse, all but some coordinates of w are 0."""
    w_Bd = normal(generator, len(x_BNd), x_BNd.shape[2])
    if task.function == "sparse":
        random_Bd = torch.rand(
            len(x_BNd), task.used_dims, generator=generator, device=generator.device
        )
        kept = random_Bd.argsort(1)[:, : task.sparsity]
        w_Bd = w_Bd * torch.zeros_like(w_Bd).scatter_(1, kept, 1.0)
    return torch.einsum("bnd,bd->bn", x_BNd, w_Bd)


def network(task: "InContext", x_BNd: Tensor, generator: Generator) -> Tensor:
    """Return a two-layer ReLU network with weights from N(0, 1) and scaled output, (B, N)."""
    into_Bdh = normal(generator, len(x_BNd), x_BNd.shape[2], task.hidden)
    out_Bh = normal(generator, len(x_BNd), task.hidden)
    hidden_BNh = (x_BNd @ into_Bdh).relu()
    return torch.einsum("bnh,bh->bn", hidden_BNh, out_Bh) * math.sqrt(
        task.output_factor
    )


def tree(task: "InContext", x_BNd: Tensor, generator: Generator) -> Tensor:
    """Return the leaf values of a full binary tree, (B, N), drawn from N(0, 1).

    Each inner node has a random coordinate; if it is above 0 the path goes right. Nodes are
    numbered by level.
    """
    size, _, d = x_BNd.shape
    inner = 2**task.depth - 1
    splits_Bi = integers(generator, d, size, inner)
    leaves_Bl = normal(generator, size, inner + 1)
    node_BN = x_BNd.new_zeros(x_BNd.shape[:2], dtype=torch.long)
    for _ in range(task.depth):
        coordinate_BN1 = splits_Bi.gather(1, node_BN)[..., None]
        values_BN = x_BNd.gather(2, coordinate_BN1)[..., 0]
        node_BN = 2 * node_BN + 1 + (values_BN > 0)
    return leaves_Bl.gather(1, node_BN - inner)


FUNCTIONS = {"linear": linear, "sparse": linear, "network": network, "tree": tree}


@dataclass(frozen=True)
class InContext(Task):
    """Prompts of ``points`` pairs of a random function of ``dims`` numbers, x ~ N(0, I).

    ``points``: 0 for the paper's number. ``output_scale``: "none" for a network without scale, as
    in the paper's text; "garg" for Garg et al.'s sqrt(2/h). ``noise``: standard deviation of
    Gaussian noise on every y; Garg et al. then rescale y, here ``normaliser`` includes the noise.
    ``prompts``: "scaled" multiplies x by ``factor`` (Garg et al.: x or y, by 1/3, 1/2, 2 or 3);
    "orthogonal" makes x's mutually orthogonal in blocks of d, of length sqrt(d) (Garg et al.: only
    the query is orthogonal to the others). ``curriculum_every`` > 0: training starts with 5
    dimensions and 11 points (linear, sparse) or 26, and adds one dimension and 2 or 5 points each
    time this many steps have passed. ``used_first``: number of nonzero coordinates of x, 0 for all;
    a curriculum sets it. Losses are squared errors, not divided by ``normaliser``.
    """

    function: str = "linear"
    dims: int = 20
    points: int = 0
    sparsity: int = 3
    hidden: int = 100
    depth: int = 4
    output_scale: Literal["garg", "none"] = "garg"
    noise: float = 0.0
    prompts: Literal["standard", "scaled", "orthogonal"] = "standard"
    factor: float = 2.0
    curriculum_every: int = 0
    used_first: int = 0

    continuous = True

    def __post_init__(self):
        check_types(self)
        one_of("function", self.function, FUNCTIONS)
        if self.points == 0:
            object.__setattr__(self, "points", POINTS[self.function][0])
        intervals = {
            "dims": "[1, inf)",
            "hidden": "[1, inf)",
            "points": "[1, inf)",
            "noise": "[0, inf)",
            "curriculum_every": "[0, inf)",
            "depth": f"[1, {MAX_DEPTH}]",
            "factor": "(0, inf)",
            "used_first": f"[0, {self.dims}]",
        }
        check_intervals(self, intervals)
        if self.function == "sparse":
            at_start = FIRST_DIMS if self.curriculum_every else self.used_dims
            check_intervals(self, {"sparsity": f"[1, {min(self.used_dims, at_start)}]"})

    @property
    def input_dim(self) -> int:
        return self.dims

    @property
    def length(self) -> int:
        return 2 * self.points - 1

    @property
    def used_dims(self) -> int:
        return self.used_first or self.dims

    @property
    def output_factor(self) -> float:
        """Factor of the square of a network's output."""
        return 2 / self.hidden if self.output_scale == "garg" else 1.0

    @property
    def normaliser(self) -> float:
        """E[y²]; plots divide errors by it, so that predicting 0 scores 1 for all prompts.

        It is d for linear functions and scaled networks (d·h/2 for unscaled ones), the sparsity for
        sparse functions and 1 for trees; times the square of the factor on x, except for trees;
        plus the variance of the noise.
        """
        variance = {
            "linear": self.used_dims,
            "sparse": self.sparsity,
            # a ReLU keeps half of E[(w·x)²] = d
            "network": self.used_dims * self.hidden / 2 * self.output_factor,
            "tree": 1.0,
        }[self.function]
        is_stretched = self.prompts == "scaled" and self.function != "tree"
        stretch = self.factor if is_stretched else 1.0
        return variance * stretch**2 + self.noise**2

    def at_step(self, step: int) -> "InContext":
        """Return the task at a step's stage of the curriculum: fewer points and used dimensions."""
        if self.curriculum_every == 0:
            return self
        stage = (step - 1) // self.curriculum_every
        _, first, more = POINTS[self.function]
        return replace(
            self,
            points=min(self.points, first + more * stage),
            used_first=min(self.used_dims, FIRST_DIMS + stage),
        )

    def reported_apart(self) -> dict[str, Task]:
        """Return prompts of other distributions: scaled, orthogonal and, if linear, noisy.

        The noise has a twentieth of y's variance, so that its standard deviation is 1 with 20
        dimensions, as in Garg et al.
        """
        found: dict[str, Task] = {
            "scaled": replace(self, prompts="scaled"),
            "orthogonal": replace(self, prompts="orthogonal"),
        }
        if self.function == "linear":
            found["noisy"] = replace(self, noise=math.sqrt(self.used_dims / 20))
        return found

    def pairs(self, generator: Generator, size: int) -> tuple[Tensor, Tensor]:
        """Return x (size, N, d) and y (size, N), with a fresh function for each prompt.

        Orthogonal x's are orthogonal only within a block of d.
        """
        n = self.points
        d = self.used_dims
        if self.prompts == "orthogonal":
            square = normal(generator, size, -(-n // d), d, d)
            rows, upper = torch.linalg.qr(square)
            signs = upper.diagonal(dim1=-2, dim2=-1).sign()
            # without signs the directions are not uniform
            rows = rows * signs[..., None, :]
            x_BNd = rows.reshape(size, -1, d)[:, :n] * math.sqrt(d)
        else:
            x_BNd = normal(generator, size, n, d)
            if self.prompts == "scaled":
                x_BNd = x_BNd * self.factor
        x_BNd = torch.nn.functional.pad(x_BNd, (0, self.dims - d))
        y_BN = FUNCTIONS[self.function](self, x_BNd, generator)
        if self.noise:
            y_BN = y_BN + self.noise * normal(generator, size, n)
        return x_BNd, y_BN

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        x_BNd, y_BN = self.pairs(generator, size)
        inputs_BTd = x_BNd.new_zeros(size, 2 * self.points, self.dims)
        inputs_BTd[:, ::2] = x_BNd
        inputs_BTd[:, 1::2, 0] = y_BN
        targets_BT = y_BN.new_zeros(size, self.length)
        targets_BT[:, ::2] = y_BN
        scored_T = torch.arange(self.length, device=y_BN.device) % 2 == 0
        prompts_B = y_BN.new_ones(size, dtype=torch.long)
        return Batch(
            inputs_BTd[:, :-1], targets_BT, scored_T.expand(size, -1), prompts_B
        )


def normal(generator: Generator, *shape: int) -> Tensor:
    """Draw standard normal numbers on the generator's device."""
    return torch.randn(*shape, generator=generator, device=generator.device)
