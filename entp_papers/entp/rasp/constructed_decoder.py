"""Count3 by a decoder whose weights are written down: an ordinary ``Transformer``, with LayerNorm
and GELU.

Lemma 6.2 speaks of a fixed width. Here the width grows with the length and the depth need not: the
last token holds the histogram h of its prefix as shares, and Count3 is n² Σ_s (h ∗ h)(s) [n divides
s + x_n], mod n.

- First layer: uniform attention averages one-hot tokens, which is h. Its MLP convolves h with
  itself: the Fourier transform in, squares by the curvature of GELU at 0 (gelu(x) + gelu(-x) =
  √(2/π) x² + O(x⁴), and from x and 2x to O(x⁶)), the inverse out.
- All MLPs but the last two: for each length n and residue r of x_n a hidden unit marks the s with n
  | s + r.
- Last MLP but one: the (h ∗ h)(s) at the marked s are added up: mean = count / n².
- Last layer: attention looks up floor = count div n among the positions 0..n - 1, as the encoder of
  Lemma 6.3 does; a unit for each n computes the rest, count - n · floor. The logits are 4 (2 rest ·
  v - v²), by the tied embedding.

LayerNorm is made the identity: two constants outweigh all else in the variance, and all weights
that read a state add up to zero, so that its mean cancels. Attention reads embeddings alone, so
that other tokens' states do not matter.

Letters: V vocabulary, N longest length, S = 2V - 1 sums of two symbols, F hidden units, D width.
"""

import math

import torch
from torch import Tensor

from entp_lib.config import SIZES, ModelConfig
from entp_lib.model import Block, Transformer
from entp_lib.validation import require
from entp_papers.entp.rasp.constructed import GAP, hard_cases

STILL = 2.0**16  # the constants of LayerNorm, ±; a state's other entries are smaller by far
# The factor before squaring: a larger one makes x⁶ matter, a smaller one the rounding of fp32.
SMALL = 2.0**-4
SURE = 16.0  # gelu(±SURE / 2) is a ReLU's value in fp64
# by how much the answer's logit leads; the last token's own one-hot, which stays in the state,
# takes 1
STEP = 4.0

# Hidden units: weights in (F, D), biases (F,), weights out (F, D).
Units = tuple[Tensor, Tensor, Tensor]


def parts(vocab_size: int, max_length: int) -> dict[str, slice]:
    """Return the coordinates of a token's state by what they hold."""
    sizes = dict(token=vocab_size, place=max_length, share=vocab_size, sums=2 * vocab_size - 1)
    found = {}
    start = 0
    for name, size in (sizes | dict(mean=1, floor=1, zero=1, plus=1, minus=1)).items():
        found[name] = slice(start, start + size)
        start += size
    return found


def least_width(vocab_size: int, max_length: int) -> int:
    """Return the number of entries of a token's state: 4V + N + 4."""
    return parts(vocab_size, max_length)["minus"].stop


def early_units(vocab_size: int, max_length: int) -> int:
    """Return the number of hidden units before the last two layers.

    There are twelve for each frequency, and one for each length and residue.
    """
    return 12 * (vocab_size - 1) + max_length * (max_length + 1) // 2


def least_layers(vocab_size: int, max_length: int, width: int) -> int:
    """Return the layers needed: those for the early units at 4 ``width`` each, and the last two."""
    return 2 + math.ceil(early_units(vocab_size, max_length) / (4 * width))


def smallest_decoder(vocab_size: int, max_length: int) -> ModelConfig:
    """Return the size with the fewest parameters that ``count3_decoder`` can fill, with
    one head.
    """
    least = least_width(vocab_size, max_length)
    units = early_units(vocab_size, max_length)
    depths = range(3, least_layers(vocab_size, max_length, least) + 1)
    sizes = [(layers, max(least, math.ceil(units / (4 * (layers - 2))))) for layers in depths]
    layers, width = min(sizes, key=lambda size: size[0] * size[1] ** 2)
    return ModelConfig("decoder", layers, 1, width, vocab_size, max_length)


def longest_held(size: str) -> int:
    """Return the longest length that a model of one of the paper's sizes has room for.

    There are as many symbols as positions.
    """
    shape = SIZES[size]
    n = 2
    while (
        least_width(n, n) <= shape["width"]
        and least_layers(n, n, shape["width"]) <= shape["n_layers"]
    ):
        n += 1
    return n - 1


class Rows:
    """Weights of a model by the names of ``parts``."""

    def __init__(self, cfg: ModelConfig):
        self.width = cfg.width
        self.parts = parts(cfg.vocab_size, cfg.max_length)

    def __call__(self, **blocks: Tensor) -> Tensor:
        """Return rows (F, D) from a block of columns (F, size), or (size,), for each name."""
        rows = max(len(torch.atleast_2d(block)) for block in blocks.values())
        table_FD = torch.zeros(rows, self.width, dtype=torch.float64)
        for name, block in blocks.items():
            table_FD[:, self.parts[name]] = block
        return table_FD

    def reading(self, **blocks: Tensor) -> Tensor:
        """Return rows that add up to zero, so that a state's mean does not matter to them."""
        table_FD = self(**blocks)
        table_FD[:, self.parts["zero"]] = -table_FD.sum(1, keepdim=True)
        return table_FD


@torch.no_grad()
def count3_decoder(cfg: ModelConfig) -> Transformer:
    """Build a model of the given size, in fp64, whose most likely next token after every prefix is
    Count3 of it.

    Any architecture works, because attention reads only embeddings. Layers and width beyond those
    needed stay idle. ConfigError for a size that is too small names the least that suffices.
    """
    vocab = cfg.vocab_size
    length = cfg.max_length
    width = cfg.width
    least = least_width(vocab, length)
    layers = least_layers(vocab, length, width)
    require(
        vocab >= max(2, length),
        f"vocab_size = {vocab}: must be at least {max(2, length)} for length {length}",
    )
    require(
        width >= least,
        f"width = {width}: must be at least {least} for {vocab} symbols and length {length}",
    )
    require(
        cfg.n_layers >= layers,
        f"n_layers = {cfg.n_layers}: must be at least {layers} at width {width}",
    )
    model = Transformer(cfg).double()
    rows = Rows(cfg)
    for name, p in model.named_parameters():
        p.fill_(
            math.sqrt(2 * STILL**2 / width) if "ln_" in name and name.endswith("weight") else 0.0
        )
    symbols = identity(vocab)
    model.embedding.weight.copy_(rows(token=symbols))
    still = torch.full((length, 1), STILL)
    model.positions.weight.copy_(rows(place=identity(length), plus=still, minus=-still))

    first, *_, gate, last = model.blocks
    first.attention.qkv.weight[2 * width :][:vocab] = rows.reading(token=symbols)
    first.attention.out.weight[rows.parts["share"], :vocab] = symbols
    early = zip(convolution(rows, vocab), marks(rows, vocab, length), strict=True)
    pieces = zip(*(torch.cat(both).split(4 * width) for both in early), strict=True)
    for block, units in zip(model.blocks, pieces, strict=False):
        set_units(block, units)
    set_units(gate, marked_sums(rows, vocab, length))
    set_division(rows, last, length)
    return model.eval()


def identity(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def set_units(block: Block, units: Units) -> None:
    """Write ``units`` into the first hidden units of a block."""
    reads_FD, bias_F, writes_FD = units
    block.fc_in.weight[: len(bias_F)] = reads_FD
    block.fc_in.bias[: len(bias_F)] = bias_F
    block.fc_out.weight[:, : len(bias_F)] = writes_FD.T


def convolution(rows: Rows, vocab: int) -> Units:
    """Return units that add (h ∗ h)(s) - 1/S to ``sums``.

    They compute a Fourier transform of length S without its constant.
    """
    sums = 2 * vocab - 1
    turns_F1 = 2 * math.pi / sums * torch.arange(1, vocab, dtype=torch.float64)[:, None]
    turns_FS = turns_F1 * torch.arange(sums)
    out_cos = turns_FS.cos()
    out_sin = turns_FS.sin()
    cos = out_cos[:, :vocab]
    sin = out_sin[:, :vocab]
    squared = SMALL * torch.cat([cos, sin, cos + sin])
    added = torch.cat([out_cos - out_sin, -out_cos - out_sin, out_sin]) / (
        6 * sums * SMALL**2 * math.sqrt(2 / math.pi)
    )
    reads_FD = rows.reading(share=torch.cat([squared, -squared, 2 * squared, -2 * squared]))
    return (
        reads_FD,
        torch.zeros(len(reads_FD)),
        rows(sums=torch.cat([16 * added, 16 * added, -added, -added])),
    )


def marks(rows: Rows, vocab: int, longest: int) -> Units:
    """Return a unit for each n and residue r of the last token.

    The unit of the right n and r adds 2 at every s with n | s + r.
    """
    pairs = torch.tensor([(n, r) for n in range(1, longest + 1) for r in range(n)])
    n_F1, r_F1 = pairs.split(1, dim=1)
    token = (torch.arange(vocab) - r_F1) % n_F1 == 0
    place = torch.arange(1, longest + 1) == n_F1
    completed = (torch.arange(2 * vocab - 1) + r_F1) % n_F1 == 0
    reads_FD = SURE * rows.reading(token=token, place=place)
    return reads_FD, torch.full((len(pairs),), -1.5 * SURE), rows(sums=completed) * 4 / SURE


def marked_sums(rows: Rows, vocab: int, longest: int) -> Units:
    """Return units that add (h ∗ h)(s), 0 or at least 1/N², to ``mean`` where s is marked."""
    gain = SURE * longest**2
    sums = 2 * vocab - 1
    bias_F = torch.full((sums,), gain * (1 / sums - 2), dtype=torch.float64)
    return (
        rows.reading(sums=gain * identity(sums)),
        bias_F,
        rows(mean=torch.full((sums, 1), 1 / gain)),
    )


def set_division(rows: Rows, block: Block, longest: int) -> None:
    """Make a block find floor and rest of count / n, and write the logits of the rest.

    Scores (mean - 1/2n + 1/2n²) k - k²/2n are largest at k = floor, by 1/2n² or more. If the count
    is n², floor is n, a position that no token has: n - 1 is found and the rest is n, for which a
    second unit gives the answer 0.
    """
    n = torch.arange(1, longest + 1, dtype=torch.float64)
    k = n - 1
    n_F1 = n[:, None]
    width = rows.width
    sharp = torch.tensor(2 * longest**2 * GAP * (width // block.attention.n_heads) ** 0.5)
    qkv = block.attention.qkv.weight
    qkv[0] = rows.reading(mean=sharp[None], place=sharp * (1 / n**2 - 1 / n) / 2)
    qkv[1] = rows.reading(place=-sharp / (2 * n))
    qkv[width] = rows.reading(place=k)
    qkv[width + 1] = rows.reading(place=k**2)
    qkv[2 * width] = rows.reading(place=k / longest)
    block.attention.out.weight[rows.parts["floor"], 0] = 1.0

    far = 2.0 * longest**2  # more than the rest that a unit for another length could find
    reads_FD = SURE * rows.reading(
        mean=n_F1**2, floor=-longest * n_F1, place=far * identity(longest)
    )
    v = torch.arange(rows.parts["token"].stop, dtype=torch.float64)
    logits = rows(token=(2 * STEP / SURE * v).expand(longest, -1))
    zero = rows(token=(4 * STEP * longest**2 / SURE * (v == 0)).expand(longest, -1))
    bias_F = SURE * (torch.cat([0 * n, 0.5 - n]) - far)
    set_units(block, (torch.cat([reads_FD, reads_FD]), bias_F, torch.cat([logits, zero])))
    block.fc_out.bias[rows.parts["token"]] = -STEP * v**2


def hard_sequences(length: int, vocab: int) -> Tensor:
    """Return sequences (B, length) of which every prefix is hard.

    They are ``hard_cases``, alternating extremes, and sequences that are all 0 or all V - 1 except
    at one place.
    """
    top = vocab - 1
    spikes = torch.eye(length, dtype=torch.long)
    return torch.cat(
        [
            hard_cases(length, top),
            torch.arange(length)[None] % 2 * top,
            spikes * top,
            (1 - spikes) * top,
        ]
    )
