"""Addition beyond the trained length as records: a function of JSON arguments that returns (metrics, curves)."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.records import resuming
from entp_lib.tasks.base import seed_from
from entp_lib.training.flat import FlatAdam
from entp_lib.validation import one_of, require
from entp_papers.compact import formats
from entp_papers.compact.formats import FORMATS
from entp_papers.compact.positioned import PositionedTransformer
from entp_papers.compact.positions import SCHEMES, random_ids

MOST_DIGITS = 18


def addition_study(
    positions: str,
    format: str,
    architecture: str,
    trained_digits: int = 5,
    tested_digits: tuple[int, ...] | list[int] = (5, 7, 10, 15),
    n_layers: int = 2,
    n_heads: int = 4,
    width: int = 64,
    steps: int = 1500,
    batch_size: int = 64,
    rate: float = 1e-3,
    tested: int = 200,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train on sums of operands with 1 to ``trained_digits`` digits, test on operands of exactly so many (§3.4).

    A sum is right where every token of its answer and the end is. Runs of a seed draw the same sums as long as their
    format and scheme draw nothing else: spaces, and ids that are random or begin anywhere, come from the same
    generator. Metrics: ``accuracy`` and ``token_accuracy`` by
    tested length, ``parameters``. Curves: training loss, a mean over a twentieth of the steps. Raises ConfigError
    where the scheme's ids cannot be made in the format.
    """
    check(positions, format, trained_digits, list(tested_digits), steps, batch_size, tested)
    longest = longest_text(format, max(*tested_digits, trained_digits))
    cfg = ModelConfig(architecture, n_layers, n_heads, width, len(formats.SYMBOLS), longest)
    model = PositionedTransformer(cfg, positions, seed_from("positioned", seed))
    optimizer = FlatAdam(model.parameters(), lr=rate)
    generator = np.random.default_rng(seed_from("sums", seed))
    every = max(1, steps // 20)
    curves: dict[str, list] = {"step": [], "loss": []}
    since = {"loss": 0.0}
    for step in resuming.steps(resuming.Progress(curves, since), steps, model, optimizer, generator):
        for group in optimizer.param_groups:  # a short warm-up, then linearly down to a tenth
            group["lr"] = rate * min(step / 100, 1 - 0.9 * step / steps)
        digits = generator.integers(1, trained_digits + 1, (batch_size, 2))
        tokens, wanted, ids = draw(positions, format, digits, longest, generator, True)
        loss = F.cross_entropy(model(tokens[:, :-1], wanted, ids), tokens[:, 1:][wanted])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        since["loss"] += float(loss.detach())
        if step % every == 0:
            curves["step"].append(step)
            curves["loss"].append(since["loss"] / every)
            since["loss"] = 0.0
    found = {str(n): score(model, positions, format, n, tested, longest, seed) for n in tested_digits}
    metrics = {
        "accuracy": {n: whole for n, (whole, _) in found.items()},
        "token_accuracy": {n: single for n, (_, single) in found.items()},
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    return metrics, curves


def numbers(digits: np.ndarray, generator: np.random.Generator) -> list[int]:
    """A random whole number of so many digits each; 0 has one digit."""
    low = np.where(digits == 1, 0, 10 ** (digits - 1))
    return generator.integers(low, 10**digits).tolist()


def draw(
    positions: str, format: str, digits_B2: np.ndarray, longest: int, generator: np.random.Generator, training: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Tokens (B, T + 1), wanted (B, T) and ids (B, T) of random sums with operands of these lengths.

    Training draws spaces and the first id of a coupling at random; a test has no spaces and a fixed first id, 2.
    """
    form, kind = FORMATS[format], SCHEMES[positions].ids
    first, second = numbers(digits_B2[:, 0], generator), numbers(digits_B2[:, 1], generator)
    texts = [formats.write(form, a, b, generator if training else None) for a, b in zip(first, second, strict=True)]
    tokens, wanted = formats.encode(texts)
    batch, length = wanted.shape
    if kind == "random":
        seeded = torch.Generator().manual_seed(int(generator.integers(2**62)))
        return tokens, wanted, random_ids(batch, length, longest, seeded)
    if kind == "coupled":
        ids = torch.zeros(batch, length, dtype=torch.long)
        widths = digits_B2.max(1)
        most = (longest - 5) // 3  # digits of the longest operands that the table has ids for
        for row, (text, width) in enumerate(zip(texts, widths.tolist(), strict=True)):
            start = int(generator.integers(2, most - width + 3)) if training else 2
            found = formats.coupled_ids(text, start)
            ids[row, : min(len(found), length)] = torch.tensor(found[:length])
        return tokens, wanted, ids
    return tokens, wanted, None


@torch.no_grad()
def score(model, positions: str, format: str, digits: int, count: int, longest: int, seed: int) -> tuple[float, float]:
    """(share of sums that are right, share of their scored tokens) for operands of exactly so many digits."""
    generator = np.random.default_rng(seed_from("tested sums", seed, digits))
    right, tokens_right, tokens_all = 0, 0, 0
    for begin in range(0, count, 50):
        size = min(50, count - begin)
        tokens, wanted, ids = draw(positions, format, np.full((size, 2), digits), longest, generator, False)
        right_N = model(tokens[:, :-1], wanted, ids).argmax(-1) == tokens[:, 1:][wanted]
        right_BT = torch.ones_like(wanted)
        right_BT[wanted] = right_N
        right += int(right_BT.all(1).sum())
        tokens_right, tokens_all = tokens_right + int(right_N.sum()), tokens_all + len(right_N)
    return right / count, tokens_right / tokens_all


def longest_text(format: str, digits: int) -> int:
    """Most tokens that a text with operands of so many digits can have, its first and last ``$`` included."""
    each = 2 if FORMATS[format].hints or FORMATS[format].spaces else 1
    return each * 2 * digits + (2 if FORMATS[format].hints else 1) * (digits + 1) + 4


def check(positions: str, format: str, trained: int, tested: list[int], steps: int, batch_size: int, count: int):
    """Raise ConfigError where something does not fit, before any training."""
    one_of("positions", positions, SCHEMES)
    one_of("format", format, FORMATS)
    require(
        SCHEMES[positions].ids != "coupled" or FORMATS[format].couples,
        f"positions = {positions!r} with format = {format!r}: ids couple digits only in padded text, "
        "whose digits of equal significance can be told by place; use format = 'padded'",
    )
    require(trained >= 1, f"trained_digits = {trained}: must be at least 1")
    require(
        len(tested) >= 1 and all(1 <= n <= MOST_DIGITS for n in tested),
        f"tested_digits = {tested}: must be from 1 to {MOST_DIGITS}, at least one",
    )
    require(trained <= MOST_DIGITS, f"trained_digits = {trained}: must be at most {MOST_DIGITS}")
    for name, value in (("steps", steps), ("batch_size", batch_size), ("tested", count)):
        require(value >= 1, f"{name} = {value}: must be at least 1")
