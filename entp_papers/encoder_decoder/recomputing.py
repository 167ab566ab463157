"""What recomputing every prefix costs, and what it buys: order that does not matter, masks that are coordinates.

Letters: B batch, T tokens, H heads, K head width, V vocabulary.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.models import Transformer, build_model, costs
from entp_lib.models.decoding import generate
from entp_lib.validation import require
from entp_papers.encoder_decoder.computing import Study, last_logits, model_of, table, tokens_of

WAYS = {"decoder, cache": ("decoder", True), "decoder, no cache": ("decoder", False), "ENTP": ("entp", False)}


def counted_total(cfg: ModelConfig, way: str, n: int) -> int:
    """Multiply-adds to write n tokens after one, each by itself, by the formulas of ``entp_lib.models.costs``."""
    of_token = {
        "decoder, cache": costs.decoder_token,
        "decoder, no cache": lambda cfg, m: costs.decoder_pass(cfg, m) - (m - 1) * costs.head(cfg),
        "ENTP": costs.encoder_token,
    }[way]
    return sum(of_token(cfg, m) for m in range(1, n + 1))


def attention_total(cfg: ModelConfig, way: str, n: int) -> int:
    """The same of scores and weighted sums alone, which is what the O(n) of Table 1 of the ENTP paper count."""
    each = (m if way == "decoder, cache" else m * m for m in range(1, n + 1))
    return 2 * cfg.n_layers * cfg.width * sum(each)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y on log x between the last two points."""
    return float(np.log(y[-1] / y[-2]) / np.log(x[-1] / x[-2]))


def costs_study(
    lengths: Sequence[int], far: Sequence[int], n_layers: int, width: int, rounds: int, seed: int = 0
) -> Study:
    """Three ways to write n tokens, counted up to ``far`` and measured at ``lengths``: CPU seconds of this process.

    The least of ``rounds``, in which all ways and lengths take turns. ``ratio``: to a decoder with its cache at that
    length. Metrics: log-log slopes between the last two lengths. ConfigError for fewer than two lengths, or rounds
    below 1.
    """
    require(min(len(lengths), len(far)) >= 2, f"lengths = {lengths}, far = {far}: slopes need two of each")
    require(rounds >= 1, f"rounds = {rounds}: must be at least 1")
    cfg = ModelConfig("decoder", n_layers, 2, width, 64, max(lengths))
    models = {name: build_model(replace(cfg, architecture=name), seed).eval() for name in ("decoder", "entp")}
    prompt = torch.zeros(1, 1, dtype=torch.long)
    best: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for n, (way, (architecture, cached)) in itertools.product(lengths, WAYS.items()):
            begun = time.process_time()
            generate(models[architecture], prompt, n, use_cache=cached)
            spent = time.process_time() - begun
            best[way, n] = min(best.get((way, n), spent), spent)
    rows = [
        (way, n, counted_total(cfg, way, n), best[way, n], best[way, n] / best["decoder, cache", n])
        for way in WAYS
        for n in lengths
    ]
    slopes = {
        way: {
            "attention": slope(far, [attention_total(cfg, way, n) for n in far]),
            "counted": slope(far, [counted_total(cfg, way, n) for n in far]),
            "measured": slope(lengths, [best[way, n] for n in lengths]),
        }
        for way in WAYS
    }
    encoder_pass = [costs.decoder_pass(cfg, n) for n in far]
    metrics = {
        "slopes": slopes,
        "one_pass": slope(far, encoder_pass),
        "crossover": costs.crossover(cfg),
        "n_layers": n_layers,
        "width": width,
        "far": list(far),
    }
    return metrics, table("way length counted cpu_seconds ratio", rows)


@torch.no_grad()
def permutations_study(depths: Sequence[int], length: int, orders: int) -> Study:
    """How far the next token's logits move when the past x_1 .. x_{n-1} is put in another order, x_n kept in place."""
    rows = []
    for architecture, n_layers, positions in itertools.product(("entp", "decoder"), depths, ("none", "learned")):
        model, moved = model_of(architecture, n_layers, positions=positions, max_length=length), 0.0
        model.entp_method = "reference"  # the definition, for one layer too
        tokens_BT = tokens_of(model, 4, length)
        before = last_logits(model, tokens_BT)
        for seed in range(orders):
            order = torch.randperm(length - 1, generator=torch.Generator().manual_seed(seed))
            after = last_logits(model, torch.cat([tokens_BT[:, order], tokens_BT[:, -1:]], 1))
            moved = max(moved, float((after - before).abs().max()))
        rows.append((architecture, n_layers, positions, moved))
    return {"orders": orders, "length": length}, table("architecture n_layers positions moved", rows)


def longer(q: Tensor, k: Tensor, constant: float, coordinates: int) -> tuple[Tensor, Tensor]:
    """Queries and keys (B, H, T, K + coordinates) whose full attention is causal up to exp(-constant).

    Query i gets a 1 in its own coordinate i, key j a -constant in those of all earlier tokens: scores of later keys
    fall by the constant, those of earlier ones and its own stay. The first T - 1 coordinates are all that is needed.
    """
    length = q.shape[2]
    own = torch.eye(length, dtype=q.dtype)[:, :coordinates]
    earlier = torch.ones(length, length, dtype=q.dtype).tril(-1)[:, :coordinates]
    scale = (q.shape[-1] + coordinates) ** 0.5  # attention divides by the root of the whole width
    add = [x.expand(*q.shape[:2], -1, -1) for x in (own * scale, -constant * earlier)]
    shrink = scale / q.shape[-1] ** 0.5
    return torch.cat([q * shrink, add[0]], -1), torch.cat([k, add[1]], -1)


def unmasked_logits(model: Transformer, tokens_BT: Tensor, constant: float, coordinates: int) -> Tensor:
    """Logits (B, T, V) of a decoder's weights with full attention, queries and keys made ``longer`` in every layer."""
    x_BTD = model.embed(tokens_BT)
    for block in model.blocks:
        q, k, v = block.attention.project(block.ln_1(x_BTD))
        q, k = longer(q, k, constant, coordinates)
        x_BTD = block.residual(x_BTD, block.attention(q, k, v, None, causal=False))
    return model.head(model.ln_f(x_BTD))


@torch.no_grad()
def coordinates_study(constants: Sequence[float], lengths: Sequence[int], n_layers: int) -> Study:
    """A whole decoder without a mask: its logits' largest difference by the constant, in fp64 and in fp32.

    Metrics: with the last coordinate left out and with one more left out, at a constant of 60.
    """
    rows = []
    for length, constant, dtype in itertools.product(lengths, constants, (torch.float64, torch.float32)):
        model = model_of("decoder", n_layers, max_length=length).to(dtype)
        tokens_BT = tokens_of(model, 2, length)
        expected = model(tokens_BT).view(2, length, -1)
        apart = float((unmasked_logits(model, tokens_BT, constant, length) - expected).abs().max())
        rows.append((length, constant, "fp64" if dtype == torch.float64 else "fp32", apart))
    model = model_of("decoder", n_layers, max_length=max(lengths))
    tokens_BT, n = tokens_of(model, 2, max(lengths)), max(lengths)
    expected = model(tokens_BT).view(2, n, -1)
    fewer = {
        str(n - d): float((unmasked_logits(model, tokens_BT, 60.0, n - d) - expected).abs().max()) for d in (0, 1, 2)
    }
    return {"coordinates": fewer, "n_layers": n_layers}, table("length constant precision apart", rows)
