"""The six small tasks of table 1, each with questions from a generator and a solver that reads the question.

Solvers go by the text alone, so that they check the generators. Where the paper gives no rule (parity of how many ones,
signs of a chain), the question says what is asked.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from entp_lib.validation import one_of, require


@dataclass(frozen=True)
class SmallTask:
    """``ask`` makes a question and its answer of a size; ``solve`` finds the answer of a question."""

    ask: Callable[[np.random.Generator, int], tuple[str, str]]
    solve: Callable[[str], str]


def ask_addition(generator: np.random.Generator, size: int) -> tuple[str, str]:
    """Two numbers of up to ``size`` digits."""
    a, b = (int("".join(map(str, generator.integers(0, 10, size)))) for _ in range(2))
    return f"Compute: {a} + {b}", str(a + b)


def solve_addition(question: str) -> str:
    a, b = re.findall(r"\d+", question)
    digits, carry = [], 0
    width = max(len(a), len(b))
    for x, y in zip(reversed(a.zfill(width)), reversed(b.zfill(width)), strict=True):
        carry, digit = divmod(int(x) + int(y) + carry, 10)
        digits.append(str(digit))
    return ("".join([*digits, str(carry)])[::-1]).lstrip("0") or "0"


def ask_polynomial(generator: np.random.Generator, size: int) -> tuple[str, str]:
    """A polynomial with ``size`` terms at one digit, modulo 10."""
    x, factors = int(generator.integers(10)), generator.integers(0, 10, size).tolist()
    terms = " + ".join(f"{c}x^{k}" for k, c in enumerate(factors))
    return f"Evaluate x = {x} in ({terms}) mod 10", str(sum(c * x**k for k, c in enumerate(factors)) % 10)


def solve_polynomial(question: str) -> str:
    x = int(re.search(r"x = (\d)", question)[1])
    total = 0
    for factor in reversed(re.findall(r"(\d)x\^", question)):  # Horner's rule
        total = (total * x + int(factor)) % 10
    return str(total)


def ask_sorting(generator: np.random.Generator, size: int) -> tuple[str, str]:
    """``size`` digits to be put in ascending order."""
    values = generator.integers(0, 10, size).tolist()
    return f"Sort the numbers: {', '.join(map(str, values))}", ", ".join(map(str, sorted(values)))


def solve_sorting(question: str) -> str:
    found = re.findall(r"\d", question)
    return ", ".join(d for digit in "0123456789" for d in [digit] * found.count(digit))


def ask_summation(generator: np.random.Generator, size: int) -> tuple[str, str]:
    """The sum of ``size`` digits modulo 10."""
    values = generator.integers(0, 10, size).tolist()
    return f"Compute: ({' + '.join(map(str, values))}) mod 10", str(sum(values) % 10)


def solve_summation(question: str) -> str:
    total = 0
    for value in re.findall(r"\d+", question.removesuffix("mod 10")):
        total = (total + int(value)) % 10
    return str(total)


def ask_parity(generator: np.random.Generator, size: int) -> tuple[str, str]:
    """Whether ``size`` bits hold an even number of ones."""
    bits = generator.integers(0, 2, size).tolist()
    return f"Is the number of 1's even in {bits}?", "Yes" if sum(bits) % 2 == 0 else "No"


def solve_parity(question: str) -> str:
    even = True
    for bit in re.findall(r"[01]", question.split(" in ")[1]):
        even = even != (bit == "1")
    return "Yes" if even else "No"


def ask_chain(generator: np.random.Generator, size: int) -> tuple[str, str]:
    """A chain of ``size`` variables, plus or minus the one before, in random order; the last one's value is asked."""
    require(size <= 26, f"size = {size}: a chain has at most 26 variables")
    names = [chr(ord("a") + i) for i in range(size)]
    signs = generator.choice([-1, 1], size).tolist()
    facts = [f"{n} = {'+' if s > 0 else '-'}{p}" for n, s, p in zip(names, signs, ["1", *names], strict=False)]
    text = "; ".join(facts[i] for i in generator.permutation(size))
    return f"{text}. Find {names[-1]}", "+1" if np.prod(signs) > 0 else "-1"


def solve_chain(question: str) -> str:
    facts, asked = question.split(". Find ")
    known = dict(fact.split(" = ") for fact in facts.split("; "))
    sign, at = 1, asked
    while at != "1":
        sign, at = sign * (1 if known[at][0] == "+" else -1), known[at][1:]
    return "+1" if sign > 0 else "-1"


SMALL_TASKS = {
    "addition": SmallTask(ask_addition, solve_addition),
    "polynomial": SmallTask(ask_polynomial, solve_polynomial),
    "sorting": SmallTask(ask_sorting, solve_sorting),
    "summation": SmallTask(ask_summation, solve_summation),
    "parity": SmallTask(ask_parity, solve_parity),
    "chain": SmallTask(ask_chain, solve_chain),
}


def ask(name: str, size: int, seed: int) -> tuple[str, str]:
    """A question of the named task and its answer. Raises ConfigError for another name and a size below 1."""
    one_of("task", name, SMALL_TASKS)
    require(size >= 1, f"size = {size}: must be at least 1")
    return SMALL_TASKS[name].ask(np.random.default_rng(seed), size)
