"""Causal attention by full attention with longer queries and keys (§4.3, Finding 1).

Extra entries u_i of queries and w_j of keys add C <u_i, w_j> to the scores: 0 for j <= i, about -C
for j > i. The paper takes u_i = a_i and w_j = -(a_1 + ... + a_{j-1}) with orthonormal a_i, which is
n extra entries, and says that, by Johnson and Lindenstrauss, O(log n) suffice with a nearly
orthogonal basis.

That does not follow. A key is a sum of up to n - 1 vectors, so the errors of the inner products add
up to about sqrt(n log n / d): d must grow like n log n, beyond the exact basis, and like 1/error².
What holds:

- *exact*: n - 1 entries are necessary and sufficient, because a matrix that is 0 up to the diagonal
  and nowhere 0 just above it has rank n - 1. (n - 2 if the visible scores may be any constant per
  query, which softmax drops.)
- *dyadic*: j > i if and only if there is a level of the binary tree at which they part, i to the
  left and j to the right. A key is then a sum of log2 n vectors: d grows like (log n)^3, and still
  like 1/error².
- *geometric*: hidden scores may fall without bound. u_i = B^-i and w_j = -B^(j - 1) make a mask
  with error 1/B in one entry. The price is numeric range: numbers up to B^(n/2) once centred. With
  d entries, each serves n / d positions.

Letters: n tokens, d extra entries, D width; C is ``constant``.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import gammaincinv
from torch import Generator, Tensor

from entp_lab.studies import Study, gaussians, largest, seeded

WIDTH = 8  # of queries and keys before entries are appended
RANGE = 1000  # binary exponents that a geometric mask may use on either side; float64 ends at 1023


class Pair(NamedTuple):
    """Entries appended to queries and to keys at C = 1, both (n, d)."""

    queries_nd: Tensor
    keys_nd: Tensor


Basis = Tensor | Pair  # a tensor (n, d) stands for the paper's layout


def augmentation(basis: Basis, constant: float) -> tuple[Tensor, Tensor]:
    """Return entries (n, d) to append to queries and keys, which add about -C [i < j] to scores.

    A tensor's rows are the a_i: query i gets a_i, key i gets -C (a_1 + ... + a_{i-1}).
    """
    if isinstance(basis, Pair):
        return basis.queries_nd, constant * basis.keys_nd
    return basis, -constant * (basis.cumsum(0) - basis)


def hidden(n: int) -> Tensor:
    """Return a mask (n, n) that is true where a key lies after the query."""
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def score_error(basis: Basis) -> float:
    """Return the largest error of the added scores s at C = 1.

    The error is |s| for a visible key and 1 + s for a hidden one, whose score may be lower.
    """
    extra_q_nd, extra_k_nd = augmentation(basis, 1.0)
    s_nn = extra_q_nd @ extra_k_nd.T
    return max(0.0, float(torch.where(hidden(len(s_nn)), 1 + s_nn, s_nn.abs()).max()))


def mask_error(basis: Basis, constant: float, seed: int = 0) -> float:
    """Return the largest output error of full attention with the mask's entries, against causal.

    There is one head without scaling (A.1). The error is the largest over four draws of q and k
    (normal, scores of variance 1) and v in [-1, 1].
    """
    extra_q_nd, extra_k_nd = augmentation(basis, constant)
    n = len(extra_q_nd)
    generator = seeded(seed)
    worst = 0.0
    for _ in range(4):
        q_nD, k_nD = gaussians(generator, 2, n, WIDTH)
        q_nD = q_nD / WIDTH**0.5
        v_nD = 2 * torch.rand(n, WIDTH, generator=generator, dtype=torch.float64) - 1
        longer_nn = torch.cat([q_nD, extra_q_nd], 1) @ torch.cat([k_nD, extra_k_nd], 1).T
        masked_nn = (q_nD @ k_nD.T).masked_fill(hidden(n), -torch.inf)
        error_nD = longer_nn.softmax(-1) @ v_nD - masked_nn.softmax(-1) @ v_nD
        worst = max(worst, largest(error_nD))
    return worst


def exact_basis(n: int) -> Tensor:
    """Return the identity, (n, n): the paper's example. The last column is 0 in every key and could
    be left out.
    """
    return torch.eye(n, dtype=torch.float64)


def random_basis(n: int, d: int, generator: Generator) -> Tensor:
    """Draw n random unit vectors, (n, d), orthogonal up to about sqrt(log n / d).

    This is the basis of Johnson and Lindenstrauss. If d > n, the vectors are drawn in coordinates
    of their span, (n, n): their inner products have the same distribution, at a cost that does not
    grow with d.
    """
    a_nd = gaussians(generator, n, min(n, d))
    if d > n:
        # Bartlett: a Gaussian (n, d) matrix is a triangular one times a rotation, its diagonal chi
        # with d, d - 1, ...
        uniform_n = torch.rand(n, generator=generator, dtype=torch.float64)
        chi_n = np.sqrt(2 * gammaincinv((d - np.arange(n)) / 2, uniform_n.numpy()))
        a_nd = a_nd.tril(-1) + torch.from_numpy(chi_n).diag()
    return a_nd / a_nd.norm(dim=1, keepdim=True)


def threshold_basis(n: int, d: int) -> Pair:
    """Cut the matrix -[i < j] to rank d by its singular values: the closest in the spectral norm,
    not by entry.
    """
    u, s, v = torch.linalg.svd(-hidden(n).double())
    root = s[:d].sqrt()
    return Pair(u[:, :d] * root, v[:d].T * root)


def dyadic_basis(n: int, d: int, generator: Generator) -> Pair:
    """Return -[i < j] as a sum over the levels of a binary tree, with a random vector per node.

    At a level, query i carries its node's unit vector if its next bit is 0; key j carries minus its
    node's if its next bit is 1. The dimensions are shared equally between the levels. ValueError
    for fewer dimensions than levels.
    """
    levels = max(1, (n - 1).bit_length())
    if d < levels:
        raise ValueError(f"d = {d}: must be at least the {levels} levels of {n} tokens")
    i_n = torch.arange(n)
    queries = []
    keys = []
    for level in range(levels):
        nodes_n = i_n >> (levels - level)
        bit_n = (i_n >> (levels - level - 1)) & 1
        vectors = random_basis(int(nodes_n[-1]) + 1, d // levels + (level < d % levels), generator)
        queries.append(vectors[nodes_n] * (1 - bit_n)[:, None])
        keys.append(-vectors[nodes_n] * bit_n[:, None])
    return Pair(torch.cat(queries, 1), torch.cat(keys, 1))


def longest_block(error: float) -> int:
    """Return how many positions one entry of a geometric mask serves in float64 at this error."""
    return math.floor(2 * RANGE / -math.log2(error)) - 1


def geometric_basis(n: int, d: int, error: float) -> Pair:
    """Return a mask with score error ``error`` whose hidden scores fall without bound: -B^(j - i -
    1) with B = 1/error.

    Each dimension serves the keys of a block of ceil(n / d) positions. ValueError where float64
    lacks the range for it.
    """
    block = -(-n // d)
    bits = -math.log2(error)
    if block > longest_block(error):
        raise ValueError(
            f"{block} positions per dimension at error {error:g}: float64 has the range for fewer"
        )
    i_n = torch.arange(n, dtype=torch.float64)
    start_d = block * torch.arange(d, dtype=torch.float64)
    middle_d = start_d + block / 2
    # a query before the block hides all of it, as the one just before it does; a query after it
    # hides nothing
    at_nd = torch.maximum(i_n[:, None], start_d - 1)
    queries_nd = torch.where(at_nd < start_d + block, torch.exp2((middle_d - at_nd) * bits), 0.0)
    own_nd = (i_n[:, None] >= start_d) & (i_n[:, None] < start_d + block)
    keys_nd = torch.where(own_nd, -torch.exp2((i_n[:, None] - middle_d - 1) * bits), 0.0)
    return Pair(queries_nd, keys_nd)


# (n, d, error, seed) -> a mask with d dimensions
KINDS: dict[str, Callable[[int, int, float, int], Basis]] = {
    "exact": lambda n, d, error, seed: exact_basis(n)[:, :d],
    "random": lambda n, d, error, seed: random_basis(n, d, seeded(seed)),
    "dyadic": lambda n, d, error, seed: dyadic_basis(n, d, seeded(seed)),
    "threshold": lambda n, d, error, seed: threshold_basis(n, d),
    "geometric": lambda n, d, error, seed: geometric_basis(n, d, error),
}
DRAWN = ("random", "dyadic")


def dimensions_needed(kind: str, n: int, error: float) -> int:
    """Return the smallest d at which a mask's ``score_error`` is at most ``error``.

    For random masks it is the mean error over eight seeds. The search doubles d, then bisects, to
    one dimension or, for random masks, to 5 %. ``error`` must be below 1/2; at 1/2 a mask need not
    hide anything.
    """
    seeds = range(8 if kind in DRAWN else 1)

    def enough(d: int) -> bool:
        try:
            return sum(score_error(KINDS[kind](n, d, error, s)) for s in seeds) / len(
                seeds
            ) <= error * (1 + 1e-9)
        except ValueError:  # too few dimensions for the construction
            return False

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > (max(1, low // 20) if kind in DRAWN else 1):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def dimension_table(lengths: Sequence[int], tolerance: float) -> Study:
    """Return the dimensions needed by length and kind, at C = 1; random masks over eight seeds.

    Metrics: by kind the exponent of n (log-log least squares over all lengths). Curves: "n" and one
    list per kind.
    """
    curves = {"n": list(lengths)}
    curves |= {kind: [dimensions_needed(kind, n, tolerance) for n in lengths] for kind in KINDS}
    x, *logs = torch.tensor(list(curves.values()), dtype=torch.float64).log()
    centred = x - x.mean()
    slopes = {
        f"exponent_{k}": float(centred @ y / (centred @ centred))
        for k, y in zip(KINDS, logs, strict=True)
    }
    return slopes, curves
