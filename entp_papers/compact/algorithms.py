"""The other tasks of Table 1 as texts, and a study of questions longer than the trained ones.

polynomial   $3x311=5$          3 + 1 · 3 + 1 · 3² mod 10: first x = 3, then the coefficients
sorting      $31415=11345$
summation    $12347=7$          mod 10
parity       $10011=n$          y where the number of ones is even
lego         $ap1bpacpbc=p$     a = +1, b = +a, c = +b, and what is c? p is plus, n is minus
"""

import numpy as np

from entp_lab.studies import Study, at_least
from entp_lib.config import ModelConfig
from entp_lib.tasks.base import seed_from
from entp_lib.validation import one_of, require
from entp_papers.compact.addition import SYMBOLS, Texts, encode, learn_texts
from entp_papers.compact.positions import SCHEMES, PositionedTransformer

VARIABLES = list("abcdefghijklm")


def digits(size: int, generator: np.random.Generator, base: int = 10) -> str:
    return "".join(map(str, generator.integers(base, size=size)))


def evaluate_polynomial(question: str) -> str:
    place, coefficients = question.split("x")
    return str(sum(int(c) * int(place) ** power for power, c in enumerate(coefficients)) % 10)


def draw_lego(size: int, generator: np.random.Generator) -> str:
    names = generator.permutation(VARIABLES)[:size].tolist()
    signs = generator.choice(["p", "n"], size).tolist()
    clauses = zip(names, signs, ["1", *names], strict=False)
    return "".join(map("".join, clauses)) + str(generator.choice(names))


def follow_lego(question: str) -> str:
    values = {"1": 1}
    for name, sign, source in zip(question[:-1:3], question[1::3], question[2::3], strict=True):
        values[name] = values[source] * (1 if sign == "p" else -1)
    return "p" if values[question[-1]] == 1 else "n"


# By task: functions that draw a question of a given size, and find the answer of a question.
ALGORITHMS = {
    "polynomial": (
        lambda size, generator: f"{digits(1, generator)}x{digits(size, generator)}",
        evaluate_polynomial,
    ),
    "sorting": (digits, lambda question: "".join(sorted(question))),
    "summation": (digits, lambda question: str(sum(map(int, question)) % 10)),
    "parity": (
        lambda size, generator: digits(size, generator, 2),
        lambda question: "ny"[question.count("1") % 2 == 0],
    ),
    "lego": (draw_lego, follow_lego),
}


def algorithm_study(
    task: str,
    architecture: str,
    positions: str,
    trained: int,
    tested: list[int],
    n_layers: int = 2,
    n_heads: int = 4,
    width: int = 32,
    steps: int = 1500,
    batch_size: int = 32,
    texts: int = 200,
    seed: int = 0,
) -> Study:
    """Train on questions of sizes from 1 to ``trained``, test on exactly the ``tested`` ones.

    Metrics and curves are those of ``addition_study``.
    """
    one_of("task", task, ALGORITHMS)
    # the ids of other schemes are drawn, or follow from the digits of a sum
    counted = [name for name, scheme in SCHEMES.items() if scheme.ids == "index"]
    one_of("positions", positions, counted)
    at_least(1, trained=trained, tested=min(tested, default=0), texts=texts)
    at_least(1, steps=steps, batch_size=batch_size)
    most = max(*tested, trained)
    require(
        task != "lego" or most <= len(VARIABLES),
        f"size = {most}: lego has {len(VARIABLES)} names of variables",
    )
    ask, solve = ALGORITHMS[task]
    longest = 4 * most + 8
    cfg = ModelConfig(architecture, n_layers, n_heads, width, len(SYMBOLS), longest)
    model = PositionedTransformer(cfg, positions, seed_from("positioned", seed))
    generator = np.random.default_rng(seed_from(task, seed))

    def batch(sizes: list[int], draw: np.random.Generator) -> Texts:
        questions = [ask(size, draw) for size in sizes]
        return *encode([f"${question}={solve(question)}$" for question in questions]), None

    def training_batch() -> Texts:
        return batch(generator.integers(1, trained + 1, batch_size).tolist(), generator)

    tests = {
        size: [
            batch([size] * texts, np.random.default_rng(seed_from(f"tested {task}", seed, size)))
        ]
        for size in tested
    }
    return learn_texts(model, training_batch, steps, 3e-3, generator, tests)
