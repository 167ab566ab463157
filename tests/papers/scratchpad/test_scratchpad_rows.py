"""Chunks and duplicated states, token by token, and the texts they come from."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.validation import ConfigError
from entp_papers.scratchpad.equivalence import random_model
from entp_papers.scratchpad.format import Example, Scratchpad
from entp_papers.scratchpad.rows import batch_of, chunks, duplicate_states, group_mask, ordinary

PAD = Scratchpad(start=0, delimiter=1, end=2)
tokens = st.lists(st.integers(3, 9), min_size=1, max_size=4).map(tuple)
examples = st.builds(Example, tokens, st.lists(tokens, min_size=1, max_size=5).map(tuple))


def test_a_worked_example():
    row = duplicate_states(PAD, Example((7, 8), ((3,), (4, 5), (6,))))
    assert row.tokens == (7, 8, 0, 3, 1, 3, 1, 4, 5, 1, 4, 5, 1, 6, 2)
    assert row.groups == (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3)
    assert row.positions == (0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7)
    assert [int(c) for c in row.counted] == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]


def test_chunks_of_the_worked_example():
    rows = chunks(PAD, Example((7, 8), ((3,), (4, 5), (6,))))
    assert [row.tokens for row in rows] == [(7, 8, 0, 3, 1), (7, 8, 0, 3, 1, 4, 5, 1), (7, 8, 0, 4, 5, 1, 6, 2)]
    assert [sum(row.counted) for row in rows] == [2, 3, 2]


@settings(max_examples=60)
@given(example=examples, question_loss=st.booleans())
def test_each_token_of_a_state_is_counted_once_and_seen_from_the_same_context(example, question_loss):
    """What a counted token may read, with its positions, is the same in both methods."""
    pad = Scratchpad(0, 1, 2, question_loss=question_loss)
    memory, text = pad.memory(example), pad.text(example)

    def contexts(row):
        mask = group_mask(torch.tensor([row.groups]))[0]
        for t in range(1, len(row.tokens)):
            if row.counted[t]:
                seen = [s for s in range(t) if mask[t - 1, s]]
                yield tuple((row.tokens[s], row.positions[s]) for s in seen), row.tokens[t]

    one = [found for row in chunks(pad, example) for found in contexts(row)]
    two = list(contexts(duplicate_states(pad, example)))
    assert one == two
    assert [token for _, token in two] == list(text[1:] if question_loss else text[len(memory) :])
    for (context, _), token in zip(two[-len(text) + len(memory) :], text[len(memory) :], strict=True):
        assert [p for _, p in context] == list(range(len(context))), token


@settings(max_examples=40)
@given(example=examples)
def test_a_text_is_read_back(example):
    assert PAD.parse(PAD.text(example)) == example


@settings(max_examples=40)
@given(example=examples)
def test_a_second_copy_sees_the_memory_and_itself_alone(example):
    row = duplicate_states(PAD, example)
    mask = group_mask(torch.tensor([row.groups]))[0].tril()
    memory = len(PAD.memory(example))
    for t in range(memory, len(row.tokens)):
        if not row.counted[t]:
            seen = mask[t].nonzero()[:, 0].tolist()
            first = min(s for s in seen if s >= memory)
            assert not row.counted[first] and row.positions[first] == memory
            assert seen == [*range(memory), *range(first, t + 1)]


def test_a_text_of_one_state_is_the_ordinary_one():
    for example in (Example((3, 4), ((5, 6),)), Example((3, 4), (), (5, 6))):
        assert duplicate_states(PAD, example).tokens == ordinary(PAD, example).tokens == chunks(PAD, example)[0].tokens
        assert duplicate_states(PAD, example).positions == ordinary(PAD, example).positions


def test_filler_is_seen_by_nobody_and_never_counted():
    rows = [duplicate_states(PAD, Example((3,), ((4,),))), duplicate_states(PAD, Example((3, 5), ((4,), (6, 7))))]
    batch = batch_of(rows, filler=2, length=12)
    real = len(rows[0].tokens) - 1
    assert batch.inputs_BT.shape == (2, 12) and not batch.wanted_BT[0, real:].any()
    assert not batch.mask_BTT[0, :real, real:].any() and batch.mask_BTT.diagonal(dim1=1, dim2=2).all()
    assert batch.mask_BTT[0, real:].sum() == 12 - real


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scratchpad(0, 0, 1), "three different"),
        (lambda: Scratchpad(0, -1, 1), "three different"),
        (lambda: Scratchpad(0, 1, 2, context=0), "context = 0"),
        (lambda: PAD.text(Example((), ((3,),))), "question is empty"),
        (lambda: PAD.text(Example((3,), ())), "state 1 is empty"),
        (lambda: PAD.text(Example((3,), ((3,), ()))), "state 2 is empty"),
        (lambda: PAD.text(Example((3,), ((3, 1),))), "state 1 contains the delimiter"),
        (lambda: PAD.text(Example((3, 0), ((3,),))), "question contains the start"),
        (lambda: Scratchpad(0, 1, 2, most_states=1).text(Example((3,), ((3,), (4,)))), "2 states: most_states = 1"),
        (lambda: PAD.parse((3, 0, 4)), "last state has no end token 2: a state must have its delimiter"),
        (lambda: PAD.parse((3, 0, 4, 2, 5, 2)), "2 end tokens"),
        (lambda: PAD.parse((3, 4, 2)), "0 start tokens"),
        (lambda: PAD.parse((3, 0, 4, 2, 5)), "after its end"),
        (lambda: PAD.parse((3, 0, 4, 1, 2)), "state 2 is empty"),
        (lambda: chunks(Scratchpad(0, 1, 2, context=5), Example((3,), ((3, 4), (5,)))), "chunk 2: 6 tokens"),
        (
            lambda: duplicate_states(Scratchpad(0, 1, 2, context=5), Example((3,), ((3,), (5,)))),
            "beyond the context of 5",
        ),
        (lambda: duplicate_states(PAD, Example((3,), ((3,),)), ("masks",)), "without = 'masks'"),
        (lambda: batch_of([]), "no rows"),
        (lambda: batch_of([ordinary(PAD, Example((3,), ((4,),)))], length=2), "length = 2: the longest row has 3"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_labels_that_are_all_ignored_are_an_error():
    row = ordinary(PAD, Example((3,), ((4,),)))
    with pytest.raises(ConfigError, match="all labels are ignored"):
        batch_of([type(row)(row.tokens, row.groups, row.positions, (False,) * len(row.tokens))])


def test_plain_rows_bring_no_mask_and_lose_nothing():
    """Filler stands behind what is read, where a causal model does not look: the mask would hide nothing."""
    example = Example((3,), ((4, 5), (6,), (7, 8, 3)))
    batch = batch_of(chunks(PAD, example), filler=PAD.end)
    assert batch.relations() == {}
    model = random_model("decoder", "learned", 0)
    alone = [batch_of([row]) for row in chunks(PAD, example)]
    together = model(batch.inputs_BT, batch.wanted_BT)
    single = torch.cat([model(b.inputs_BT, b.wanted_BT) for b in alone])
    assert (together - single).abs().max() < 1e-12


def test_positions_beyond_the_table_are_named():
    row = duplicate_states(PAD, Example((3, 4), ((4, 5), (6, 7))))
    model = random_model("decoder", "learned", 0, max_length=len(row.tokens))
    batch = batch_of([replace(row, positions=(*row.positions[:-2], 40, 41))])
    with pytest.raises(ValueError, match=f"position id 40: learned positions are 0 to {len(row.tokens) - 1}"):
        model(batch.inputs_BT, batch.wanted_BT, **batch.relations())


def test_a_given_state_is_read_and_never_learned():
    example = Example((), ((3,), (4, 5), (6,)), given=1)
    row = duplicate_states(PAD, example)
    assert row.tokens == (0, 3, 1, 4, 5, 1, 4, 5, 1, 6, 2)
    assert row.positions == (0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5)
    assert [int(c) for c in row.counted] == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]
    assert [sum(r.counted) for r in chunks(PAD, example)] == [3, 2]
    assert [int(c) for c in ordinary(PAD, example).counted] == [0, 0, 0, 1, 1, 1, 1, 1]
    with pytest.raises(ConfigError, match="given = 3 of 3 states"):
        chunks(PAD, Example((), ((3,), (4, 5), (6,)), given=3))
