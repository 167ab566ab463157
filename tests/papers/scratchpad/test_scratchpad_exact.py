"""Two ways of training give a decoder one loss and one gradient, ways of writing one text; and what
may be kept.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_papers.scratchpad.exact import (
    KINDS,
    changes,
    differences,
    loss_and_gradients,
    random_example,
    random_model,
)
from entp_papers.scratchpad.format import (
    DELIMITER,
    Example,
    batch_of,
    chunks,
    memory_of,
    plain_row,
    segments_of,
)

SCHEMES = ("learned", "rotary", "alibi", "none")


def texts(seed, counts):
    generator = torch.Generator().manual_seed(seed)
    return [random_example(generator, count) for count in counts]


@settings(max_examples=16)
@given(
    scheme=st.sampled_from(SCHEMES),
    seed=st.integers(0, 10_000),
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    extra=st.integers(0, 4),
)
def test_losses_and_gradients_are_equal(scheme, seed, counts, extra):
    found = differences(random_model("decoder", scheme, seed), texts(seed, counts), extra=extra)
    assert found["loss"] < 1e-10 and found["gradient"] < 1e-9


def test_entp_sees_states_from_the_question_in_chunks_and_not_in_duplicates():
    """The question has one mask for all groups, so that full attention and duplicated states do not
    go together.
    """
    assert differences(random_model("entp", "learned", 0), texts(0, (3,)))["loss"] > 1e-3


def test_chunks_as_printed_are_another_training():
    """Qs[1] and Q#s[i]#s[i+1]#: a # behind the question moves what states read; the first state's
    is never learned.
    """
    (example,) = texts(0, (3,))
    memory = memory_of(example.question)
    segments = segments_of(example)
    printed = [plain_row(memory, segments[0][:-1])]
    printed += [plain_row((*memory, DELIMITER, *a), b) for a, b in itertools.pairwise(segments)]
    model = random_model("decoder", "learned", 0)
    meant = chunks(example)
    losses = [loss_and_gradients(model, batch_of(rows))[0] for rows in (printed, meant)]
    counted = [sum(sum(row.counted) for row in rows) for rows in (printed, meant)]
    assert counted[0] == counted[1] - 1 and abs(losses[0] - losses[1]) > 1e-3


@pytest.mark.parametrize(
    ("kind", "scheme", "kept", "present"),
    [
        ("decoder", "learned", 3, 3),
        ("ENTP", "learned", 1, 1),
        (
            "inductive decoder",
            "learned",
            3,
            0,
        ),  # a state that has ended moves: not even one layer stays
        ("inductive decoder", "rotary", 3, 0),
        ("inductive decoder", "alibi", 3, 1),  # keys have no position
        ("inductive decoder", "none", 3, 1),
        ("inductive ENTP", "learned", 1, 0),
    ],
)
def test_layers_that_keep_their_keys_and_values(kind, scheme, kept, present):
    """A decoder keeps all, ENTP the first; an inductive decoder all within a state, little of one
    that has ended.
    """
    architecture, inductive, _ = KINDS[kind]
    example = Example((5, 6), ((3, 4), (7, 8, 3), (4, 4), (6,)))
    rows = changes(random_model(architecture, scheme, 1, n_layers=3), example, inductive)
    found = {(row["event"], row["part"]): row["layers_kept"] for row in rows}
    assert found.pop(("state", "present")) == present and set(found.values()) == {kept}
