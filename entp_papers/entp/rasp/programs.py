"""Algorithms 2, 4, 5 and 6: Count3 and Match3′ as loops and as RASP programs (appendices E, F).

    Count3(x_1..x_n)  = #{(i, j) in [n]^2 : x_i + x_j + x_n = 0 (mod n)}  (mod n)
    Match3′(x_1..x_t) = 1 if some pair (i, j) in [t]^2 has x_1 + x_i + x_j = 0 (mod 128), else 0

Algorithm 3, the faster loop for Count3, is ``entp_lib.tasks.counting.count3``. Two programs as
printed do less than the text says of them. Algorithm 4 needs every x_i < n, which the sequences of
§6.3 do not keep; Algorithm 5 looks ahead in two of its three attention calls. Both repairs are
parameters here.

Every function raises ConfigError where its sequence is empty or holds anything but integers from 0
to 2^31 - 1, which leaves room for sums and products in int64. The text that Algorithm 6 continues
may hold EOS = -1 too.
"""

import operator
from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from entp_lab.studies import at_least
from entp_lib.validation import require
from entp_papers.entp.rasp.interpreter import (
    equals,
    full,
    indices,
    kqv,
    sel_width,
    select,
    seq_map,
    tok_map,
    true,
)

EOS = -1
LARGEST = 2**31 - 1
MODULUS = 128  # of Match3′


def count3_quadratic(x: Sequence[int]) -> int:
    """Compute Count3 by Algorithm 2: every pair is tried. O(n²) time, O(1) space."""
    n = len(x)
    return sum((x[i] + x[j] + x[-1]) % n == 0 for i in range(n) for j in range(n)) % n


def _tokens(x: Sequence[int], lowest: int = 0) -> list[int]:
    """Return the elements as Python integers, checked."""
    right = f"must hold integers from {lowest} to {LARGEST}"
    require(len(x) > 0, f"x is empty: {right}")
    for i, value in enumerate(x):
        fits = isinstance(value, (int, np.integer)) and lowest <= value <= LARGEST
        require(fits, f"x[{i}] = {value!r}: {right}")
    return [int(value) for value in x]


def count3_encoder(x: Sequence[int], reduce: bool = True) -> ndarray:
    """Run Algorithm 4, Count3 by an encoder with a fixed number of layers, (n,).

    Every position holds the answer. ``reduce`` first takes x mod n, which an encoder can do as it
    knows n. Without it the program is as printed, and an x_i of n or more is a ConfigError.
    """
    x_n = np.array(_tokens(x))
    n = len(x_n)
    i = x_n.argmax()
    require(
        reduce or x_n[i] < n,
        f"x[{i}] = {x_n[i]}: must be below the length {n} where reduce is False",
    )
    return _count3_encoder_as_printed(x_n % n)


def _count3_encoder_as_printed(x: ndarray) -> ndarray:
    """Run Algorithm 4 without its precondition; wrong on some x with an x_i of n or more."""

    # This is a mod b for 0 <= a < 2b only, which two ReLU layers can do; they cannot do a full mod.
    def subtract_once(a: int, b: int) -> int:
        return a if a < b else a - b

    position = indices(x)
    n = sel_width(select(k=x, q=x, pred=true, name="n"))
    last = kqv(k=position, q=n - 1, v=x, pred=equals, name="last element")
    missing = seq_map(n - x, n, subtract_once)  # -x_i mod n
    reached = seq_map(x + last, n, subtract_once)  # x_i + x_n mod n
    pairs = sel_width(select(k=reached, q=missing, pred=equals, name="pairs per element"))
    # attention averages: the sum over n positions is the mean of n times the values
    one = full(x, 1)
    count = kqv(k=one, q=one, v=n * pairs, pred=equals, name="sum of pairs")
    # count - i n for i = 0 .. n - 1 holds count mod n once, but for count = n²: then nothing is
    # selected, which gives 0
    candidates = count - position * n
    return kqv(k=candidates, q=n, v=candidates, pred=lambda c, m: 0 <= c < m, name="count mod n")


def count3_blocks(x: Sequence[int], block: int) -> tuple[int, int]:
    """Return Count3 and the number of steps it takes with ``block`` counters.

    This is Algorithm 3's table of residues, but only ``block`` of them at a time. Every block takes
    two passes over x, so the time is 2 n²/s with s numbers of memory. With s = √n that is neither
    Ω(n²) time nor Ω(n) space: a counterexample to Conjecture 6.1.
    """
    tokens = _tokens(x)
    n = len(tokens)
    total = 0
    steps = 0
    for start in range(0, n, block):
        counters = dict.fromkeys(range(start, min(start + block, n)), 0)
        for value in tokens:
            if value % n in counters:
                counters[value % n] += 1
            steps += 1
        for value in tokens:
            total += counters.get(-(value + tokens[-1]) % n, 0)
            steps += 1
    return total % n, steps


def match3_decoder(x: Sequence[int], modulus: int = MODULUS, causal: bool = True) -> ndarray:
    """Run Algorithm 5, Match3′ at every position by a decoder, (n,).

    ``causal`` False is the program as printed: only the first of its three attention calls is
    causal, and every position gets the answer of the last one. ``modulus`` is at least 1; the
    paper's bit mask is mod 128.
    """
    x = np.array(_tokens(x))
    at_least(1, modulus=modulus)
    first = kqv(k=indices(x), q=full(x, 0), v=x, pred=equals, causal=True, name="first element")
    missing = -x % modulus
    reached = (first + x) % modulus
    attention = select(k=missing, q=reached, pred=equals, causal=causal, name="pairs per element")
    one = full(x, 1)
    most = kqv(
        k=one,
        q=one,
        v=sel_width(attention),
        pred=equals,
        reduction="max",
        causal=causal,
        name="most pairs so far",
    )
    return tok_map(most, lambda a: min(a, 1))


def count3_chain_of_thought(x: Sequence[int]) -> ndarray:
    """Run Algorithm 6: return the next token after every position, (T,).

    The text x is a prompt, EOS = -1 and what is generated so far. After x_1..x_n and EOS a decoder
    writes -x_i mod n for every i; then for every j how many of these equal x_j + x_n mod n; then
    the sum of these counts mod n, the answer; then EOS. Residues are written plus 1: 0 stands for a
    key that is masked. Before EOS every next token is EOS. ConfigError where x starts with EOS.
    """
    x = np.array(_tokens(x, lowest=EOS))
    require(x[0] != EOS, f"x[0] = {EOS}: there must be at least one integer before EOS")
    position = indices(x)
    n = kqv(k=x, q=full(x, EOS), v=position, pred=equals, reduction="min", causal=True, name="n")
    # Without an EOS yet, this is a length that makes every mask below false except the last.
    n = tok_map(n, lambda a: a or -2)
    # printed without causal; no position before the last element asks for it
    last = kqv(k=position, q=n - 1, v=x, pred=equals, name="last element")
    here = kqv(k=x, q=x, v=position, pred=true, reduction="max", causal=True, name="position")
    x_i = kqv(k=position, q=here - n, v=x, pred=equals, reduction="max", causal=True, name="x_i")
    x_j = kqv(
        k=position, q=here - 2 * n, v=x, pred=equals, reduction="max", causal=True, name="x_j"
    )
    missing = (n - x_i) % n + 1
    reached = (last + x_j) % n + 1

    # what is written after position p is read at p + 1
    writes_residue = (n <= position) & (position < 2 * n)
    writes_count = (2 * n <= position) & (position < 3 * n)
    holds_residue = (n < position) & (position <= 2 * n)
    holds_count = (2 * n < position) & (position <= 3 * n)

    residues = x * holds_residue
    same = select(
        k=residues,
        q=reached,
        pred=lambda a, b: a == b and a != 0,
        causal=True,
        name="pairs per element",
    )
    counts = n * x * holds_count  # times n, as attention averages over n counts
    count = kqv(
        k=holds_count, q=holds_count, v=counts, pred=operator.and_, causal=True, name="sum of pairs"
    )
    return (
        missing * writes_residue
        + sel_width(same) * writes_count
        + count % n * (position == 3 * n)
        + EOS * (position > 3 * n)
    )


def generate_chain_of_thought(prompt: Sequence[int]) -> tuple[list[int], int]:
    """Run Algorithm 6 token by token after x_1..x_n and EOS, which is appended here (remark 6.4).

    Returns the generated tokens, EOS included, and the answer: Count3 of the prompt, the token
    before EOS. There are 2n + 2 tokens, n residues, n counts, the answer and EOS, and as many
    passes of the program.
    """
    tokens = [*_tokens(prompt), EOS]
    start = len(tokens)
    while len(tokens) == start or tokens[-1] != EOS:
        tokens.append(int(count3_chain_of_thought(tokens)[-1]))
    return tokens[start:], tokens[-2]
