"""Sums written in five formats, the coupling of the paper's example, and the study of length."""

import json

import numpy as np
import pytest
from mistakes import named

from entp_papers.compact import addition
from entp_papers.compact.addition import FORMATS, addition_study

TINY = dict(trained_digits=2, tested_digits=[2, 3], n_layers=1, n_heads=2, width=16, steps=4, batch_size=8, tested=10)


def study(**changes):
    return addition_study(**{"positions": "learned", "format": "plain", "architecture": "decoder", **TINY, **changes})


def read(form, text):
    """The three numbers of a text."""
    operands, answer = text.replace(" ", "").strip("$").split("=")
    numbers = ["".join(c for c in part if c.isdigit()) for part in (*operands.split("+"), answer)]
    return tuple(int(n[::-1] if i in form.reverse else n) for i, n in enumerate(numbers))


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip_within_the_longest_text(name):
    generator = np.random.default_rng(0)
    for a, b in generator.integers(0, 10 ** generator.integers(1, 16, (500, 2))).tolist():
        text = addition.write(FORMATS[name], a, b, generator)
        assert read(FORMATS[name], text) == (a, b, a + b) and len(text) <= addition.longest_text(name, 15)
        assert " " not in text.split("=")[1]


def test_the_answer_and_its_end_are_scored():
    tokens, scored = addition.encode(["$1+2=3$", "$10+2=21$"])
    targets = [[addition.SYMBOLS[i] for i in row[1:][s].tolist()] for row, s in zip(tokens, scored, strict=True)]
    assert targets == [["3", "$"], ["2", "1", "$"]]


def test_coupled_ids_are_equal_where_significance_is():
    assert addition.coupled_ids("$653+049=2070$", 6) == [0, 6, 7, 8, 9, 6, 7, 8, 9, 8, 7, 6, 5, 0]


@pytest.mark.parametrize("positions", ["randomised", "coupled"])
def test_a_study_is_deterministic(positions):
    first = addition_study(positions, "padded", "entp", **TINY)
    assert first == addition_study(positions, "padded", "entp", **TINY)
    metrics, curves = json.loads(json.dumps(first))
    assert set(metrics["accuracy"]) == {"2", "3"} and len(curves["loss"]) == 4


def test_coupled_ids_stay_within_the_table():
    longest, generator = addition.longest_text("padded", 15), np.random.default_rng(0)
    for training, digits in ((True, 5), (True, 15)):
        for _ in range(20):
            _, _, ids = addition.draw("coupled", "padded", np.full((8, 2), digits), longest, generator, training)
            assert 0 <= int(ids.min()) and int(ids.max()) < longest


def test_sums_of_one_digit_are_learned():
    shape = dict(n_layers=1, n_heads=2, width=32, steps=250, rate=3e-3, tested=50)
    found, curves = addition_study("learned", "padded", "decoder", 1, [1], **shape)
    assert found["token_accuracy"]["1"] > 0.6 and curves["loss"][-1] < 0.4 * curves["loss"][0]


test_mistakes_are_named = named(
    (lambda: addition.coupled_ids("$653+49=207$", 6), "padded"),
    (lambda: addition.coupled_ids("$653+049=2070$", 1), "start"),
    (lambda: addition.write(FORMATS["hinted"], 10**30, 1), "31 digits"),
    (lambda: study(positions="coupled"), "positions"),
    (lambda: study(tested_digits=[40]), "tested_digits"),
    (lambda: study(n_heads=3), "n_heads"),
)
