"""Scratchpads are written together as one by one; chunks and duplicated states token by token."""

import pytest
import torch
from conftest import seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_papers.scratchpad.exact import random_example, random_model
from entp_papers.scratchpad.format import (
    DELIMITER,
    END,
    Example,
    batch_of,
    chunks,
    duplicate_states,
    group_mask,
    memory_of,
    ordinary,
    text_of,
)
from entp_papers.scratchpad.generation import (
    ENDED,
    READERS,
    TOO_LONG,
    TOO_MANY,
    write,
    write_many,
)


@pytest.mark.parametrize(
    ("architecture", "inductive", "way"),
    [("decoder", True, "recomputed"), ("decoder", False, "cached"), ("entp", True, "trimmed")],
)
def test_many_are_written_as_one_by_one(architecture, inductive, way):
    model = random_model(architecture, "learned", 2)
    generator = seeded(0)
    examples = [random_example(generator, 1) for _ in range(6)]
    together = write_many(model, examples, inductive, (4, 3))
    for example, found in zip(examples, together, strict=True):
        alone = write(model, example.question, way, (4, 3))
        assert found.states == alone.states
        assert found.stopped == alone.stopped


@pytest.mark.parametrize(
    ("tokens", "stopped", "states"),
    [
        ([6] * 9, TOO_LONG, None),
        ([DELIMITER] * 9, TOO_MANY, None),
        ([6, 7, END], ENDED, ((6, 7),)),
    ],
)
def test_writing_stops(tokens, stopped, states):
    rest = iter(tokens)
    model = random_model("decoder", "learned", 0)
    found = write(model, (4, 5), "trimmed", (3, 2), lambda _: next(rest))
    assert found.stopped == stopped
    assert states is None or found.states == states


@pytest.mark.parametrize("way", ["trimmed", "masked"])
def test_writing_stops_at_the_models_context(way):
    model = random_model("decoder", "learned", 0, max_length=9)
    found = write(model, (4, 5), way, (99, 99), lambda _: 6)
    assert (found.stopped, found.states) == (TOO_LONG, ((6,) * 6,))


def test_given_states_are_read_before_anything_is_written():
    model = random_model("decoder", "learned", 4)
    together = write_many(model, [Example((), ((3, 4),), given=1)], True, (4, 3))
    assert together[0].states[0] == (3, 4)
    for way in ("trimmed", "recomputed", "doubled"):
        alone = write(model, (), way, (4, 3), given=[(3, 4)])
        assert alone.states == together[0].states


# Chunks and duplicated states, token by token, and the texts they come from.


tokens = st.lists(st.integers(3, 9), min_size=1, max_size=4).map(tuple)
examples = st.builds(Example, tokens, st.lists(tokens, min_size=1, max_size=5).map(tuple))


def digits(numbers):
    return "".join(str(int(number)) for number in numbers)


def test_a_worked_example():
    example = Example((7, 8), ((3,), (4, 5), (6,)))
    row = duplicate_states(example)
    assert digits(row.tokens) == "780313145145162"
    assert digits(row.groups) == "000112222233333"
    assert digits(row.positions) == "012343456734567"
    assert digits(row.counted) == "000110011100011"
    first, *_, last = chunks(example)
    assert digits(first.tokens) == "78031"
    assert digits(last.tokens) == "78045162"


def contexts(row):
    """List each counted token with the tokens and the positions that it is predicted from."""
    mask = group_mask(torch.tensor([row.groups]))[0]
    found = []
    for t in range(1, len(row.tokens)):
        if row.counted[t]:
            seen = [s for s in range(t) if mask[t - 1, s]]
            tokens = [row.tokens[s] for s in seen]
            found.append((row.tokens[t], tokens, [row.positions[s] for s in seen]))
    return found


@settings(max_examples=40)
@given(example=examples)
def test_each_token_of_a_state_is_counted_once_and_seen_from_the_same_context(example):
    """A counted token reads the same tokens at the same positions in both methods."""
    in_chunks = [found for row in chunks(example) for found in contexts(row)]
    duplicated = contexts(duplicate_states(example))
    assert in_chunks == duplicated
    written = text_of(example)[len(memory_of(example.question)) :]
    assert [token for token, _, _ in duplicated] == list(written)
    for _, _, positions in duplicated:
        assert positions == list(range(len(positions)))


def test_filler_is_seen_by_nobody_and_never_counted():
    short = duplicate_states(Example((3,), ((4,),)))
    long = duplicate_states(Example((3, 5), ((4,), (6, 7))))
    batch = batch_of([short, long], extra=3)
    real = len(short.tokens) - 1
    assert not batch.scored_BT[0, real:].any()
    assert not batch.mask_BTT[0, :real, real:].any()


def test_a_given_state_is_read_and_never_learned():
    example = Example((), ((3,), (4, 5), (6,)), given=1)
    row = duplicate_states(example)
    assert digits(row.tokens) == "03145145162"
    assert digits(row.counted) == "00011100011"
    assert [sum(r.counted) for r in chunks(example)] == [3, 2]
    assert sum(ordinary(example).counted) == 5


test_mistakes_are_named = named(
    (lambda: READERS["trimmed"](random_model("decoder", "learned", 0), ()), "question"),
    (lambda: text_of(Example((), ((3,),))), "question"),
    (lambda: text_of(Example((3,), ((3,), ()))), "state 2"),
    (lambda: text_of(Example((3,), ((3, 1),))), "delimiter token 1"),
)
