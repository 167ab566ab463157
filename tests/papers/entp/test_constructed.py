"""The Transformer with constructed weights: right wherever it should be, wrong where it must be."""

from dataclasses import replace

import pytest
import torch
from conftest import everywhere, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named, refused

from entp_lib.config import SIZES, ModelConfig
from entp_lib.model import Block, Transformer, build_model
from entp_lib.tasks.counting import count3
from entp_papers.entp.rasp.constructed import (
    constructed_count3,
    hard_cases,
    run_by_layer,
    wrong_answers,
)
from entp_papers.entp.rasp.constructed_decoder import (
    count3_decoder,
    hard_sequences,
    longest_held,
    smallest_decoder,
)

MODEL = constructed_count3(12, 40)
X = torch.randint(40, (6, 12), generator=seeded(1))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_answers_every_prefix(x):
    """By the argmax, with a margin of 1 between neighbouring logits."""
    tokens = torch.tensor([x])
    logits = MODEL(tokens, everywhere(tokens))
    answers = [count3(x[:length]) for length in range(1, len(x) + 1)]
    assert logits.argmax(-1).tolist() == answers
    first, second = logits.topk(2).values.T
    torch.testing.assert_close(first - second, torch.ones_like(first), rtol=0, atol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 5, 24])
@pytest.mark.parametrize("max_value", [0, 7, 60])
def test_hard_cases(length, max_value):
    model = constructed_count3(length, max_value)
    x = hard_cases(length, max_value)
    assert x.max() <= max_value
    wrong, asked, _ = wrong_answers(model, x, everywhere(x))
    assert (wrong, asked) == (0, x.numel())


def test_a_causal_mask_breaks_it():
    """At the first layer earlier tokens do not learn n, and most answers go wrong."""
    decoder = constructed_count3(12, 40, "decoder")
    x = torch.tensor([4, 40, 1, 39, 7, 26, 38, 34])
    full = run_by_layer(MODEL, x)[0].column("last").tolist()
    causal = run_by_layer(decoder, x)[0].column("last").tolist()
    assert full == pytest.approx([7] * 8)
    assert causal == pytest.approx(list(range(8)))
    many = torch.randint(41, (30, 12), generator=seeded(0))
    wrong, asked, _ = wrong_answers(decoder, many, everywhere(many))
    assert wrong > asked / 2


def small(architecture, **fields):
    return build_model(ModelConfig(architecture, 3, 2, 16, 40, 12, **fields))


@pytest.mark.parametrize("architecture", ["decoder", "entp", "hybrid"])
def test_the_last_layer_has_the_models_answer(architecture):
    model = small(architecture)
    for p in model.parameters():
        p.data.mul_(6)
    last_D = run_by_layer(model, X[0])[-1].state_TD[-1]
    logits_NV = model(X[:1], torch.arange(12)[None] == 11)
    torch.testing.assert_close(model.head(model.ln_f(last_D))[None], logits_NV)


LONG = torch.zeros(1, 13, dtype=torch.long)

test_mistakes_are_named = named(
    (lambda: constructed_count3(0, 5), "max_length = "),
    (lambda: constructed_count3(4, -1), "max_value = "),
    (lambda: MODEL(LONG, everywhere(LONG)), "13 tokens"),
    (lambda: run_by_layer(MODEL, torch.tensor([41])), "token id 41"),
    (lambda: run_by_layer(small("entp", positions="rotary"), X[0]), "positions = 'rotary'"),
    (lambda: count3_decoder(replace(CFG, width=175)), "width = .*at least 176"),
    (lambda: count3_decoder(replace(CFG, n_layers=2)), "n_layers = .*at least 3"),
    (lambda: count3_decoder(replace(CFG, vocab_size=11)), "vocab_size = .*at least 12"),
)


# The decoder with constructed weights: an ordinary Transformer, right at every prefix, and refused
# where too small.


CFG = smallest_decoder(40, 12)
DECODER = count3_decoder(CFG)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 13, 24])
@pytest.mark.parametrize("vocab", [2, 40])
def test_hard_sequences(vocab, length, dtype):
    vocab = max(vocab, length)
    model = count3_decoder(smallest_decoder(vocab, length)).to(dtype)
    x = hard_sequences(length, vocab)
    wrong, asked, margin = wrong_answers(model, x, everywhere(x))
    assert (wrong, asked) == (0, x.numel())
    assert margin > 2.5


def test_it_is_the_librarys_decoder():
    """No block, mask or activation of its own: its weights are loaded into a model made the usual
    way.
    """
    model = build_model(CFG).double().eval()
    model.load_state_dict(DECODER.state_dict())
    assert CFG.architecture == "decoder"
    assert type(DECODER) is Transformer
    assert {type(block) for block in DECODER.blocks} == {Block}
    assert torch.equal(model(X), DECODER(X))


def test_attention_reads_embeddings_alone_so_that_full_attention_answers_the_same():
    entp = count3_decoder(replace(CFG, architecture="entp"))
    assert wrong_answers(entp, X, everywhere(X))[0] == 0


@pytest.mark.parametrize("size", ["small", "medium"])
def test_what_the_papers_sizes_hold(size):
    n = longest_held(size)
    assert (n < 64) == (size == "small")
    cfg = ModelConfig("decoder", **SIZES[size], vocab_size=n, max_length=n)
    count3_decoder(cfg)
    with refused("must be at least"):
        count3_decoder(replace(cfg, vocab_size=n + 1, max_length=n + 1))
