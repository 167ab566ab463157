"""The decoder with constructed weights: an ordinary Transformer, right at every prefix, and refused where too small."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.config import ModelConfig
from entp_lib.models.transformer import Block, Transformer, build_model
from entp_lib.tasks.counting import count3_quadratic
from entp_lib.validation import ConfigError
from entp_papers.entp.rasp.constructed import wrong_answers
from entp_papers.entp.rasp.constructed_decoder import (
    count3_decoder,
    hard_sequences,
    longest_held,
    parts,
    smallest_decoder,
)

CFG = smallest_decoder(40, 12)
MODEL = count3_decoder(CFG)
X = torch.randint(40, (6, 12), generator=torch.Generator().manual_seed(1))


def everywhere(x_BT):
    return torch.ones_like(x_BT, dtype=torch.bool)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 39), min_size=1, max_size=12))
def test_answers_every_prefix_in_one_causal_pass(x):
    logits_TV = MODEL(torch.tensor([x]))
    assert logits_TV.argmax(-1).tolist() == [count3_quadratic(x[: t + 1]) for t in range(len(x))]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("vocab", "length"), [(2, 1), (2, 2), (3, 3), (8, 5), (13, 13), (24, 24)])
def test_hard_sequences(vocab, length, dtype):
    model, x = count3_decoder(smallest_decoder(vocab, length)).to(dtype), hard_sequences(length, vocab)
    assert x.min() >= 0 and x.max() <= vocab - 1
    wrong, asked, margin = wrong_answers(model, x, everywhere(x))
    assert (wrong, asked) == (0, x.numel()) and margin > 2.5


def test_it_is_the_librarys_decoder():
    """No block, mask or activation of its own: its weights are loaded into a model made the usual way."""
    model = build_model(CFG).double().eval()
    model.load_state_dict(MODEL.state_dict())
    assert CFG.architecture == "decoder" and type(MODEL) is Transformer and {type(b) for b in MODEL.blocks} == {Block}
    assert torch.equal(model(X), MODEL(X))


def test_attention_reads_embeddings_alone_so_that_full_attention_answers_the_same():
    entp = count3_decoder(replace(CFG, architecture="entp"))
    assert wrong_answers(entp, X, everywhere(X))[0] == 0


def test_the_steps_are_those_described():
    x, where = X[0], parts(40, 12)
    with torch.no_grad():
        state = MODEL.embed(x[None])
        for block in MODEL.blocks[:-1]:
            state = block(state, causal=True)
        state_TD, end = state[0], MODEL.blocks[-1](state, causal=True)[0]
    share = torch.bincount(x, minlength=40) / 12
    torch.testing.assert_close(state_TD[-1, where["share"]], share.double(), rtol=0, atol=1e-6)
    for t in range(12):
        n, seen = t + 1, x[: t + 1]
        count = int(((seen[:, None] + seen + seen[-1]) % n == 0).sum())
        assert float(state_TD[t, where["mean"]]) * n**2 == pytest.approx(count, abs=0.01)
        assert float(end[t, where["floor"]]) * 12 == pytest.approx(min(count // n, n - 1), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_papers_medium_has_room_for_its_task(dtype):
    model = count3_decoder(ModelConfig.from_size("medium", architecture="decoder", vocab_size=64, max_length=64)).to(
        dtype
    )
    x = torch.cat(
        [torch.randint(64, (4, 64), generator=torch.Generator().manual_seed(3)), hard_sequences(64, 64)[::12]]
    )
    assert wrong_answers(model, x, everywhere(x))[0] == 0
    idle = [not block.fc_out.weight.any() for block in model.blocks]
    assert idle == [False, False, True, True, False, False]


def test_what_the_papers_sizes_hold():
    for size in ("small", "medium"):
        n = longest_held(size)
        count3_decoder(ModelConfig.from_size(size, architecture="decoder", vocab_size=n, max_length=n))
        with pytest.raises(ConfigError, match="must be at least"):
            count3_decoder(ModelConfig.from_size(size, architecture="decoder", vocab_size=n + 1, max_length=n + 1))
    assert longest_held("small") < 64 < longest_held("medium")


@pytest.mark.parametrize(
    ("change", "least"),
    [
        (dict(width=175), "at least 176"),
        (dict(n_layers=2), "at least 3"),
        (dict(vocab_size=11), "at least 12"),
        (dict(n_heads=176), "at most 88"),
        (dict(positions="rotary"), "'learned'"),
    ],
    ids=str,
)
def test_a_size_that_cannot_be_is_refused_with_the_least_that_would_do(change, least):
    with pytest.raises(ConfigError, match=f"{next(iter(change))} = .*{least}"):
        count3_decoder(replace(CFG, **change))
