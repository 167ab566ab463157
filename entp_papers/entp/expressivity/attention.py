"""Encoders and decoders compute different causal functions (§4, theorems 4.1 and 4.2, appendix A.1
to A.6).

The model is that of appendix A: one head, keys as wide as the tokens, skip connections, no
LayerNorm, no scaling of scores. Its causal model is T_f(x)_t = f(x_1 ... x_t)_t. The proofs are
turned into programs: given any encoder (or decoder), the refuters return a sequence on which it
fails to compute the theorem's function, and by how much at least.

Both proofs end alike: the candidate has equal outputs on two inputs on which the function differs
by some distance, so on one of them the candidate is off by at least half of it. In theorem 4.1 the
bound is 9/8 |p1 - p2| if p1 != p2; it vanishes as the positions approach each other, so the theorem
says nothing about approximation.

A candidate for the refuters is any object with ``encode(x_TD)``, which adds the positions to the
tokens, and with ``positions_TD``; if these are None, it needs a ``width``. Everything is in fp64.

Letters: T tokens, D width, L layers.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from entp_lab.studies import gaussians, largest, seeded


class AttentionStack(nn.Module):
    """The bare Transformer of appendix A.1: per layer x + attention(x), then x + MLP(x).

    Weights are N(0, 1/D) from ``seed``. The MLP has one hidden ReLU layer of ``mlp_width`` units; 0
    makes it the zero function. ``skip`` = False leaves out the skip connections, as in appendix
    A.4. ``positions_TD``: (T, width).
    """

    def __init__(
        self,
        width: int,
        n_layers: int,
        *,
        causal: bool,
        positions_TD: Tensor | None = None,
        mlp_width: int = 0,
        skip: bool = True,
        seed: int = 0,
    ):
        super().__init__()
        self.width = width
        self.n_layers = n_layers
        self.causal = causal
        self.skip = skip
        self.positions_TD = None if positions_TD is None else nn.Parameter(positions_TD.detach())
        generator = seeded(seed)

        def weights(out: int, fan_in: int) -> nn.Parameter:
            w = gaussians(generator, n_layers, out, fan_in)
            return nn.Parameter(w / fan_in**0.5)

        self.w_q_LDD, self.w_k_LDD, self.w_v_LDD = (weights(width, width) for _ in range(3))
        if mlp_width:
            self.mlp_in_LFD = weights(mlp_width, width)
            self.mlp_out_LDF = weights(width, mlp_width)
        else:
            self.mlp_in_LFD = None

    def encode(self, x_TD: Tensor) -> Tensor:
        """Return outputs (T, D) of one sequence (T, D)."""
        if self.positions_TD is not None:
            x_TD = x_TD + self.positions_TD[: len(x_TD)]
        for layer in range(self.n_layers):
            x_TD = self.joined(x_TD, self.attend(layer, x_TD))
            if self.mlp_in_LFD is not None:
                hidden_TF = torch.relu(x_TD @ self.mlp_in_LFD[layer].T)
                x_TD = self.joined(x_TD, hidden_TF @ self.mlp_out_LDF[layer].T)
        return x_TD

    def attend(self, layer: int, x_TD: Tensor) -> Tensor:
        q_TD, k_TD, v_TD = (x_TD @ w[layer].T for w in (self.w_q_LDD, self.w_k_LDD, self.w_v_LDD))
        scores_TT = q_TD @ k_TD.T
        if self.causal:
            future_TT = torch.ones_like(scores_TT, dtype=torch.bool).triu(1)
            scores_TT = scores_TT.masked_fill(future_TT, -torch.inf)
        return scores_TT.softmax(-1) @ v_TD

    def joined(self, x_TD: Tensor, update_TD: Tensor) -> Tensor:
        return x_TD + update_TD if self.skip else update_TD


def causal_model(model: Any, x_TD: Tensor) -> Tensor:
    """Return T_f(x), (T, D), by definition (§3, A.1): at t, the last output of f on t tokens."""
    return torch.stack([model.encode(x_TD[:t])[-1] for t in range(1, len(x_TD) + 1)])


@torch.no_grad()
def theorem_4_1_decoder(width: int) -> AttentionStack:
    """Return the decoder without positions that no encoder computes (A.5): uniform attention with
    W_V = I, twice.
    """
    model = AttentionStack(width, 2, causal=True)
    model.w_q_LDD[:] = model.w_k_LDD[:] = 0.0
    model.w_v_LDD[:] = torch.eye(width, dtype=torch.float64)
    return model


@torch.no_grad()
def theorem_4_2_encoder(width: int) -> AttentionStack:
    """Return the encoder without positions that no decoder with p1 != p2 computes (A.6): W_Q = W_K
    = W_V = I, twice.
    """
    model = theorem_4_1_decoder(width)
    model.causal = False
    model.w_q_LDD[:] = model.w_k_LDD[:] = torch.eye(width, dtype=torch.float64)
    return model


def theorem_4_1_rows(tokens: int) -> ndarray:
    """Return the exact coefficients of x_1 ... x_T in each output of theorem 4.1's decoder (D = 1).

    Per layer h_t becomes h_t + mean(h_1 ... h_t). The first rows are (4), (7, 9)/4 and (23, 17,
    32)/18; each sums to 4. They are fractions, (T, T).
    """
    rows_TT = np.eye(tokens, dtype=object)
    counts_T1 = np.array([[Fraction(t)] for t in range(1, tokens + 1)])
    for _ in range(2):
        rows_TT = rows_TT + rows_TT.cumsum(0) / counts_T1
    return rows_TT


class Refutation(NamedTuple):
    """A sequence on which a model's causal model is not the theorem's function.

    ``difference`` is the largest entry of the difference of the two outputs at the last position of
    ``inputs_TD``; ``guaranteed`` is the proof's lower bound on it, up to rounding. ``case`` names
    the argument.
    """

    inputs_TD: Tensor
    difference: float
    case: str
    guaranteed: float


def refute_encoder(encoder: Any) -> Refutation:
    """Find a sequence on which T_E is not the decoder of theorem 4.1.

    It exists for any encoder without positions or with added ones. ValueError for models that the
    proof does not cover: with fewer than 3 positions, or not attending to all tokens alike.
    """
    p_TD, width = positions(encoder, 3)
    if p_TD is None or torch.equal(p_TD[0], p_TD[1]):
        unit_D = torch.eye(width, dtype=torch.float64)[0]
        pair = (torch.stack([unit_D, -unit_D, unit_D]), torch.stack([-unit_D, unit_D, unit_D]))
        case = "p1 = p2: the third output does not see tokens 1 and 2 change places"
    else:
        # with y1 + p1 = y2 + p2 the difference 4 y1 - (7 y1 + 9 y2)/4 is 9/4 (p2 - p1)
        y_TD = p_TD[:1] - p_TD[:2]
        pair = (y_TD[:1], y_TD)
        case = "p1 != p2: y1 + p1 = y2 + p2, and output 1 of (y1) is output 2 of (y1, y2)"
    return contradiction(encoder, theorem_4_1_decoder(width), pair, case)


def refute_decoder(decoder: Any) -> Refutation:
    """Find a sequence on which T_D is not the encoder of theorem 4.2, for decoders with p1 != p2.

    The only consequence of causality that the proof uses is T_D = D (A.2); the same sequence
    refutes encoders with p1 != p2. ValueError for models that the proof does not cover, including
    those with p1 = p2 or without positions.
    """
    p_TD, width = positions(decoder, 2)
    if p_TD is None or torch.equal(p_TD[0], p_TD[1]):
        what = "no positions" if p_TD is None else "p1 = p2"
        raise ValueError(
            f"the model has {what}: theorem 4.2 assumes p1 != p2 and says nothing about it"
        )
    x_TD = p_TD[:1] - p_TD[:2]
    case = "p1 != p2: x1 + p1 = x2 + p2, so outputs 1 and 2 are equal"
    return contradiction(decoder, theorem_4_2_encoder(width), (x_TD[:1], x_TD), case)


@torch.no_grad()
def contradiction(model: Any, reference: Any, pair: tuple[Tensor, Tensor], case: str) -> Refutation:
    """Return the refutation by the one of two inputs on which ``model`` is further off.

    Outputs are compared with those of ``reference``. ValueError if the last outputs of ``model`` on
    the two inputs are not equal, or not finite.
    """
    theirs, ours = ([m.encode(x_TD)[-1] for x_TD in pair] for m in (model, reference))
    if not all(y_D.isfinite().all() for y_D in theirs):
        raise ValueError("the model's outputs are not finite: nothing can be compared")
    rounding = torch.finfo(ours[0].dtype).eps ** 0.5 * (1 + largest(theirs[0]))
    if largest(*theirs) > rounding:
        raise ValueError(f"the proof does not cover this model, of which this is not true: {case}")
    found = [
        Refutation(x_TD, largest(a_D, b_D), case, largest(*ours) / 2)
        for x_TD, a_D, b_D in zip(pair, theirs, ours, strict=True)
    ]
    return max(found, key=lambda refutation: refutation.difference)


def positions(model: Any, at_least: int) -> tuple[Tensor | None, int]:
    """Return the model's positions and width; ValueError for fewer positions than a proof uses."""
    p_TD = model.positions_TD
    if p_TD is None:
        return None, model.width
    if p_TD.dim() != 2 or len(p_TD) < at_least:
        shape = f"{tuple(p_TD.shape)}: must be (T, width) with T at least {at_least}"
        raise ValueError(f"positions_TD of {type(model).__name__} is {shape}")
    return p_TD.detach(), p_TD.shape[1]


def two_layer_example(stack: AttentionStack, x_TD: Tensor) -> list[Tensor]:
    """Compute two layers by the formulas of appendix A.4: outputs (2, D) after each layer.

    There are no skip connections and no MLPs.
    """
    x1, x2, found = *x_TD, []
    for q, k, v in zip(stack.w_q_LDD, stack.w_k_LDD, stack.w_v_LDD, strict=True):
        # e^s2 / (e^s1 + e^s2) as a sigmoid: the printed quotient overflows for large scores
        shares = [torch.sigmoid((q @ xi) @ (k @ x2) - (q @ xi) @ (k @ x1)) for xi in (x1, x2)]
        if stack.causal:
            shares[0] = 0.0
        x1, x2 = [(1 - share) * (v @ x1) + share * (v @ x2) for share in shares]
        found.append(torch.stack([x1, x2]))
    return found
