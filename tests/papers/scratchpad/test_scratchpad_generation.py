"""Every exact way of reading gives the logits of the definition; the naive cache does not; tokens
are counted.
"""

import pytest
import torch
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
    segments_of,
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


def read(way, model, example):
    """Logits before every token of the scratchpad (T, V), and the tokens that were read for
    them.
    """
    reader = READERS[way](model, example.question)
    found = []
    for token in sum(segments_of(example), ()):
        found.append(reader.logits())
        reader.append(token)
    return torch.stack(found), reader.forwards


def apart(way, other, model, example):
    """Compare logits by token (T,)."""
    return (read(way, model, example)[0] - read(other, model, example)[0]).abs().amax(1)


@pytest.mark.parametrize("scheme", ["learned", "none"])
def test_the_naive_cache_is_wrong_from_the_third_state_on(scheme):
    example = random_example(torch.Generator().manual_seed(5), 4)
    apart_T = apart("naive", "trimmed", random_model("decoder", scheme, 5), example)
    third = sum(len(segment) for segment in segments_of(example)[:2])
    assert apart_T[:third].max() < 1e-9
    assert apart_T[third:].max() > 1e-3


@pytest.mark.parametrize(
    ("architecture", "inductive", "way"),
    [("decoder", True, "recomputed"), ("decoder", False, "cached"), ("entp", True, "trimmed")],
)
def test_many_are_written_as_one_by_one(architecture, inductive, way):
    model = random_model(architecture, "learned", 2)
    questions = [
        random_example(torch.Generator().manual_seed(seed), 1).question for seed in range(6)
    ]
    together = write_many(model, questions, inductive, (4, 3))
    for question, found in zip(questions, together, strict=True):
        alone = write(model, question, way, (4, 3))
        assert (found.states, found.stopped) == (alone.states, alone.stopped)


def test_writing_stops():
    model = random_model("decoder", "learned", 0)
    question = (4, 5)

    def forced(tokens):
        rest = iter(tokens)
        return write(model, question, "trimmed", (3, 2), lambda _: next(rest))

    assert forced([6] * 9).stopped == TOO_LONG
    assert forced([DELIMITER] * 9).stopped == TOO_MANY
    ended = forced([6, 7, END])
    assert ended.stopped == ENDED and ended.states == ((6, 7),)


def test_given_states_are_read_before_anything_is_written():
    model = random_model("decoder", "learned", 4)
    ways = [
        write(model, (), way, (4, 3), given=[(3, 4)])
        for way in ("trimmed", "recomputed", "doubled")
    ]
    assert all(found.states[0] == (3, 4) and found.states == ways[0].states for found in ways)
    together = write_many(model, [()], True, (4, 3), given=[[(3, 4)]])
    assert together[0].states == ways[0].states


# Chunks and duplicated states, token by token, and the texts they come from.


tokens = st.lists(st.integers(3, 9), min_size=1, max_size=4).map(tuple)
examples = st.builds(Example, tokens, st.lists(tokens, min_size=1, max_size=5).map(tuple))


def test_a_worked_example():
    example = Example((7, 8), ((3,), (4, 5), (6,)))
    row = duplicate_states(example)
    assert row.tokens == (7, 8, 0, 3, 1, 3, 1, 4, 5, 1, 4, 5, 1, 6, 2)
    assert row.groups == (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3)
    assert row.positions == (0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7)
    assert [int(c) for c in row.counted] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]
    first, *_, last = chunks(example)
    assert first.tokens == (7, 8, 0, 3, 1) and last.tokens == (7, 8, 0, 4, 5, 1, 6, 2)


@settings(max_examples=40)
@given(example=examples)
def test_each_token_of_a_state_is_counted_once_and_seen_from_the_same_context(example):
    """A counted token reads the same tokens at the same positions in both methods."""
    memory = memory_of(example.question)
    text = text_of(example)

    def contexts(row):
        mask = group_mask(torch.tensor([row.groups]))[0]
        for t in range(1, len(row.tokens)):
            if row.counted[t]:
                seen = [s for s in range(t) if mask[t - 1, s]]
                yield tuple((row.tokens[s], row.positions[s]) for s in seen), row.tokens[t]

    one = [found for row in chunks(example) for found in contexts(row)]
    two = list(contexts(duplicate_states(example)))
    assert one == two and [token for _, token in two] == list(text[len(memory) :])
    assert all([p for _, p in context] == list(range(len(context))) for context, _ in two)


def test_filler_is_seen_by_nobody_and_never_counted():
    rows = [
        duplicate_states(Example((3,), ((4,),))),
        duplicate_states(Example((3, 5), ((4,), (6, 7)))),
    ]
    batch = batch_of(rows, length=12)
    real = len(rows[0].tokens) - 1
    assert not batch.scored_BT[0, real:].any() and not batch.mask_BTT[0, :real, real:].any()


def test_a_given_state_is_read_and_never_learned():
    example = Example((), ((3,), (4, 5), (6,)), given=1)
    row = duplicate_states(example)
    assert row.tokens == (0, 3, 1, 4, 5, 1, 4, 5, 1, 6, 2)
    assert [int(c) for c in row.counted] == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]
    assert [sum(r.counted) for r in chunks(example)] == [3, 2]
    assert sum(ordinary(example).counted) == 5


test_mistakes_are_named = named(
    (lambda: READERS["trimmed"](random_model("decoder", "learned", 0), ()), "question"),
    (lambda: text_of(Example((), ((3,),))), "question"),
    (lambda: text_of(Example((3,), ((3,), ()))), "state 2"),
    (lambda: text_of(Example((3,), ((3, 1),))), "delimiter token 1"),
)
