"""Losses, sampling, caches and the cost of recomputing every prefix, on models with random weights.

Recomputing buys two things: the order of the past need not matter, and coordinates can be a mask.

Letters: B batch, T tokens, H heads, K head width, V vocabulary.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lab.studies import Study, exponent, largest, scale_up, seeded
from entp_lib import costs
from entp_lib.config import ModelConfig
from entp_lib.decoding import (
    Cache,
    IncrementalDecoder,
    cached_logits,
    generate,
    sampling_probabilities,
)
from entp_lib.model import Transformer, build_model
from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.beams import beam_search
from entp_papers.encoder_decoder.parts import (
    IGNORED,
    Masking,
    causal_loss,
    entp_loss,
    mask_tokens,
    masked_loss,
)


def model_of(
    architecture: str,
    n_layers: int = 2,
    vocab: int = 7,
    seed: int = 0,
    max_length: int = 16,
    **options: Any,
) -> Transformer:
    """Build a model in fp64 with weights large enough for attention and order to matter."""
    cfg = ModelConfig(architecture, n_layers, 2, 16, vocab, max_length, **options)
    return scale_up(build_model(cfg, seed), seed)


def tokens_of(model: Transformer, batch: int, length: int, seed: int = 0) -> Tensor:
    """Draw token ids (B, T)."""
    return torch.randint(model.cfg.vocab_size, (batch, length), generator=seeded(seed))


def last_logits(model: Transformer, tokens_BT: Tensor) -> Tensor:
    """Compute logits (B, V) after the last token without a cache."""
    return IncrementalDecoder(model, tokens_BT, tokens_BT.shape[1], use_cache=False).logits()


def table(names: str, rows: Sequence[Sequence[Any]]) -> dict[str, list]:
    """Return rows as curves."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names.split())}


# --- Losses ---------------------------------------------------------------------------------------


def by_hand(logits_BTV: Tensor, labels_BT: Tensor) -> float:
    """Compute the causal loss as a loop over single tokens, in Python's own numbers."""
    losses = [
        float(before.logsumexp(0) - before[label])
        for logits_TV, labels in zip(logits_BTV, labels_BT.tolist(), strict=True)
        for before, label in zip(logits_TV, labels[1:], strict=False)
        if label != IGNORED
    ]
    return sum(losses) / len(losses)


def causal_differences(logits_BTV: Tensor, labels_BT: Tensor) -> dict[str, float]:
    """Return the causal loss less its definition, and less the printed code.

    Both differences are taken for all labels and with some labels ignored.
    """
    some_BT = labels_BT.clone()
    some_BT[:, 3:5] = IGNORED
    found = {}
    for name, labels in (("causal", labels_BT), ("causal, some ignored", some_BT)):
        loss = causal_loss(logits_BTV, labels)
        logits = logits_BTV[:, :-1].flatten(0, 1)
        printed = F.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=IGNORED)
        found[f"{name}: by hand"] = float(loss) - by_hand(logits_BTV, labels)
        found[f"{name}: as printed"] = float(loss - printed)
    return found


def entp_difference(encoder: Transformer, labels_BT: Tensor) -> float:
    """Return ENTP's loss less its definition, a mean over prefixes that are read one by one."""
    ends = range(1, labels_BT.shape[1])
    losses = [
        F.cross_entropy(last_logits(encoder, labels_BT[:, :t]), labels_BT[:, t]) for t in ends
    ]
    return float(entp_loss(encoder, labels_BT) - torch.stack(losses).mean())


def masked_difference(encoder: Transformer, tokens_BT: Tensor, seed: int) -> float:
    """Return the masked loss less its definition, a mean over selected tokens read one by one.

    Each is read by full attention, layer by layer.
    """
    masking = Masking(encoder.cfg.vocab_size, 6, (6,), 0.5)
    batch = mask_tokens(tokens_BT % 6, masking, seeded(seed))
    length = tokens_BT.shape[1]
    losses = []
    for row, place in batch.selected_BT.nonzero().tolist():
        x_1TD = encoder.embed(batch.inputs_BT[row : row + 1])
        for block in encoder.blocks:
            x_1TD = block(x_1TD, torch.ones(length, length, dtype=torch.bool))
        logits_1V = encoder.head(encoder.ln_f(x_1TD))[:, place]
        losses.append(float(F.cross_entropy(logits_1V, batch.labels_BT[row : row + 1, place])))
    return float(masked_loss(encoder, batch)) - sum(losses) / len(losses)


@torch.no_grad()
def losses_study(seeds: int) -> Study:
    """Compare three losses with their definitions, over random weights and texts.

    Rows: name and difference. Metrics: the error of a loss whose labels were shifted twice, as
    happens if a dataset has shifted them already.
    """
    differences = defaultdict(list)
    twice = []
    for seed in range(seeds):
        decoder = model_of("decoder", seed=seed)
        encoder = model_of("entp", seed=seed)
        labels_BT = tokens_of(decoder, 3, 8, seed)
        logits_BTV = decoder(labels_BT).view(3, 8, -1)
        causal = causal_loss(logits_BTV, labels_BT)
        found = causal_differences(logits_BTV, labels_BT)
        found["ENTP's of a decoder: causal"] = float(entp_loss(decoder, labels_BT) - causal)
        found["ENTP: prefix by prefix"] = entp_difference(encoder, labels_BT)
        found["masked: token by token"] = masked_difference(encoder, labels_BT, seed)
        for name, value in found.items():
            differences[name].append(value)
        shifted = causal_loss(logits_BTV[:, :-1], labels_BT[:, 1:])
        twice.append(abs(float(shifted - causal)))
    try:
        refused = float(causal_loss(logits_BTV, torch.full_like(labels_BT, IGNORED)))
    except ConfigError as error:
        refused = str(error)
    apart = {name: largest(np.array(values)) for name, values in differences.items()}
    metrics = {"shifted_twice": min(twice), "all_ignored": refused, "largest": max(apart.values())}
    return metrics, table("loss apart", list(apart.items()))


# --- Sampling and caches --------------------------------------------------------------------------


@torch.no_grad()
def sampling_study(draws: int, top_k: int) -> Study:
    """Check the primer's five ways of choosing a token, for a decoder and for ENTP."""
    rows = []
    for architecture in ("decoder", "entp"):
        model = model_of(architecture, vocab=5)
        prompt_1T = torch.tensor([[3, 1, 4]])
        p_value = p_value_of_draws(model, prompt_1T, draws)
        checks = search_checks(model, prompt_1T) | filter_checks(
            last_logits(model, prompt_1T), top_k
        )
        checks["draws follow the model (χ²)"] = p_value > 1e-3
        rows += [(architecture, check, right) for check, right in checks.items()]
    return {"draws": draws, "p_value": p_value}, table("architecture check right", rows)


def search_checks(model: Transformer, prompt_1T: Tensor) -> dict[str, bool]:
    """Check greedy decoding and beam search.

    With as many beams as texts of two tokens, the search must find the best of all texts of three.
    """
    greedy = generate(model, prompt_1T, 4)
    steps = prompt_1T
    for _ in range(4):
        next_token = last_logits(model, steps).argmax(-1, keepdim=True)
        steps = torch.cat([steps, next_token], 1)
    beams, scores = beam_search(model, prompt_1T[0], 3, 25)
    texts_NT, losses_N = brute_force(model, prompt_1T)
    best = losses_N.argmin()
    finds_best = torch.equal(beams[0], texts_NT[best])
    scores_best = abs(float(scores[0] + losses_N[best])) < 1e-9
    one_beam = beam_search(model, prompt_1T[0], 4, 1)[0]
    return {
        "greedy: the largest logit at every step": torch.equal(greedy, steps),
        "beam search: one beam is greedy": torch.equal(one_beam, greedy),
        "beam search: 5² beams find the best of 5³ texts": finds_best and scores_best,
    }


def filter_checks(logits_1V: Tensor, top_k: int) -> dict[str, bool]:
    """Check temperature, top-k and top-p."""
    plain_1V = logits_1V.softmax(-1)
    kth_largest = plain_1V.sort().values[:, -top_k]
    largest_1V = torch.where(plain_1V >= kth_largest, plain_1V, 0.0)
    coldest_1V = sampling_probabilities(logits_1V, 1e-9)
    few_1V = sampling_probabilities(logits_1V, top_k=top_k)
    kept = plain_1V[0][sampling_probabilities(logits_1V, top_p=0.8)[0] > 0]
    in_proportion = torch.allclose(few_1V, largest_1V / largest_1V.sum(), atol=1e-12)
    return {
        "temperature: 1e-9 is greedy": float(coldest_1V[0, logits_1V.argmax()]) > 1 - 1e-9,
        "top-k: k = V changes nothing": largest(
            sampling_probabilities(logits_1V, top_k=5), plain_1V
        )
        < 1e-12,
        f"top-k: the {top_k} largest alone, in their proportions": in_proportion,
        "top-p: p = 1 changes nothing": largest(
            sampling_probabilities(logits_1V, top_p=1.0), plain_1V
        )
        < 1e-12,
        "top-p: the fewest tokens of mass 0.8": bool(kept.sum() - kept.min() < 0.8 <= kept.sum()),
    }


def p_value_of_draws(model: Transformer, prompt_1T: Tensor, draws: int) -> float:
    """Test by χ² whether drawn tokens follow the model's probabilities at a temperature of 1.5."""
    from scipy.stats import chisquare

    prompts = prompt_1T.expand(draws, -1)
    drawn = generate(model, prompts, 1, temperature=1.5, generator=seeded(0))
    counts = torch.bincount(drawn[:, -1], minlength=model.cfg.vocab_size)
    expected = (last_logits(model, prompt_1T) / 1.5).softmax(-1)[0] * draws
    return float(chisquare(counts.numpy(), expected.numpy()).pvalue)


def brute_force(model: Transformer, prompt_1T: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prompt with every three tokens after it (N, T + 3), and their -log p (N,)."""
    tokens_V = torch.arange(model.cfg.vocab_size)
    new_N3 = torch.cartesian_prod(tokens_V, tokens_V, tokens_V)
    texts_NT = torch.cat([prompt_1T.expand(len(new_N3), -1), new_N3], 1)
    losses_N = sum(
        F.cross_entropy(last_logits(model, texts_NT[:, :t]), texts_NT[:, t], reduction="none")
        for t in range(prompt_1T.shape[1], texts_NT.shape[1])
    )
    return texts_NT, losses_N


@torch.no_grad()
def caches_study(depths: Sequence[int], length: int, seeds: int) -> Study:
    """Compare logits with keys and values kept, token by token, with those without a cache."""
    rows = []
    for architecture, n_layers in itertools.product(("decoder", "entp"), depths):
        apart = 0.0
        for seed in range(seeds):
            model = model_of(architecture, n_layers, seed=seed, max_length=length)
            model.entp_method = "reference"  # the definition, for one layer too
            tokens_BT = tokens_of(model, 2, length, seed)
            cache = Cache(model, 2)
            for t in range(length):
                found = cached_logits(
                    model, tokens_BT[:, t : t + 1], cache, causal=architecture == "decoder"
                )
                apart = max(apart, largest(found, last_logits(model, tokens_BT[:, : t + 1])))
        rows.append((architecture, n_layers, apart))
    return {"texts": 2 * seeds, "length": length}, table("architecture n_layers apart", rows)


# --- What recomputing costs -----------------------------------------------------------------------

# By way of writing: the architecture, whether it has a cache, and the multiply-adds of token m.
WAYS = {
    "decoder, cache": ("decoder", True, costs.decoder_token),
    "decoder, no cache": ("decoder", False, costs.encoder_token),  # one pass costs the same
    "ENTP": ("entp", False, costs.encoder_token),
}


def counted_total(cfg: ModelConfig, way: str, n: int) -> int:
    """Return the multiply-adds of writing n tokens one by one after a first one.

    They follow from the formulas of ``entp_lib.costs``.
    """
    return sum(WAYS[way][2](cfg, m) for m in range(1, n + 1))


def seconds_to_write(
    cfg: ModelConfig, lengths: Sequence[int], rounds: int
) -> dict[tuple[str, int], float]:
    """Measure by way and length the least CPU seconds of ``rounds`` in which all take turns."""
    models = {
        name: build_model(replace(cfg, architecture=name)).eval() for name in ("decoder", "entp")
    }
    prompt = torch.zeros(1, 1, dtype=torch.long)
    least = {}
    for _, n, way in itertools.product(range(rounds), lengths, WAYS):
        architecture, cached, _ = WAYS[way]
        begun = time.process_time()
        generate(models[architecture], prompt, n, use_cache=cached)
        spent = time.process_time() - begun
        least[way, n] = min(least.get((way, n), spent), spent)
    return least


def costs_study(
    lengths: Sequence[int], far: Sequence[int], n_layers: int, width: int, rounds: int
) -> Study:
    """Count three ways to write n tokens up to ``far``, and measure their CPU seconds at
    ``lengths``.

    ``ratio_of_seconds``: to a decoder with a cache at that length. Metrics: log-log slopes between
    the ends of ``far``, for seconds between the last two lengths. The slope ``attention`` counts
    only attention scores and weighted sums, as Table 1 of the ENTP paper does.
    """
    cfg = ModelConfig("decoder", n_layers, 2, width, 64, max(lengths))
    seconds = seconds_to_write(cfg, lengths, rounds)
    rows = []
    for way, n in itertools.product(WAYS, lengths):
        ratio = seconds[way, n] / seconds["decoder, cache", n]
        rows.append((way, n, counted_total(cfg, way, n), seconds[way, n], ratio))
    longest = lengths[-2:]
    slopes = {}
    for way in WAYS:
        power = 1 if way == "decoder, cache" else 2
        slopes[way] = {
            "attention": exponent(far, [sum(m**power for m in range(1, n + 1)) for n in far]),
            "counted": exponent(far, [counted_total(cfg, way, n) for n in far]),
            "cpu_seconds": exponent(longest, [seconds[way, n] for n in longest]),
        }
    metrics = {
        "slopes": slopes,
        "one_pass": exponent(far, [costs.decoder_pass(cfg, n) for n in far]),
        "crossover": 6 * cfg.width,  # tokens beyond which attention costs more than linear maps
        "n_layers": n_layers,
        "width": width,
        "far": list(far),
    }
    return metrics, table("way length counted cpu_seconds ratio_of_seconds", rows)


def right_costs(architecture: str, cfg: ModelConfig, n: int) -> int:
    """Return the corrected cost: one pass grows with n and n², and so does writing with a cache."""
    if architecture == "encoder":
        return costs.encoder_token(cfg, n) - costs.head(cfg)
    return counted_total(cfg, "decoder, cache", n)


def counted_work(model: Transformer, architecture: str, n: int) -> int:
    """Count with PyTorch the multiply-adds to read n tokens in one pass, or to write n by cache.

    An encoder reads, a decoder writes, which is sampled at 16 lengths.
    """
    if architecture == "encoder":
        x_BTD = torch.zeros(1, n, model.cfg.width, device="meta")
        return costs.counted(lambda: model.blocks[0](x_BTD))
    total = 0
    step = n // 16
    for length in range(step // 2, n, step):
        cache = Cache(model, 1, length)
        cache.length = length - 1
        token = torch.zeros(1, 1, dtype=torch.long, device="meta")
        total += step * costs.counted(
            lambda token=token, cache=cache: cached_logits(model, token, cache)
        )
    return total


def growth_is_counted(predicted: Callable[[str, ModelConfig, int], int]) -> tuple[bool, str]:
    """Check how predicted work grows as n doubles (a check of ``bugs``).

    It is compared with PyTorch's own count on models without weights.
    """
    n = 1024
    cfg = ModelConfig("decoder", 1, 1, 8, 8, 2048)
    model = build_model(cfg, device="meta").eval()
    passed = True
    words = []
    for architecture in ("encoder", "decoder"):
        said = predicted(architecture, cfg, 2 * n) / predicted(architecture, cfg, n)
        found = counted_work(model, architecture, 2 * n) / counted_work(model, architecture, n)
        passed = passed and abs(said / found - 1) < 0.02
        words.append(f"{architecture} {said:.1f} said, {found:.1f} counted")
    return passed, f"twice the length takes {'; '.join(words)}"


# --- What recomputing buys ------------------------------------------------------------------------


@torch.no_grad()
def permutations_study(depths: Sequence[int], length: int, orders: int) -> Study:
    """Measure how the next token's logits change when the past x_1 .. x_{n-1} is reordered."""
    rows = []
    for architecture, n_layers, positions in itertools.product(
        ("entp", "decoder"), depths, ("none", "learned")
    ):
        model = model_of(architecture, n_layers, positions=positions, max_length=length)
        moved = 0.0
        model.entp_method = "reference"  # the definition, for one layer too
        tokens_BT = tokens_of(model, 4, length)
        before = last_logits(model, tokens_BT)
        for seed in range(orders):
            order = torch.randperm(length - 1, generator=seeded(seed))
            moved = max(
                moved,
                largest(last_logits(model, tokens_BT[:, [*order.tolist(), length - 1]]), before),
            )
        rows.append((architecture, n_layers, positions, moved))
    return {"orders": orders, "length": length}, table(
        "architecture n_layers positions moved", rows
    )


def longer(q: Tensor, k: Tensor, constant: float, coordinates: int) -> tuple[Tensor, Tensor]:
    """Lengthen queries and keys to (B, H, T, K + coordinates), whose full attention is causal up to
    exp(-constant).

    Query i gets a 1 in its own coordinate i, key j a -constant in those of all earlier tokens:
    scores of later keys fall by the constant, while those of earlier keys and its own stay. The
    first T - 1 coordinates suffice.
    """
    length = q.shape[2]
    own = torch.eye(length, dtype=q.dtype)[:, :coordinates]
    earlier = torch.ones(length, length, dtype=q.dtype).tril(-1)[:, :coordinates]
    scale = (q.shape[-1] + coordinates) ** 0.5  # attention divides by the root of the whole width
    of_q, of_k = (x.expand(*q.shape[:2], -1, -1) for x in (own * scale, -constant * earlier))
    shrink = scale / q.shape[-1] ** 0.5
    return torch.cat([q * shrink, of_q], -1), torch.cat([k, of_k], -1)


@torch.no_grad()
def coordinates_study(constants: Sequence[float], lengths: Sequence[int], n_layers: int) -> Study:
    """Compare a decoder without a mask with itself, by the constant, in fp64 and in fp32.

    Metrics: with the last coordinate left out and with one more left out, at a constant of 60.
    """

    def apart(length: int, constant: float, coordinates: int, dtype: torch.dtype) -> float:
        model = model_of("decoder", n_layers, max_length=length).to(dtype)
        tokens_BT = tokens_of(model, 2, length)
        x_BTD = model.embed(tokens_BT)
        for block in model.blocks:
            q, k, v = block.attention.project(block.ln_1(x_BTD))
            q, k = longer(q, k, constant, coordinates)
            x_BTD = block.residual(x_BTD, block.attention(q, k, v, None, causal=False))
        return largest(model.head(model.ln_f(x_BTD)), model(tokens_BT).view(2, length, -1))

    precisions = {"fp64": torch.float64, "fp32": torch.float32}
    n = max(lengths)
    rows = [
        (length, constant, name, apart(length, constant, length, precisions[name]))
        for length, constant, name in itertools.product(lengths, constants, precisions)
    ]
    fewer = {str(n - d): apart(n, 60.0, n - d, torch.float64) for d in (0, 1, 2)}
    return {"coordinates": fewer, "n_layers": n_layers}, table(
        "length constant precision apart", rows
    )
