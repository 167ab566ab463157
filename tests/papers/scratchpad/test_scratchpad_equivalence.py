"""Chunks and duplicated states give a decoder one loss and one gradient; without an ingredient they do not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_papers.scratchpad.equivalence import (
    PAD,
    as_printed,
    differences,
    equivalence_study,
    loss_and_gradients,
    printed_chunks,
    random_example,
    random_model,
)
from entp_papers.scratchpad.format import Example, Scratchpad
from entp_papers.scratchpad.rows import INGREDIENTS, batch_of, duplicate_states, ordinary

SCHEMES = ("learned", "rotary", "alibi", "none")


def texts(seed, counts):
    generator = torch.Generator().manual_seed(seed)
    return [random_example(generator, count) for count in counts]


@settings(max_examples=24)
@given(
    scheme=st.sampled_from(SCHEMES),
    seed=st.integers(0, 10_000),
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    extra=st.integers(0, 4),
    question_loss=st.booleans(),
)
def test_losses_and_gradients_are_equal(scheme, seed, counts, extra, question_loss):
    pad = Scratchpad(PAD.start, PAD.delimiter, PAD.end, question_loss=question_loss)
    found = differences(random_model("decoder", scheme, seed), pad, texts(seed, counts), extra=extra)
    assert found["loss"] < 1e-10 and found["gradient"] < 1e-9


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("missing", INGREDIENTS)
def test_without_an_ingredient_they_differ(scheme, missing):
    found = differences(random_model("decoder", scheme, 1), PAD, texts(1, (2, 3)), (missing,))
    if (scheme, missing) == ("none", "positions"):  # nothing to count
        assert found["loss"] < 1e-10
    else:
        assert found["loss"] > 1e-3 and found["gradient"] > 1e-3


def test_a_text_without_delimiters_has_the_ordinary_causal_loss():
    model, example = random_model("decoder", "learned", 0), Example((4, 5, 6), (), (7, 8))
    row = ordinary(PAD, example)
    one, two = (loss_and_gradients(model, batch_of([x]))[0] for x in (row, duplicate_states(PAD, example)))
    inputs_BT = torch.tensor([row.tokens[:-1]])
    logits_TV = model(inputs_BT, torch.ones_like(inputs_BT, dtype=torch.bool))
    plain = torch.nn.functional.cross_entropy(logits_TV[3:], torch.tensor(row.tokens[4:]), reduction="sum")
    assert one == two and abs(float(one - plain.detach())) < 1e-12


def test_entp_sees_states_from_the_question_in_chunks_and_not_in_duplicates():
    """The question has one mask for all groups, so that full attention and duplicated states do not go together."""
    assert differences(random_model("entp", "learned", 0), PAD, texts(0, (3,)))["loss"] > 1e-3


def test_the_study_reports_the_worst_case():
    metrics, table = equivalence_study(["learned", "alibi"], ["decoder"], most_states=3, examples=2, batches=2)
    assert metrics["largest_loss"] < 1e-10 and metrics["largest_gradient"] < 1e-9
    assert metrics["smallest_control"] > 1e-3 and len(table["loss"]) == 8


def test_chunks_as_printed_are_another_training():
    """A # behind the question moves and changes what every later state reads; the first state's # is never learned."""
    example = Example((4, 5), ((6,), (7, 8), (3,)))
    rows = printed_chunks(PAD, example)
    assert [row.tokens for row in rows] == [(4, 5, 0, 6), (4, 5, 0, 1, 6, 1, 7, 8, 1), (4, 5, 0, 1, 7, 8, 1, 3, 2)]
    assert [sum(row.counted) for row in rows] == [1, 3, 2]
    meant, printed = as_printed("learned", texts=3, states=3)
    assert meant["tokens_with_a_loss"] == meant["of"] and meant["loss"] < 1e-10
    assert printed["tokens_with_a_loss"] == printed["of"] - 3 and printed["loss"] > 1e-3
