"""Addition written in five ways (§2.4.2), and read back.

    plain      $653+49=702$           most significant digit first
    reversed   $653+49=207$           the answer from its least significant digit on
    hinted     $a3b5c6+a9b4=a2b0c7$   all reversed, a letter for the significance before every digit
    spaced     $6 53+ 49=207$         as reversed, with spaces in the operands at random; in training only
    padded     $653+049=2070$         as reversed, operands of one length, an answer of one digit more

``$`` begins a text, ends it, and fills up rows. Position ids can couple digits of equal significance where the text is
padded and its answer reversed.

Letters: B batch, T tokens.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.validation import check_types, require

HINTS = string.ascii_lowercase
SYMBOLS = "0123456789+=$ " + HINTS
IDS = {symbol: i for i, symbol in enumerate(SYMBOLS)}
ID_OF_BYTE = np.zeros(128, dtype=np.int64)
ID_OF_BYTE[list(SYMBOLS.encode())] = range(len(SYMBOLS))
END = IDS["$"]
REVERSED = {"none": (), "answer": (2,), "all": (0, 1, 2)}  # which of the three numbers, by Format.reverse
SPACE_CHANCE = 0.2  # before each digit of an operand


@dataclass(frozen=True)
class Format:
    """How a sum is written; ``FORMATS`` names the five of the paper."""

    reverse: Literal["none", "answer", "all"] = "none"
    hints: bool = False
    padded: bool = False
    spaces: bool = False

    def __post_init__(self):
        check_types(self)

    @property
    def couples(self) -> bool:
        """Whether positions of equal significance can share an id."""
        return self.padded and self.reverse == "answer" and not self.hints and not self.spaces


FORMATS = {
    "plain": Format(),
    "reversed": Format(reverse="answer"),
    "hinted": Format(reverse="all", hints=True),
    "spaced": Format(reverse="answer", spaces=True),
    "padded": Format(reverse="answer", padded=True),
}


def write(form: Format, a: int, b: int, generator: np.random.Generator | None = None) -> str:
    """The sum of two numbers as text, ``$`` included; spaces only where a generator is given.

    Raises ConfigError for negative numbers and, with hints, for answers longer than the alphabet.
    """
    require(a >= 0 and b >= 0, f"{a} + {b}: operands must not be negative")
    numbers = [str(a), str(b), str(a + b)]
    if form.padded:
        width = max(len(numbers[0]), len(numbers[1]))
        numbers = [n.zfill(width + (i == 2)) for i, n in enumerate(numbers)]
    if form.hints:
        longest = max(map(len, numbers))
        require(longest <= len(HINTS), f"{longest} digits: there are hints for {len(HINTS)}")
        # a letter tells significance: from the right where all is reversed, else from the left of the longest number
        numbers = [hinted(n, longest, form.reverse == "all") for n in numbers]
    pieces = [number[::-1] if i in REVERSED[form.reverse] else number for i, number in enumerate(numbers)]
    if form.spaces and generator is not None:
        pieces[:2] = [[" " + d if generator.random() < SPACE_CHANCE else d for d in p] for p in pieces[:2]]
    first, second, answer = map("".join, pieces)
    return f"${first}+{second}={answer}$"


def hinted(number: str, longest: int, from_right: bool) -> list[str]:
    """Letter and digit pairs, most significant digit first."""
    places = range(len(number) - 1, -1, -1) if from_right else range(longest - len(number), longest)
    return [HINTS[place] + digit for place, digit in zip(places, number, strict=True)]


def read(form: Format, text: str) -> tuple[int, int, int]:
    """The two operands and the answer of a text. Raises ConfigError where it is none of this format."""
    body = text.replace(" ", "")
    require(
        body.startswith("$") and body.endswith("$") and body.count("+") == 1 and body.count("=") == 1,
        f"{text!r}: not of the form $…+…=…$",
    )
    operands, answer = body[1:-1].split("=")
    parts = [*operands.split("+"), answer]
    if form.hints:
        parts = ["".join(c for c in p if c.isdigit()) for p in parts]
    require(all(p.isdigit() for p in parts), f"{text!r}: a number holds something else than digits")
    return tuple(int(p[::-1] if i in REVERSED[form.reverse] else p) for i, p in enumerate(parts))


def encode(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Tokens (B, T + 1), filled up with ``$``, and which of the first T are followed by a scored token, (B, T).

    Scored are the answer and the ``$`` that ends it.
    """
    lengths_B = np.fromiter(map(len, texts), np.int64, len(texts))
    longest = int(lengths_B.max())
    rows = "".join(text.ljust(longest, "$") for text in texts).encode()
    tokens_BT = ID_OF_BYTE[np.frombuffer(rows, np.uint8)].reshape(len(texts), longest)
    places_T = np.arange(longest - 1)
    equals_B = (tokens_BT == IDS["="]).argmax(1)
    wanted_BT = (places_T >= equals_B[:, None]) & (places_T < lengths_B[:, None] - 1)
    return torch.from_numpy(tokens_BT), torch.from_numpy(wanted_BT)


def coupled_ids(text: str, start: int) -> list[int]:
    """Position ids with equal significance coupled: for ``$653+049=2070$`` and start 6

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        0 6 7 8 9 6 7 8 9 8 7 6 5 0

    Raises ConfigError where operands have different lengths, the answer is not one digit longer, or start is below 2
    (the answer's last digit has the id start - 1, and 0 is for ``$``).
    """
    require(start >= 2, f"start = {start}: must be at least 2")
    body = text.strip("$")
    operands, _, answer = body.partition("=")
    first, _, second = operands.partition("+")
    require(
        all(p.isdigit() for p in (first, second, answer)) and len(first) == len(second) == len(answer) - 1,
        f"{text!r}: position ids couple digits only where operands are padded to one length, "
        "and the answer to one digit more",
    )
    width = len(first)
    up = [start + i for i in range(width + 1)]
    return [0, *up, *up, *[start + width - 1 - i for i in range(width + 1)], 0]
