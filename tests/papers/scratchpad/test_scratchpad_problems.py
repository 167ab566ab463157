"""Tasks: worked examples in the published formats, answers against plain computation, induction
from the last state.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.model import build_model
from entp_papers.scratchpad.format import Example, chunks, duplicate_states, text_of
from entp_papers.scratchpad.problems import (
    PROBLEMS,
    ShiftAddition,
    SpacedAddition,
    SpacedParity,
    TwoCycles,
)
from entp_papers.scratchpad.training import (
    ScratchpadConfig,
    compare_ways,
    state_errors,
    text_scores,
    train_on,
)

SMALL = {
    "parity": SpacedParity(slots=12),
    "spaced_addition": SpacedAddition(most_digits=4),
    "shift_addition": ShiftAddition(most_digits=4),
    "two_cycles": TwoCycles(names=12),
}


CYCLES = [s for a, b in ("13", "24", "31", "42") for s in (f"v{a}", ">", f"v{b}", ";")]


@pytest.mark.parametrize(
    ("problem", "question", "first", "text"),
    [
        (SpacedParity(slots=8), "__1_01__=", (), "[02]1,1#[04]0,1#[05]1,0#[08]_,0"),
        (SpacedAddition(most_digits=2), "_7+_5=$xyz", (), "[01]7[04]5c1r2$xy#[-1]_[02]_c0r12$x"),
        (
            SpacedAddition(most_digits=2),
            "19+81=$xyz",
            (),
            "[01]9[04]1c1r0$xy#[00]1[03]8c1r00$x#[-1]_[02]_c0r100$",
        ),
        (ShiftAddition(most_digits=2), "", ("a$7+c$5=$xy|0",), "a$7+c$5=$xy|0#7a$+5c$=2$x|1#12$x"),
        (TwoCycles(names=9), [*CYCLES, "v3", "?", "v4", ";"], (), "v3#v1#v3;0"),
        (TwoCycles(names=9), [*CYCLES, "v2", "?", "v4", ";"], (), "v2#v4;1"),
    ],
)
def test_states_as_published(problem, question, first, text):
    states = problem.states(tuple(question), tuple(map(tuple, first)))
    assert "#".join("".join(state) for state in states) == text


@settings(max_examples=80)
@given(name=st.sampled_from(list(PROBLEMS)), size=st.integers(2, 4), seed=st.integers(0, 10_000))
def test_the_last_state_has_the_answer_and_states_follow_from_the_one_before(name, size, seed):
    problem = SMALL[name]
    example = problem.example(size, np.random.default_rng(seed))
    assert problem.is_right(example, example.states)
    question = problem.decode(example.question)
    for before, after in itertools.pairwise(example.states):
        assert problem.encode(problem.next_state(question, problem.decode(before))) == after
    written = example.states[example.given :]
    assert sum(duplicate_states(example).counted) == sum(len(state) + 1 for state in written)
    assert len(chunks(example)) == len(written)


@pytest.mark.parametrize("name", PROBLEMS)
def test_without_states_the_answer_is_all_there_is_to_write(name):
    problem = SMALL[name]
    example = problem.example(3, np.random.default_rng(0))
    (row,) = chunks(problem.without_states(example))
    assert row.tokens[-len(example.answer) - 1 :] == (*example.answer, 2)
    assert problem.is_right(example, [example.states[-1]])
    assert not problem.is_right(example, [(3,)])


ANY = np.random.default_rng(0)

test_mistakes_are_named = named(
    (lambda: SMALL["parity"].example(13, ANY), "13 bits"),
    (lambda: SpacedParity(slots=100).example(3, ANY), "100 slots"),
    (lambda: SMALL["two_cycles"].example(7, ANY), "cycles of 7"),
)


@settings(max_examples=80)
@given(name=st.sampled_from(list(PROBLEMS)), state=st.lists(st.integers(0, 14), max_size=24))
def test_nonsense_is_wrong_and_no_error(name, state):
    """But for a label that is right by chance."""
    problem = SMALL[name]
    example = problem.example(3, np.random.default_rng(0))
    right = problem.is_right(example, [tuple(state)])
    assert not right or tuple(state) == example.states[-1] or name == "two_cycles"


# Training on scratchpads: every arm runs, is scored as it should be, and a tiny task is learned.


def decoder_on(problem, params, train_sizes, test_sizes, width):
    return ScratchpadConfig(
        problem, params, "inductive", "decoder", train_sizes, test_sizes, 2, 2, width
    )


def test_whole_texts_of_trained_sizes_fit_the_context():
    """Reading with a mask takes the whole text, which is longer than any chunk that the model was
    trained on.
    """
    setting = decoder_on("shift_addition", dict(most_digits=4), (1, 4), (4,), width=16)
    examples = setting.draw(3, [4], "compare", 0)
    longest_chunk = max(len(row.tokens) for e in examples for row in chunks(e))
    assert max(len(text_of(e)) for e in examples) > longest_chunk
    cfg = ModelConfig("decoder", 2, 2, 16, len(setting.task.vocabulary), setting.context())
    model = build_model(cfg, 0).eval()
    assert compare_ways(model, examples)["largest_difference"] < 1e-9


def test_a_state_is_learned_and_scored():
    """One bit in one slot, copied to two states."""
    setting = decoder_on("parity", dict(slots=1), (1,), (1,), width=32)
    schedule = TrainConfig(100, 24, 1e-2, 1e-3, 10, weight_decay=0.0)
    model, losses = train_on(setting, schedule, 0)
    examples = setting.draw(20, [1], "test", 1)
    assert losses[-1] < 0.1 * losses[0]
    assert text_scores(model, setting, examples) == {"answers_right": 1.0, "texts_right": 1.0}
    assert state_errors(model, setting, examples) == [0.0, 0.0]
    broken = [Example(e.question, tuple(reversed(e.states)), e.answer) for e in examples]
    assert np.mean(state_errors(model, setting, broken)) > 0.3
