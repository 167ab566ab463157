"""Checks of §4 and appendix A on many random models: equalities, refutations, masks by dimensions.

Nothing is trained here. Errors are in fp64 and, unless said otherwise, relative to 1 + the largest
entry compared.

Letters: T and n tokens, D width, L layers.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entp_lab.configs import Json
from entp_lab.studies import Study, at_least, columns, gaussians, largest, seeded
from entp_papers.entp.expressivity import attention, masking
from entp_papers.entp.expressivity.attention import AttentionStack, Refutation, causal_model
from entp_papers.entp.expressivity.imitation import DIRECTIONS, Candidate

TOKENS = 5
# A difference may fall short of the guaranteed one by this share, because the refuters' inputs are
# exact only up to 1e-16.
ROUNDING = 1e-7
TOLERANCE = 0.25  # allowed error in the scores of the masks whose dimensions are counted
MASKED = 1e6  # C of the exact mask: beyond it a hidden key's weight is 0 in fp64


def relative(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of ``a`` and ``b`` over 1 + the largest entry of ``b``."""
    return largest(a, b) / (1 + largest(b))


def equality_errors(seed: int) -> Json:
    """Return the errors of the equalities of appendices A.2 to A.5 on random models.

    ``a3_two_layers`` is a difference: with two layers, A.3 says that the outputs are not equal.
    """
    width = 1 + seed % 6
    stack = partial(AttentionStack, width, mlp_width=7, seed=seed)

    # A.2: a decoder is its own causal model.
    x_TD = gaussians(seed + 1, TOKENS, width)
    decoder = stack(1 + seed % 4, causal=True, positions_TD=gaussians(seed, TOKENS, width))
    found = {"a2_error": relative(causal_model(decoder, x_TD), decoder.encode(x_TD))}

    # A.3: with one layer, encoder and decoder of the same weights have the same outputs and
    # gradients.
    positions_TD, x_TD, weights_TD = (gaussians(3 * seed + i, TOKENS, width) for i in range(3))
    for layers, name in ((1, "a3_output_error"), (2, "a3_two_layers")):
        encoder, decoder = (
            stack(layers, causal=causal, positions_TD=positions_TD) for causal in (False, True)
        )
        outputs = causal_model(encoder, x_TD), decoder.encode(x_TD)
        found[name] = relative(*outputs)
        if layers == 1:
            for y_TD in outputs:
                (y_TD * weights_TD).sum().backward()
            weights = zip(encoder.parameters(), decoder.parameters(), strict=True)
            found["a3_gradient_error"] = max(relative(p.grad, q.grad) for p, q in weights)

    # A.4: the printed formulas of two layers are attention, for large scores too.
    x_TD = (1.0, 40.0)[seed % 2] * gaussians(seed, 2, width)
    found["a4_error"] = 0.0
    for causal in (True, False):
        model = AttentionStack(width, 2, causal=causal, skip=False, seed=seed)
        y_TD = x_TD
        for layer, printed_TD in enumerate(attention.two_layer_example(model, x_TD)):
            y_TD = model.attend(layer, y_TD)
            found["a4_error"] = max(found["a4_error"], relative(printed_TD, y_TD))

    # A.5: the decoder of theorem 4.1 has the outputs of exact arithmetic.
    x = [Fraction(int(v), 16) for v in torch.randint(-99, 99, (TOKENS,), generator=seeded(seed))]
    exact = attention.theorem_4_1_rows(TOKENS) @ x
    x_T1, y_T1 = torch.tensor(np.array([x, exact], dtype=float)[..., None])
    return found | {"rational_error": relative(attention.theorem_4_1_decoder(1).encode(x_T1), y_T1)}


def random_stack(
    seed: int, causal: bool, *, gap: float | None = None, layers: int = 3, mlp_width: int = 0
) -> AttentionStack:
    """Return a random model; ``gap``: the size of p1 - p2, None for no positions."""
    width = 1 + seed % 6
    p_TD = None
    if gap is not None:
        p_TD = gaussians(seed, TOKENS, width)
        p_TD[1] = p_TD[0] + gap * gaussians(seed + 1, width)
    return AttentionStack(
        width, layers, causal=causal, positions_TD=p_TD, mlp_width=mlp_width, seed=seed
    )


def remasked(seed: int, causal: bool) -> AttentionStack:
    """Return the theorem's own weights under the other mask; random positions where the theorem
    asks for them.
    """
    width = 1 + seed % 6
    model = (attention.theorem_4_2_encoder if causal else attention.theorem_4_1_decoder)(width)
    model.causal = causal
    if causal:
        model.positions_TD = torch.nn.Parameter(gaussians(seed, TOKENS, width))
    return model


STACKS = {
    "no positions": dict(),
    "p1 = p2": dict(gap=0.0),
    "p1 ≠ p2": dict(gap=1.0),
    "p1 ≠ p2, MLPs": dict(gap=1.0, mlp_width=16),
    "p1 ≠ p2 by about 0.001, MLPs": dict(gap=1e-3, mlp_width=16),
    "8 layers, MLPs": dict(gap=1.0, layers=8, mlp_width=16),
}


def kinds_of(causal: bool) -> dict[str, Callable[[int], Any]]:
    """Return by kind a function from a seed to a random model.

    Decoders are only those with p1 ≠ p2, which theorem 4.2 assumes.
    """
    stacks = {name: how for name, how in STACKS.items() if not causal or how.get("gap")}
    kinds = {name: partial(random_stack, causal=causal, **how) for name, how in stacks.items()}
    kinds["wider inside, biases, MLPs"] = partial(Candidate, causal, None)
    name = "the encoder's weights, masked" if causal else "the decoder's weights, no mask"
    kinds[name] = partial(remasked, causal=causal)
    return kinds


ENCODERS = kinds_of(causal=False)
DECODERS = kinds_of(causal=True)


def attempted(refute: Callable[[Any], Refutation], model: Any) -> Refutation | None:
    """Return the refutation, or None where the refuter says that the proof does not cover the
    model.
    """
    try:
        return refute(model)
    except ValueError:
        return None


def population(
    refute: Callable[[Any], Refutation], kinds: dict[str, Callable[[int], Any]], models: int
) -> list[Json]:
    """Return a row per kind of model: how many were tried and refuted, and the smallest difference.

    ``ratio`` is the smallest ratio of a difference to the guaranteed one. A model counts as refuted
    if its ratio is at least 1, up to rounding.
    """
    rows = []
    for kind, make in kinds.items():
        found = [
            r for r in (attempted(refute, make(seed)) for seed in range(models)) if r is not None
        ]
        ratios = [r.difference / r.guaranteed for r in found]
        rows.append(
            {
                "kind": kind,
                "models": models,
                "refuted": sum(ratio >= 1 - ROUNDING for ratio in ratios),
                "difference": min((r.difference for r in found), default=0.0),
                "ratio": min(ratios, default=0.0),
            }
        )
    return rows


@torch.no_grad()
def simulating_encoder(decoder: AttentionStack, n: int) -> AttentionStack:
    """Return the encoder of §4.3, which computes a decoder's outputs on up to n tokens.

    The decoder has positions and MLPs.

    Its width is D + n; the outputs are in the first D entries. Token t is (x_t, 0) and its position
    (p_t, a_t). The skip connections carry the unit vector a_t through all layers; W_Q keeps a_t,
    and W_K maps it to -C (a_1 + ... + a_{t-1}).
    """
    d = decoder.width
    extra_q_nn, extra_k_nn = masking.augmentation(masking.exact_basis(n), MASKED)
    p_TD = torch.cat([decoder.positions_TD[:n], extra_q_nn], 1)
    mlp_width = decoder.mlp_in_LFD.shape[1]
    encoder = AttentionStack(
        d + n, decoder.n_layers, causal=False, positions_TD=p_TD, mlp_width=mlp_width
    )
    for name, parameter in decoder.named_parameters():
        if name != "positions_TD":
            longer = getattr(encoder, name).zero_()
            longer[tuple(slice(size) for size in parameter.shape)] = parameter
    encoder.w_q_LDD[:, d:, d:] = torch.eye(n, dtype=torch.float64)
    encoder.w_k_LDD[:, d:, d:] = extra_k_nn.T
    return encoder


@torch.no_grad()
def simulation_error(n: int, seed: int) -> float:
    """Return the error of an encoder that simulates a random decoder on n tokens.

    The decoder has 3 layers, MLPs and positions.
    """
    width = 1 + seed % 6
    decoder = AttentionStack(
        width, 3, causal=True, positions_TD=gaussians(seed, n, width), mlp_width=7, seed=seed
    )
    x_TD = gaussians(seed + 1, n, width)
    longer_TD = torch.cat([x_TD, torch.zeros(n, n, dtype=torch.float64)], 1)
    y_TD = causal_model(simulating_encoder(decoder, n), longer_TD)[:, :width]
    return relative(y_TD, decoder.encode(x_TD))


def mask_errors(n: int) -> Json:
    """Return the largest output errors of one simulated attention on n tokens, by mask.

    Errors are absolute; values lie in [-1, 1]. "exact": n entries; "one_less": n - 1 of them;
    "random": n random unit vectors in n entries, C = 60, which keep hidden keys below the visible
    ones only if they err by less than 1/2; "geometric": as many entries as float64 needs at error
    1e-9, C = 60.
    """
    basis = masking.exact_basis(n)
    entries = math.ceil(n / masking.longest_block(1e-9))
    bases = {
        "exact": (basis, MASKED),
        "one_less": (basis[:, : max(1, n - 1)], MASKED),
        "random": (masking.random_basis(n, n, seeded(0)), 60.0),
        "geometric": (masking.geometric_basis(n, entries, 1e-9), 60.0),
    }
    errors = {name: masking.mask_error(mask, constant) for name, (mask, constant) in bases.items()}
    return {"n": n, **errors, "geometric_entries": entries}


def expressivity_study(
    models: int,
    simulated_lengths: Sequence[int],
    mask_lengths: Sequence[int],
    dimension_lengths: Sequence[int],
) -> Study:
    """Run every check of §4 and appendices A.1 to A.6 on ``models`` random models each.

    Metrics: ``equality_errors``, the exact rows as text, the exponents of dimensions in n and the
    geometric mask's range limit. Curves: "encoders_…" and "decoders_…" by kind (``population``),
    "simulated_…" by length, "mask_…" (``mask_errors``) and "dimensions_…"
    (``masking.dimension_table`` at ``TOLERANCE``). Raises ConfigError for no models or too few
    lengths to fit an exponent.
    """
    at_least(1, models=models)
    at_least(2, dimension_lengths=len(dimension_lengths))
    errors = [equality_errors(s) for s in range(models)]
    metrics = {name: max(e[name] for e in errors) for name in errors[0]}
    metrics["a3_two_layers"] = min(e["a3_two_layers"] for e in errors)
    metrics["rational_rows"] = [[str(c) for c in row if c] for row in attention.theorem_4_1_rows(3)]
    own = [
        (refute, function(width))
        for function, refute in DIRECTIONS.values()
        for width in range(1, 7)
    ]
    metrics["control_refuted"] = sum(attempted(*case) is not None for case in own)  # none must be
    exponents, dimensions = masking.dimension_table(dimension_lengths, TOLERANCE)
    metrics |= {
        "geometric_limit": masking.longest_block(TOLERANCE),
        "tolerance": TOLERANCE,
        **exponents,
    }
    curves = {f"dimensions_{name}": values for name, values in dimensions.items()}
    for prefix, rows in (
        ("encoders", population(attention.refute_encoder, ENCODERS, models)),
        ("decoders", population(attention.refute_decoder, DECODERS, models)),
        ("mask", [mask_errors(n) for n in mask_lengths]),
    ):
        curves |= {f"{prefix}_{name}": values for name, values in columns(rows).items()}
    curves["simulated_n"] = list(simulated_lengths)
    curves["simulated_error"] = [
        max(simulation_error(n, s) for s in range(3)) for n in simulated_lengths
    ]
    bases = (masking.geometric_basis(n, 1, TOLERANCE) for n in dimension_lengths)
    curves["geometric_score_error"] = list(map(masking.score_error, bases))
    return metrics, curves
