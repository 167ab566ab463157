"""Chunks and duplicated states, token by token, and the texts they come from."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_papers.scratchpad.exact import PAD
from entp_papers.scratchpad.format import Example, Scratchpad, batch_of, chunks, duplicate_states, group_mask, ordinary

tokens = st.lists(st.integers(3, 9), min_size=1, max_size=4).map(tuple)
examples = st.builds(Example, tokens, st.lists(tokens, min_size=1, max_size=5).map(tuple))


def test_a_worked_example():
    example = Example((7, 8), ((3,), (4, 5), (6,)))
    row = duplicate_states(PAD, example)
    assert row.tokens == (7, 8, 0, 3, 1, 3, 1, 4, 5, 1, 4, 5, 1, 6, 2)
    assert row.groups == (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3)
    assert row.positions == (0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7)
    assert [int(c) for c in row.counted] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]
    rows = chunks(PAD, example)
    assert [row.tokens for row in rows] == [(7, 8, 0, 3, 1), (7, 8, 0, 3, 1, 4, 5, 1), (7, 8, 0, 4, 5, 1, 6, 2)]
    assert [sum(row.counted) for row in rows] == [2, 3, 2]


@settings(max_examples=40)
@given(example=examples)
def test_each_token_of_a_state_is_counted_once_and_seen_from_the_same_context(example):
    """A counted token reads the same tokens at the same positions in both methods."""
    memory, text = PAD.memory(example), PAD.text(example)

    def contexts(row):
        mask = group_mask(torch.tensor([row.groups]))[0]
        for t in range(1, len(row.tokens)):
            if row.counted[t]:
                seen = [s for s in range(t) if mask[t - 1, s]]
                yield tuple((row.tokens[s], row.positions[s]) for s in seen), row.tokens[t]

    one = [found for row in chunks(PAD, example) for found in contexts(row)]
    two = list(contexts(duplicate_states(PAD, example)))
    assert one == two and [token for _, token in two] == list(text[len(memory) :])
    assert all([p for _, p in context] == list(range(len(context))) for context, _ in two)


def test_filler_is_seen_by_nobody_and_never_counted():
    rows = [duplicate_states(PAD, Example((3,), ((4,),))), duplicate_states(PAD, Example((3, 5), ((4,), (6, 7))))]
    batch = batch_of(rows, filler=2, length=12)
    real = len(rows[0].tokens) - 1
    assert batch.inputs_BT.shape == (2, 12) and not batch.wanted_BT[0, real:].any()
    assert not batch.mask_BTT[0, :real, real:].any() and batch.mask_BTT.diagonal(dim1=1, dim2=2).all()
    assert batch.mask_BTT[0, real:].sum() == 12 - real


def test_a_given_state_is_read_and_never_learned():
    example = Example((), ((3,), (4, 5), (6,)), given=1)
    row = duplicate_states(PAD, example)
    assert row.tokens == (0, 3, 1, 4, 5, 1, 4, 5, 1, 6, 2)
    assert row.positions == (0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5)
    assert [int(c) for c in row.counted] == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]
    assert [sum(r.counted) for r in chunks(PAD, example)] == [3, 2]
    assert [int(c) for c in ordinary(PAD, example).counted] == [0, 0, 0, 1, 1, 1, 1, 1]


test_mistakes_are_named = named(
    (lambda: Scratchpad(0, 0, 1), "delimiter = 0"),
    (lambda: PAD.text(Example((), ((3,),))), "question"),
    (lambda: PAD.text(Example((3,), ((3,), ()))), "state 2"),
    (lambda: PAD.text(Example((3,), ((3, 1),))), "delimiter token 1"),
    (lambda: chunks(PAD, Example((), ((3,), (4, 5)), given=2)), "given = 2"),
    (lambda: duplicate_states(PAD, Example((3,), ((3,),)), ("masks",)), "without = 'masks'"),
    (lambda: batch_of([ordinary(PAD, Example((3,), ((4,),)))], length=2), "length = 2"),
    (lambda: batch_of([replace(ordinary(PAD, Example((3,), ((4,),))), counted=(False,) * 4)]), "labels"),
)
