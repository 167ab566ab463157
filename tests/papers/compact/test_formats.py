"""Sums written and read back, hints by significance, and the coupling of the paper's example."""

import numpy as np
import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import formats
from entp_papers.compact.formats import FORMATS, Format


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip(name):
    generator = np.random.default_rng(0)
    for a, b in generator.integers(0, 10 ** generator.integers(1, 16, (2000, 2))).tolist():
        assert formats.read(FORMATS[name], formats.write(FORMATS[name], a, b, generator)) == (a, b, a + b)


@pytest.mark.parametrize(
    "form, a, b, text",
    [
        (FORMATS["plain"], 653, 49, "$653+49=702$"),
        (FORMATS["reversed"], 653, 49, "$653+49=207$"),
        (FORMATS["padded"], 653, 49, "$653+049=2070$"),
        (Format(padded=True), 653, 49, "$653+049=0702$"),
        (Format(hints=True), 42, 39, "$a4b2+a3b9=a8b1$"),
        (Format(hints=True), 653, 49, "$a6b5c3+b4c9=a7b0c2$"),
    ],
)
def test_examples_of_the_paper(form, a, b, text):
    assert formats.write(form, a, b) == text


def test_reversed_hints_name_the_same_significance_everywhere():
    body = formats.write(FORMATS["hinted"], 653, 49).strip("$").replace("=", "+").split("+")
    for number, digits in zip(body, ("356", "94", "207"), strict=True):
        letters, found = number[::2], number[1::2]
        assert letters == "abc"[: len(found)] and found == digits


def test_spaces_come_with_a_generator_only_and_leave_the_answer_alone():
    generator = np.random.default_rng(0)
    texts = [formats.write(FORMATS["spaced"], 12345, 6789, generator) for _ in range(50)]
    assert any(" " in t for t in texts) and not any(" " in t.split("=")[1] for t in texts)
    assert " " not in formats.write(FORMATS["spaced"], 12345, 6789)


def test_scored_are_the_answer_and_its_end():
    tokens, wanted = formats.encode(["$1+2=3$", "$10+2=21$"])
    targets = [[formats.SYMBOLS[i] for i in row[1:][w].tolist()] for row, w in zip(tokens, wanted, strict=True)]
    assert targets == [["3", "$"], ["2", "1", "$"]]


def test_coupling_of_the_paper_s_example():
    text = formats.write(FORMATS["padded"], 653, 49)
    assert formats.coupled_ids(text, 6) == [0, 6, 7, 8, 9, 6, 7, 8, 9, 8, 7, 6, 5, 0]


def test_equal_ids_are_equal_significance():
    generator = np.random.default_rng(1)
    for a, b in generator.integers(0, 10 ** generator.integers(1, 8, (1000, 2))).tolist():
        text = formats.write(FORMATS["padded"], a, b)
        start = int(generator.integers(2, 20))
        width = len(text.strip("$").split("+")[0])
        significance, place = [], width - 1
        for symbol in text:
            if symbol in "$+=":
                significance.append(None)
                rising = symbol == "="
                place = 0 if rising else width - 1
            else:
                significance.append(place)
                place += 1 if rising else -1
        for known, found in zip(significance, formats.coupled_ids(text, start), strict=True):
            assert known is None or found == start + width - 1 - known


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: formats.coupled_ids("$653+49=207$", 6), "couple digits only where operands are padded"),
        (lambda: formats.coupled_ids("$653+049=2070$", 1), "start = 1"),
        (lambda: formats.write(FORMATS["plain"], -1, 2), "must not be negative"),
        (lambda: formats.write(FORMATS["hinted"], 10**30, 1), "31 digits"),
        (lambda: formats.read(FORMATS["plain"], "12"), "not of the form"),
        (lambda: formats.read(FORMATS["plain"], "$1+a=2$"), "something else than digits"),
        (lambda: Format(reverse="both"), "reverse"),
    ],
)
def test_bad_input(make, named):
    with pytest.raises(ConfigError, match=named):
        make()
