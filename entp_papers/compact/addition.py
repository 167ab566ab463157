"""Addition written in five ways (§2.4.2), and the study of sums beyond the trained length.

    plain      $653+49=702$           most significant digit first
    reversed   $653+49=207$           the answer starts at its least significant digit
    hinted     $a3b5c6+a9b4=a2b0c7$   all reversed, a letter for the significance before every digit
    spaced     $6 53+ 49=207$         as reversed, random spaces in the operands; in training only
    padded     $653+049=2070$         as reversed, operands of one length, one more in the answer

``$`` begins a text, ends it, and pads rows. Position ids can couple digits of equal significance if
the text is padded and its answer reversed.

Letters: B batch, T tokens.
"""

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lab import resume as resuming
from entp_lab.studies import Study, at_least, descend, seeded
from entp_lib.config import ModelConfig
from entp_lib.model import parameter_count
from entp_lib.tasks.base import seed_from
from entp_lib.validation import one_of, require
from entp_papers.compact.positions import SCHEMES, PositionedTransformer, random_ids

HINTS = string.ascii_lowercase
MOST_DIGITS = 18  # of an operand, drawn as int64
SYMBOLS = "0123456789+=$ " + HINTS
ID_OF_BYTE = np.zeros(128, dtype=np.int64)
ID_OF_BYTE[list(SYMBOLS.encode())] = range(len(SYMBOLS))
# Tokens (B, T + 1), scored (B, T), position ids (B, T).
Texts = tuple[Tensor, Tensor, Tensor | None]
SPACE_CHANCE = 0.2  # before each digit of an operand


@dataclass(frozen=True)
class Format:
    """Notation of a sum. ``reverse``: which of its numbers start at the least significant digit."""

    reverse: tuple[int, ...] = (2,)
    hints: bool = False
    padded: bool = False
    spaces: bool = False


FORMATS = {
    "plain": Format(reverse=()),
    "reversed": Format(),
    "hinted": Format(reverse=(0, 1, 2), hints=True),
    "spaced": Format(spaces=True),
    "padded": Format(padded=True),
}


def write(form: Format, a: int, b: int, generator: np.random.Generator | None = None) -> str:
    """Write the sum of two natural numbers, ``$`` included; spaces where a generator is given."""
    numbers = [str(a), str(b), str(a + b)]
    if form.padded:
        width = len(str(max(a, b)))
        numbers = [n.zfill(width + (i == 2)) for i, n in enumerate(numbers)]
    if form.hints:
        numbers = [[HINTS[len(n) - 1 - i] + digit for i, digit in enumerate(n)] for n in numbers]
    pieces = [number[::-1] if i in form.reverse else number for i, number in enumerate(numbers)]
    if form.spaces and generator is not None:
        pieces[:2] = [
            [" " + d if generator.random() < SPACE_CHANCE else d for d in p] for p in pieces[:2]
        ]
    first, second, answer = map("".join, pieces)
    return f"${first}+{second}={answer}$"


def encode(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return tokens (B, T + 1), padded with ``$``, and a mask (B, T) of those before a scored one.

    The answer and the ``$`` that ends it are scored.
    """
    lengths_B = np.array([len(text) for text in texts])
    longest = int(lengths_B.max())
    rows = "".join(text.ljust(longest, "$") for text in texts).encode()
    tokens_BT = ID_OF_BYTE[np.frombuffer(rows, np.uint8)].reshape(len(texts), longest)
    places_T = np.arange(longest - 1)
    equals_B = (tokens_BT == SYMBOLS.index("=")).argmax(1)
    scored_BT = (places_T >= equals_B[:, None]) & (places_T < lengths_B[:, None] - 1)
    return torch.from_numpy(tokens_BT), torch.from_numpy(scored_BT)


def coupled_ids(text: str, start: int) -> list[int]:
    """Give digits of equal significance one position id: for ``$653+049=2070$`` and start 6

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        0 6 7 8 9 6 7 8 9 8 7 6 5 0

    The start is at least 2: the answer's last digit has the id start - 1, and 0 is for ``$``.
    """
    answer = text.strip("$").partition("=")[2]
    up = list(range(start, start + len(answer)))
    return [0, *up, *up, *(place - 1 for place in reversed(up)), 0]


def addition_study(
    positions: str,
    format: str,
    architecture: str,
    trained_digits: int = 5,
    tested_digits: Sequence[int] = (5, 7, 10, 15),
    n_layers: int = 2,
    n_heads: int = 4,
    width: int = 64,
    steps: int = 1500,
    batch_size: int = 64,
    rate: float = 1e-3,
    tested: int = 200,
    seed: int = 0,
) -> Study:
    """Train on sums with operands of 1 to ``trained_digits`` digits, and test longer ones (§3.4).

    Tests have operands of exactly ``tested_digits`` digits. A sum is right if every token of its
    answer, and the end, is right. Runs of a seed draw the same sums as long as their format and
    scheme draw nothing else: spaces, and ids that are random or start anywhere, come from the same
    generator. Metrics: ``accuracy`` and ``token_accuracy`` by tested length, ``parameters``.
    Curves: training loss, a mean over a twentieth of the steps. Ids couple digits only in padded
    text.
    """
    one_of("positions", positions, SCHEMES)
    one_of("format", format, FORMATS)
    shortest = min(tested_digits, default=0)
    at_least(1, trained_digits=trained_digits, tested_digits=shortest, tested=tested)
    at_least(1, steps=steps, batch_size=batch_size)
    most = max(*tested_digits, trained_digits)
    require(most <= MOST_DIGITS, f"digits = {most}: at most {MOST_DIGITS} are drawn")
    longest = longest_text(format, most)
    cfg = ModelConfig(architecture, n_layers, n_heads, width, len(SYMBOLS), longest)
    model = PositionedTransformer(cfg, positions, seed_from("positioned", seed))
    generator = np.random.default_rng(seed_from("sums", seed))

    def training_batch() -> Texts:
        digits_B2 = generator.integers(1, trained_digits + 1, (batch_size, 2))
        return draw(positions, format, digits_B2, longest, generator, True)

    def tests(digits: int) -> Iterator[Texts]:
        tested_generator = np.random.default_rng(seed_from("tested sums", seed, digits))
        for begin in range(0, tested, 50):
            digits_B2 = np.full((min(50, tested - begin), 2), digits)
            yield draw(positions, format, digits_B2, longest, tested_generator, False)

    test_sets = {digits: tests(digits) for digits in tested_digits}
    return learn_texts(model, training_batch, steps, rate, generator, test_sets)


def learn_texts(
    model: PositionedTransformer,
    batch: Callable[[], Texts],
    steps: int,
    rate: float,
    generator: np.random.Generator,
    tests: Mapping[int, Iterable[Texts]],
) -> Study:
    """Train on batches that ``generator`` draws, then test on texts by length.

    Metrics: by length the shares of texts and of scored tokens that are right. Curves: the loss by
    step, each a mean over a twentieth of the steps.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    every = max(1, steps // 20)
    curves = {"step": [], "loss": []}
    since = {"loss": 0.0}
    for step in resuming.steps(curves, steps, model, optimizer, since, generator):
        tokens, scored, ids = batch()
        loss = F.cross_entropy(model(tokens[:, :-1], scored, ids), tokens[:, 1:][scored])
        # a short warm-up, then linearly down to a tenth
        since["loss"] += descend(
            model, optimizer, [loss], rate * min(step / 100, 1 - 0.9 * step / steps)
        )
        if step % every == 0:
            curves["step"].append(step)
            curves["loss"].append(since["loss"] / every)
            since["loss"] = 0.0
    metrics = {"accuracy": {}, "token_accuracy": {}}
    for length, batches in tests.items():
        whole_B = []
        single_N = []
        for tokens, scored, ids in batches:
            with torch.no_grad():
                guesses_N = model(tokens[:, :-1], scored, ids).argmax(-1)
            right_N = guesses_N == tokens[:, 1:][scored]
            whole_B.append(torch.ones_like(scored).masked_scatter(scored, right_N).all(1))
            single_N.append(right_N)
        metrics["accuracy"][str(length)] = float(torch.cat(whole_B).double().mean())
        metrics["token_accuracy"][str(length)] = float(torch.cat(single_N).double().mean())
    return metrics | {"parameters": parameter_count(model, embeddings=True)}, curves


def draw(
    positions: str,
    format: str,
    digits_B2: np.ndarray,
    longest: int,
    generator: np.random.Generator,
    training: bool,
) -> Texts:
    """Draw sums with operands of these numbers of digits.

    Training draws spaces and the first id of a coupling at random; a test has no spaces and a fixed
    first id, 2.
    """
    form = FORMATS[format]
    kind = SCHEMES[positions].ids
    lows = np.where(digits_B2 == 1, 0, 10 ** (digits_B2 - 1))  # 0 has one digit
    highs = 10**digits_B2
    ranges = zip(lows.T, highs.T, strict=True)  # of the first operand, and of the second
    operands = [generator.integers(*ends).tolist() for ends in ranges]
    texts = [
        write(form, a, b, generator if training else None) for a, b in zip(*operands, strict=True)
    ]
    tokens, scored = encode(texts)
    batch, length = scored.shape
    ids = None
    if kind == "random":
        ids = random_ids(batch, length, longest, seeded(int(generator.integers(2**62))))
    elif kind == "coupled":
        ids = torch.zeros(batch, length, dtype=torch.long)
        most = (longest - 5) // 3  # the most digits of an operand that the table has ids for
        for row, text, width in zip(ids, texts, digits_B2.max(1).tolist(), strict=True):
            start = int(generator.integers(2, most - width + 3)) if training else 2
            found = torch.tensor(coupled_ids(text, start)[:length])
            row[: len(found)] = found
    return tokens, scored, ids


def longest_text(format: str, digits: int) -> int:
    """Return the most tokens of a text with operands of ``digits`` digits, with both ``$``."""
    form = FORMATS[format]
    operand = (1 + (form.hints or form.spaces)) * digits
    return 2 * operand + (1 + form.hints) * (digits + 1) + 4
