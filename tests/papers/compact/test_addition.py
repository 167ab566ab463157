"""Sums written in five formats, the coupling of the paper's example, and the study of length."""

import json

import numpy as np
import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import addition
from entp_papers.compact.addition import FORMATS, addition_study
from entp_papers.compact.positions import SCHEMES

TINY = dict(trained_digits=2, tested_digits=[2, 3], n_layers=1, n_heads=2, width=16, steps=4, batch_size=8, tested=10)


def study(**changes):
    return addition_study(**{"positions": "learned", "format": "plain", "architecture": "decoder", **TINY, **changes})


def read(form, text):
    """The three numbers of a text."""
    operands, answer = text.replace(" ", "").strip("$").split("=")
    numbers = ["".join(c for c in part if c.isdigit()) for part in (*operands.split("+"), answer)]
    return tuple(int(n[::-1] if i in form.reverse else n) for i, n in enumerate(numbers))


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip(name):
    generator = np.random.default_rng(0)
    for a, b in generator.integers(0, 10 ** generator.integers(1, 16, (500, 2))).tolist():
        assert read(FORMATS[name], addition.write(FORMATS[name], a, b, generator)) == (a, b, a + b)


@pytest.mark.parametrize(
    "name, text",
    [
        ("plain", "$653+49=702$"),
        ("reversed", "$653+49=207$"),
        ("spaced", "$653+49=207$"),  # spaces come with a generator only
        ("padded", "$653+049=2070$"),
        ("hinted", "$a3b5c6+a9b4=a2b0c7$"),
    ],
)
def test_examples_of_the_paper(name, text):
    assert addition.write(FORMATS[name], 653, 49) == text


def test_spaces_leave_the_answer_alone():
    generator = np.random.default_rng(0)
    texts = [addition.write(FORMATS["spaced"], 12345, 6789, generator) for _ in range(50)]
    assert any(" " in t for t in texts) and not any(" " in t.split("=")[1] for t in texts)


def test_the_answer_and_its_end_are_scored():
    tokens, scored = addition.encode(["$1+2=3$", "$10+2=21$"])
    targets = [[addition.SYMBOLS[i] for i in row[1:][s].tolist()] for row, s in zip(tokens, scored, strict=True)]
    assert targets == [["3", "$"], ["2", "1", "$"]]


def test_coupled_ids_are_equal_where_significance_is():
    assert addition.coupled_ids("$653+049=2070$", 6) == [0, 6, 7, 8, 9, 6, 7, 8, 9, 8, 7, 6, 5, 0]
    generator = np.random.default_rng(1)
    for a, b in generator.integers(0, 10 ** generator.integers(1, 8, (300, 2))).tolist():
        text, start = addition.write(FORMATS["padded"], a, b), int(generator.integers(2, 20))
        width = max(len(str(a)), len(str(b)))
        falling = [start + i for i in range(width)]  # the most significant digit first
        rising = [start + width - 1 - i for i in range(width + 1)]
        found = addition.coupled_ids(text, start)
        assert (
            found[1 : width + 1] == found[width + 2 : 2 * width + 2] == falling and found[2 * width + 3 : -1] == rising
        )


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_every_scheme_runs_and_is_deterministic(positions, architecture):
    first = addition_study(positions, "padded", architecture, **TINY)
    assert first == addition_study(positions, "padded", architecture, **TINY)
    metrics, curves = json.loads(json.dumps(first))
    assert set(metrics["accuracy"]) == {"2", "3"} and len(curves["loss"]) == 4


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_fits_its_longest_text(format):
    generator = np.random.default_rng(0)
    for _ in range(20):
        tokens, _, _ = addition.draw("learned", format, np.full((8, 2), 15), 0, generator, True)
        assert tokens.shape[1] <= addition.longest_text(format, 15)


def test_coupled_ids_stay_within_the_table():
    longest, generator = addition.longest_text("padded", 15), np.random.default_rng(0)
    for training, digits in ((True, 5), (False, 15), (True, 15)):
        for _ in range(20):
            _, _, ids = addition.draw("coupled", "padded", np.full((8, 2), digits), longest, generator, training)
            assert 0 <= int(ids.min()) and int(ids.max()) < longest


def test_sums_of_one_digit_are_learned():
    shape = dict(n_layers=1, n_heads=2, width=32, steps=250, rate=3e-3, tested=50)
    found, curves = addition_study("learned", "padded", "decoder", 1, [1], **shape)
    assert found["token_accuracy"]["1"] > 0.6 and curves["loss"][-1] < 0.4 * curves["loss"][0]


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: addition.coupled_ids("$653+49=207$", 6), "padded"),
        (lambda: addition.coupled_ids("$653+049=2070$", 1), "start"),
        (lambda: addition.write(FORMATS["plain"], -1, 2), "operands"),
        (lambda: addition.write(FORMATS["hinted"], 10**30, 1), "31 digits"),
        (lambda: study(positions="coupled"), "positions"),
        (lambda: study(positions="rotary"), "positions"),
        (lambda: study(format="backwards"), "format"),
        (lambda: study(tested_digits=[40]), "tested_digits"),
        (lambda: study(trained_digits=0), "trained_digits"),
        (lambda: study(n_heads=3), "n_heads"),
        (lambda: study(steps=0), "steps"),
    ],
)
def test_bad_input(make, named):
    with pytest.raises(ConfigError, match=named):
        make()
