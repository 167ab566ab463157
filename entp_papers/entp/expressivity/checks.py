"""The statements of §4 and appendix A tried on many random models: equalities, refutations, and masks by dimensions.

Nothing is trained here. Errors are in fp64 and, unless said otherwise, relative to 1 + the largest entry compared.

Letters: T and n tokens, D width, L layers.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Generator, Tensor

from entp_lib.validation import require
from entp_papers.entp.expressivity import masking
from entp_papers.entp.expressivity.attention import (
    AttentionStack,
    Model,
    Refutation,
    causal_model,
    refute_decoder,
    refute_encoder,
    theorem_4_1_decoder,
    theorem_4_1_outputs,
    theorem_4_2_encoder,
    two_layer_example,
)
from entp_papers.entp.expressivity.imitation import Candidate

TOKENS = 5
ROUNDING = 1e-7  # share of what is guaranteed that a difference may lack: the refuters' inputs are exact up to 1e-16
MASKED = 1e6  # C of the exact mask: beyond it a hidden key's weight is 0 in fp64


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def relative(a: Tensor, b: Tensor) -> float:
    """Largest difference over 1 + the largest entry."""
    return float(((a - b).abs().max() / (1 + b.abs().max())).detach())


def own_causal_model(seed: int) -> float:
    """Appendix A.2: error of T_D = D for a random decoder with positions and MLPs."""
    width = 1 + seed % 6
    decoder = AttentionStack(
        width, 1 + seed % 4, causal=True, positions_TD=normal(TOKENS, width, seed=seed), mlp_width=7, seed=seed
    )
    x_TD = normal(TOKENS, width, seed=seed + 1)
    return relative(causal_model(decoder, x_TD), decoder.encode(x_TD))


def twin_outputs(n_layers: int, seed: int) -> dict[str, tuple[Tensor, dict[str, Tensor]]]:
    """T_E and T_D of one set of weights: outputs, and gradients of a random linear function of them by weight."""
    width = 1 + seed % 6
    positions_TD, x_TD, weights_TD = (normal(TOKENS, width, seed=3 * seed + i) for i in range(3))
    found = {}
    for name, causal in (("decoder", True), ("encoder", False)):
        model = AttentionStack(width, n_layers, causal=causal, positions_TD=positions_TD, mlp_width=7, seed=seed)
        y_TD = model.encode(x_TD) if causal else causal_model(model, x_TD)  # T_D = D, in one pass
        (y_TD * weights_TD).sum().backward()
        found[name] = (y_TD, {k: p.grad for k, p in model.named_parameters()})
    return found


def one_layer(seed: int) -> tuple[float, float]:
    """Appendix A.3: errors of the outputs and of the gradients, encoder against decoder, with one layer."""
    found = twin_outputs(1, seed)
    (encoder, encoder_gradients), (decoder, decoder_gradients) = found["encoder"], found["decoder"]
    return relative(encoder, decoder), max(relative(encoder_gradients[k], g) for k, g in decoder_gradients.items())


def two_layers(seed: int) -> float:
    """How far the same weights are from each other with two layers."""
    found = twin_outputs(2, seed)
    return relative(found["encoder"][0], found["decoder"][0])


def printed_formulas(seed: int) -> float:
    """Appendix A.4: error of the printed formulas against two layers of attention by matrices."""
    width = 1 + seed % 6
    x_TD = (1.0, 40.0)[seed % 2] * normal(2, width, seed=seed)  # large scores too
    worst = 0.0
    for kind, causal in (("decoder", True), ("encoder", False)):
        stack = AttentionStack(width, 2, causal=causal, skip=False, seed=seed)
        found = two_layer_example(stack.w_q_LDD, stack.w_k_LDD, stack.w_v_LDD, x_TD)[kind]
        y_TD = x_TD
        for layer in (1, 2):
            y_TD = stack.attend(layer - 1, y_TD)
            worst = max(worst, relative(torch.stack([found[layer, 1], found[layer, 2]]), y_TD))
    return worst


def rational_error(seed: int) -> float:
    """Error of the decoder of theorem 4.1 against its outputs in exact arithmetic."""
    x = [Fraction(int(v), 16) for v in torch.randint(-99, 99, (TOKENS,), generator=Generator().manual_seed(seed))]
    exact = torch.tensor([[float(v)] for v in theorem_4_1_outputs(x).values], dtype=torch.float64)
    return relative(theorem_4_1_decoder(1).encode(torch.tensor([[float(v)] for v in x], dtype=torch.float64)), exact)


def random_stack(
    seed: int, causal: bool, *, positions: str = "", layers: int = 3, mlp_width: int = 0, gap: float = 1.0
) -> AttentionStack:
    """A random model; ``positions``: "" for none, "same" for p1 = p2, "apart" for p1 - p2 of the size ``gap``."""
    width = 1 + seed % 6
    p_TD = None
    if positions:
        p_TD = normal(TOKENS, width, seed=seed)
        p_TD[1] = p_TD[0] + (gap * normal(width, seed=seed + 1) if positions == "apart" else 0.0)
    return AttentionStack(width, layers, causal=causal, positions_TD=p_TD, mlp_width=mlp_width, seed=seed)


def remasked(seed: int, causal: bool) -> AttentionStack:
    """The theorem's own weights under the other mask; random positions where the theorem asks for them."""
    width = 1 + seed % 6
    model = (theorem_4_2_encoder if causal else theorem_4_1_decoder)(width)
    model.causal = causal
    if causal:
        model.positions_TD = torch.nn.Parameter(normal(TOKENS, width, seed=seed))
    return model


ENCODERS: dict[str, Callable[[int], Model]] = {
    "no positions": lambda seed: random_stack(seed, False),
    "p1 = p2": lambda seed: random_stack(seed, False, positions="same"),
    "p1 ≠ p2": lambda seed: random_stack(seed, False, positions="apart"),
    "p1 ≠ p2, MLPs": lambda seed: random_stack(seed, False, positions="apart", mlp_width=16),
    "p1 ≠ p2 by about 0.001, MLPs": lambda seed: random_stack(seed, False, positions="apart", mlp_width=16, gap=1e-3),
    "8 layers, MLPs": lambda seed: random_stack(seed, False, positions="apart", layers=8, mlp_width=16),
    "wider inside, biases, MLPs": lambda seed: Candidate(False, None, seed),
    "the decoder's weights, no mask": lambda seed: remasked(seed, False),
}
DECODERS: dict[str, Callable[[int], Model]] = {
    "p1 ≠ p2": lambda seed: random_stack(seed, True, positions="apart"),
    "p1 ≠ p2, MLPs": lambda seed: random_stack(seed, True, positions="apart", mlp_width=16),
    "p1 ≠ p2 by about 0.001, MLPs": lambda seed: random_stack(seed, True, positions="apart", mlp_width=16, gap=1e-3),
    "8 layers, MLPs": lambda seed: random_stack(seed, True, positions="apart", layers=8, mlp_width=16),
    "wider inside, biases, MLPs": lambda seed: Candidate(True, None, seed),
    "the encoder's weights, masked": lambda seed: remasked(seed, True),
}


def population(
    refute: Callable[[Model], Refutation], kinds: dict[str, Callable[[int], Model]], models: int
) -> dict[str, list]:
    """By kind of model: how many were tried, how many refuted, the smallest difference, and its smallest ratio to
    what the proof guarantees. A model counts as refuted if the ratio is 1 at least, up to rounding."""
    found: dict[str, list] = {name: [] for name in ("kind", "models", "refuted", "difference", "ratio")}
    for kind, make in kinds.items():
        refutations = [attempted(refute, make(seed)) for seed in range(models)]
        ratios = [r.difference / r.guaranteed for r in refutations if r is not None]
        found["kind"].append(kind)
        found["models"].append(models)
        found["refuted"].append(sum(ratio >= 1 - ROUNDING for ratio in ratios))
        found["difference"].append(min((r.difference for r in refutations if r is not None), default=0.0))
        found["ratio"].append(min(ratios, default=0.0))
    return found


def attempted(refute: Callable[[Model], Refutation], model: Model) -> Refutation | None:
    """The refutation, or None where the refuter says that the proof does not cover the model."""
    try:
        return refute(model)
    except ValueError:
        return None


@torch.no_grad()
def simulating_encoder(decoder: AttentionStack, n: int, constant: float = MASKED) -> AttentionStack:
    """The encoder of §4.3: width D + n, computes a decoder's outputs in its first D entries on up to n tokens.

    Token t is (x_t, 0) and its position (p_t, a_t), a_t a unit vector, which the skip connections carry through all
    layers; W_Q keeps it, W_K makes -C (a_1 + ... + a_{t-1}) of it. Raises ValueError for a decoder without skips.
    """
    if not decoder.skip:
        raise ValueError("the decoder has no skip connections: the extra entries would not reach its second layer")
    d, extra_q_nn, extra_k_nn = decoder.width, *masking.augmentation(masking.exact_basis(n), constant)
    p_TD = torch.zeros(n, d + n, dtype=torch.float64)
    p_TD[:, d:] = extra_q_nn
    if decoder.positions_TD is not None:
        p_TD[:, :d] = decoder.positions_TD[:n]
    mlp_width = 0 if decoder.mlp_in_LFD is None else decoder.mlp_in_LFD.shape[1]
    encoder = AttentionStack(d + n, decoder.n_layers, causal=False, positions_TD=p_TD, mlp_width=mlp_width)
    for name, parameter in decoder.named_parameters():
        if name != "positions_TD":
            longer = getattr(encoder, name).zero_()
            longer[tuple(slice(size) for size in parameter.shape)] = parameter
    encoder.w_q_LDD[:, d:, d:] = torch.eye(n, dtype=torch.float64)
    encoder.w_k_LDD[:, d:, d:] = extra_k_nn.T
    return encoder


@torch.no_grad()
def simulation_error(n: int, seed: int) -> float:
    """Error of a simulating encoder's causal model on n tokens: a decoder of 3 layers with MLPs and positions."""
    width = 1 + seed % 6
    decoder = AttentionStack(width, 3, causal=True, positions_TD=normal(n, width, seed=seed), mlp_width=7, seed=seed)
    x_TD = normal(n, width, seed=seed + 1)
    longer_TD = torch.cat([x_TD, torch.zeros(n, n, dtype=torch.float64)], 1)
    y_TD = causal_model(simulating_encoder(decoder, n), longer_TD)[:, :width]
    return relative(y_TD, decoder.encode(x_TD))


def masks(lengths: Sequence[int], seed: int) -> dict[str, list]:
    """Largest output errors of one simulated attention, not relative (values lie in [-1, 1]), by n.

    "exact": n entries, or n - 1; "random": n random unit vectors in n entries, C = 60, which keep hidden keys below the
    visible ones only if they err by less than 1/2; "geometric": as many entries as float64 needs at error 1e-9, C = 60.
    """
    found: dict[str, list] = {k: [] for k in ("n", "exact", "one_less", "random", "geometric", "geometric_entries")}
    for n in lengths:
        basis = masking.exact_basis(n)
        entries = math.ceil(n / longest_block(1e-9))
        for name, mask, constant in (
            ("exact", basis, MASKED),
            ("one_less", basis[:, : max(1, n - 1)], MASKED),
            ("random", masking.random_basis(n, n, Generator().manual_seed(seed)), 60.0),
            ("geometric", masking.geometric_basis(n, entries, 1e-9), 60.0),
        ):
            found[name].append(masking.mask_error(mask, constant, seed).output)
        found["n"].append(n)
        found["geometric_entries"].append(entries)
    return found


def longest_block(error: float) -> int:
    """Positions that one entry of a geometric mask can serve in float64 at this score error."""
    return math.floor(2 * masking.RANGE / -math.log2(error)) - 1


def geometric_limit(error: float) -> int:
    """The same by trying: the largest n for which a geometric mask in one entry can be made."""

    def fits(n: int) -> bool:
        try:
            return masking.score_error(masking.geometric_basis(n, 1, error)) <= error * (1 + 1e-9)
        except ValueError:
            return False

    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def expressivity_study(
    models: int,
    simulated_lengths: Sequence[int],
    mask_lengths: Sequence[int],
    dimension_lengths: Sequence[int],
    tolerance: float = 0.25,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, list]]:
    """(metrics, curves) of every check of §4 and appendices A.1 to A.6, ``models`` random models each.

    Metrics: errors as "a2_error" ... "rational_error", the exact rows as text, the exponents of dimensions in n and the
    geometric mask's range limit. Curves: "encoders_…" and "decoders_…" by kind (``population``), "simulated_…" by
    length, "mask_…" (``masks``) and "dimensions_…" (``masking.dimension_table`` at ``tolerance``). Raises ConfigError
    for no models or too few lengths to fit an exponent.
    """
    require(models >= 1, f"models = {models}: must be at least 1")
    require(len(dimension_lengths) >= 2, f"dimension_lengths = {dimension_lengths}: must be two or more")
    layers = [one_layer(s) for s in range(models)]
    rows = theorem_4_1_outputs([Fraction(0)] * 3).rows
    metrics: dict[str, Any] = {
        "a2_error": max(own_causal_model(s) for s in range(models)),
        "a3_output_error": max(values for values, _ in layers),
        "a3_gradient_error": max(gradients for _, gradients in layers),
        "a3_two_layers": min(two_layers(s) for s in range(models)),
        "a4_error": max(printed_formulas(s) for s in range(models)),
        "rational_rows": [[str(c) for c in row if c] for row in rows],
        "rational_error": max(rational_error(s) for s in range(models)),
        # the theorems' own functions must not be refuted
        "control_refuted": sum(
            attempted(refute, make(width)) is not None
            for refute, make in ((refute_encoder, theorem_4_1_decoder), (refute_decoder, theorem_4_2_encoder))
            for width in range(1, 7)
        ),
    }
    exponents, dimensions = masking.dimension_table(dimension_lengths, tolerance=tolerance, seed=seed)
    metrics |= {"geometric_limit": geometric_limit(tolerance), "tolerance": tolerance, **exponents}
    curves: dict[str, list] = {}
    for prefix, found in (
        ("encoders", population(refute_encoder, ENCODERS, models)),
        ("decoders", population(refute_decoder, DECODERS, models)),
        ("mask", masks(mask_lengths, seed)),
        ("dimensions", dimensions),
    ):
        curves |= {f"{prefix}_{name}": values for name, values in found.items()}
    curves["simulated_n"] = list(simulated_lengths)
    curves["simulated_error"] = [max(simulation_error(n, s) for s in range(3)) for n in simulated_lengths]
    curves["geometric_score_error"] = [
        masking.score_error(masking.geometric_basis(n, 1, tolerance)) for n in dimension_lengths
    ]
    return metrics, curves
