"""Table 5's prompt: code of Algorithm 2, a list of seeds, a question; its answer; and how an answer is read.

Our text of the paper lacks three lines of the printed code (the length, the counter's start and its step), without
which it does not run; they are put back here, and the code gives the printed output.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from entp_lib.validation import one_of, require

COUNT3_CODE = """def f(x: list[int]) -> int:
    n = len(x)
    count = 0
    for i in range(n):
        for j in range(n):
            if (x[i] + x[j] + x[-1]) % n == 0:
                count += 1
    return count % n
"""
COUNT2_CODE = """def f(x: list[int]) -> int:
    n = len(x)
    count = 0
    for i in range(n):
        if (x[i] + x[-1]) % n == 0:
            count += 1
    return count % n
"""
CODE = {3: COUNT3_CODE, 2: COUNT2_CODE}


def question(seed: Sequence[int], more: int, order: int, with_code: bool) -> str:
    """The prompt for ``more`` numbers after ``seed``: Table 5's, or only its list and a question without the code."""
    one_of("order", order, CODE)
    require(len(seed) >= 1 and more >= 1, f"a prompt needs a seed and at least one number to find, not {more}")
    numbers = as_list(seed)
    if with_code:
        task = f"x = {numbers}\nfor _ in range({more}):\n    x.append(f(x))\nWhat is the output of this code ?\n"
        return f"{CODE[order]}{task}Output: "
    return f"x = {numbers}\nWhat are the next {more} numbers ?\nOutput: "


def as_list(numbers: Sequence[int]) -> str:
    """The numbers as Python prints a list: what the model is to answer."""
    return str([int(x) for x in numbers])


def read_answer(text: str, length: int) -> list[int] | None:
    """The list of ``length`` whole numbers that ``text`` begins with; None where it is no such list.

    What follows the list does not matter: a model that was not taught to stop goes on writing.
    """
    found = re.match(r"\s*(\[[^\[\]]*\])", text)
    if found is None:
        return None
    try:
        numbers = ast.literal_eval(found[1])
    except (ValueError, SyntaxError):
        return None
    if len(numbers) != length or any(type(x) is not int for x in numbers):
        return None
    return numbers


@dataclass(frozen=True)
class Judged:
    """One answer: what was asked, what came, and how it was judged (``right``, ``wrong`` or ``invalid``)."""

    asked: list[int]
    right: list[int]
    text: str
    verdict: str
    right_numbers: int  # of those after the seed, 0 where the answer is invalid


def judged(text: str, sequence: Sequence[int], seed_length: int) -> Judged:
    """``text`` against the whole sequence: right only if every number is, those of the seed included."""
    wanted = [int(x) for x in sequence]
    found = read_answer(text, len(wanted))
    if found is None:
        return Judged(wanted[:seed_length], wanted, text, "invalid", 0)
    hits = sum(a == b for a, b in zip(found[seed_length:], wanted[seed_length:], strict=True))
    return Judged(wanted[:seed_length], wanted, text, "right" if found == wanted else "wrong", hits)


def tally(answers: Sequence[Judged]) -> dict[str, float]:
    """Shares of answers by verdict, and of single numbers right (none of an invalid answer)."""
    require(bool(answers), "no answers to count")
    count = Counter(a.verdict for a in answers)
    numbers = sum(len(a.right) - len(a.asked) for a in answers)
    return {
        "answers": len(answers),
        "exact_match": count["right"] / len(answers),
        "invalid": count["invalid"] / len(answers),
        "numbers_right": sum(a.right_numbers for a in answers) / numbers,
    }


def examples(answers: Sequence[Judged], most: int = 5) -> dict[str, list[dict[str, str]]]:
    """At most ``most`` answers that are right and as many that are not, for people to read."""

    def shown(a: Judged) -> dict[str, str]:
        return {"asked": as_list(a.asked), "right": as_list(a.right), "answered": a.text[:120], "verdict": a.verdict}

    return {
        "right": [shown(a) for a in answers if a.verdict == "right"][:most],
        "wrong": [shown(a) for a in answers if a.verdict != "right"][:most],
    }
