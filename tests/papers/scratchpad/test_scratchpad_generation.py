"""Every exact way of reading gives the logits of the definition; the naive cache does not; tokens are counted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_lib.models import build_model
from entp_lib.validation import ConfigError
from entp_papers.scratchpad.exact import PAD, random_example, random_model
from entp_papers.scratchpad.generation import END, EXACT_WAYS, READERS, TOO_LONG, TOO_MANY, write, write_many


def read(way, model, example):
    """Logits before every token of the scratchpad (T, V), and the tokens that were read for them."""
    reader, found = READERS[way](model, PAD, example.question), []
    for token in sum(PAD.segments(example), ()):
        found.append(reader.logits())
        reader.append(token)
    return torch.stack(found), reader.forwards


def apart(way, other, model, example):
    """The largest difference of logits by token (T,)."""
    return (read(way, model, example)[0] - read(other, model, example)[0]).abs().amax(1)


@settings(max_examples=20)
@given(
    scheme=st.sampled_from(["learned", "rotary", "alibi", "none"]),
    seed=st.integers(0, 10_000),
    states=st.integers(1, 5),
    layers=st.integers(1, 3),
)
def test_every_exact_way_gives_the_same_logits(scheme, seed, states, layers):
    example = random_example(torch.Generator().manual_seed(seed), states)
    model = random_model("decoder", scheme, seed, n_layers=layers)
    for way in EXACT_WAYS[1:]:
        assert apart(way, "trimmed", model, example).max() < 1e-9, way
    assert apart("cached", "whole", model, example).max() < 1e-9


@pytest.mark.parametrize(("architecture", "layers"), [("entp", 1), ("entp", 2), ("hybrid", 3)])
def test_full_attention_reads_a_trimmed_text_or_a_masked_one(architecture, layers):
    example = random_example(torch.Generator().manual_seed(3), 4)
    cfg = random_model("decoder", "learned", 0, n_layers=layers).cfg
    model = build_model(cfg.with_full_layers(2 if architecture == "hybrid" else layers), 0).double().eval()
    assert apart("masked", "trimmed", model, example).max() < 1e-9


@pytest.mark.parametrize("scheme", ["learned", "none"])
def test_the_naive_cache_is_wrong_from_the_third_state_on(scheme):
    example = random_example(torch.Generator().manual_seed(5), 4)
    model = random_model("decoder", scheme, 5)
    apart_T = apart("naive", "trimmed", model, example)
    lengths = [len(s) for s in PAD.segments(example)]
    assert apart_T[: sum(lengths[:2])].max() < 1e-9
    assert apart_T[sum(lengths[:2]) :].max() > 1e-3
    if scheme == "none":  # where keys depend on the token alone, the naive cache errs right after # alone
        apart_T = apart("naive", "trimmed", random_model("decoder", "none", 5, n_layers=1), example)
        starts = {sum(lengths[:n]) for n in range(2, len(lengths))}
        assert apart_T[[t for t in range(len(apart_T)) if t not in starts]].max() < 1e-9


@pytest.mark.parametrize(
    ("architecture", "inductive", "way"),
    [("decoder", True, "recomputed"), ("decoder", False, "cached"), ("entp", True, "trimmed")],
)
def test_many_are_written_as_one_by_one(architecture, inductive, way):
    model = random_model(architecture, "learned", 2)
    questions = [random_example(torch.Generator().manual_seed(seed), 1).question for seed in range(6)]
    together = write_many(model, PAD, questions, inductive, 4, 3)
    for question, found in zip(questions, together, strict=True):
        alone = write(model, PAD, question, way, 4, 3)
        assert (found.states, found.stopped) == (alone.states, alone.stopped)


def test_writing_stops():
    model = random_model("decoder", "learned", 0)
    question = (4, 5)

    def forced(tokens):
        rest = iter(tokens)
        return write(model, PAD, question, "trimmed", 3, 2, lambda _: next(rest))

    assert forced([6] * 9).stopped == TOO_LONG
    assert forced([PAD.delimiter] * 9).stopped == TOO_MANY
    ended = forced([6, 7, PAD.end])
    assert ended.stopped == END and ended.states == ((6, 7),)


test_mistakes_are_named = named(
    (lambda: READERS["trimmed"](random_model("decoder", "learned", 0), PAD, ()), "question"),
    (lambda: READERS["trimmed"](random_model("decoder", "learned", 0), PAD, (99,)), "token 99"),
    (lambda: READERS["doubled"](random_model("entp", "learned", 0), PAD, (3,)), "architecture = 'entp'"),
    (
        lambda: READERS["trimmed"](random_model("prefix_decoder", "learned", 0), PAD, (3,)),
        "architecture = 'prefix_decoder'",
    ),
    (lambda: write(random_model("decoder", "learned", 0), PAD, (3,), "trim", 3, 3), "way = 'trim'"),
    (lambda: write(random_model("decoder", "learned", 0), PAD, (3,), "trimmed", 0, 3), "most_state_tokens = 0"),
)


@pytest.mark.parametrize("way", EXACT_WAYS)
def test_a_state_longer_than_the_context_is_an_error(way):
    model = random_model("decoder", "learned", 0, max_length=6)
    tokens = iter([4, PAD.delimiter, *[5] * 9])
    with pytest.raises(ConfigError, match="state 2.* max_length of 6"):
        write(model, PAD, (3,), way, 9, 9, lambda _: next(tokens))


def test_given_states_are_read_before_anything_is_written():
    model = random_model("decoder", "learned", 4)
    ways = [write(model, PAD, (), way, 4, 3, given=[(3, 4)]) for way in ("trimmed", "recomputed", "doubled")]
    assert all(found.states[0] == (3, 4) and found.states == ways[0].states for found in ways)
    together = write_many(model, PAD, [()], True, 4, 3, given=[[(3, 4)]])
    assert together[0].states == ways[0].states
