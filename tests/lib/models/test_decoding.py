"""Generation: caches against recomputation, samplers against their definitions."""

import pytest
import torch
import torch.nn.functional as F
from conftest import model_of, seeded
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.architectures import POSITIONS
from entp_lib.config import ARCHITECTURES
from entp_lib.decoding import Cache, cached_logits, generate, sampling_probabilities
from entp_lib.model import Transformer

PROMPT = torch.tensor([[3, 1, 4], [1, 5, 2]])


def last_logits(model, tokens_BT, **arguments):
    scored = torch.zeros_like(tokens_BT, dtype=torch.bool)
    scored[:, -1] = True
    return model(tokens_BT, scored, **arguments)


@pytest.mark.parametrize("sizes", [[8], [1] * 8, [3, 1, 4]])
@pytest.mark.parametrize("positions", [*POSITIONS, "own ids"])
def test_cache_equals_recomputation(positions, sizes):
    """Prefill, single steps and steps of several tokens, at every point of the sequence."""
    generator = seeded(0)
    model = model_of(
        "decoder", n_layers=3, positions="rotary" if positions == "own ids" else positions
    )
    x_BT = torch.randint(6, (3, 8), generator=generator)
    ids_BT = torch.randint(12, (3, 8), generator=generator)
    cache = Cache(model, 3, 8)
    stop = 0
    for size in sizes:
        start = stop
        stop += size
        given = dict(positions_BT=ids_BT[:, start:stop]) if positions == "own ids" else {}
        known = dict(positions_BT=ids_BT[:, :stop]) if given else {}
        found = cached_logits(model, x_BT[:, start:stop], cache, **given)
        expected = last_logits(model, x_BT[:, :stop], **known)
        assert (found - expected).abs().max() <= 1e-10 * expected.abs().max()
    assert generate(model.float(), PROMPT, 2).shape == (2, 5)


@pytest.mark.parametrize(("n_layers", "exact"), [(1, True), (2, False)])
def test_a_naive_cache_on_an_encoder(n_layers, exact):
    """Appendix A.3: one layer may cache; from two on, what was cached before a token came is out of
    date.
    """
    model = model_of("entp", n_layers=n_layers)
    model.entp_method = "reference"
    x = torch.randint(6, (3, 8), generator=seeded(0))
    cache = Cache(model, 3)
    for t in range(8):
        found = cached_logits(model, x[:, t : t + 1], cache, causal=False)
    error = (found - last_logits(model, x)).abs().max()
    assert error < 1e-12 if exact else error > 1e-3


@pytest.mark.parametrize("architecture", ["decoder", "prefix_decoder"])  # ENTP has none
def test_samples_are_the_same_with_and_without_a_cache(architecture):
    model = model_of(architecture, positions="rotary")
    results = [
        generate(
            model, PROMPT, 8, temperature=0.8, top_p=0.9, generator=seeded(1), use_cache=use_cache
        )
        for use_cache in (True, False)
    ]
    assert results[0].shape == (2, 11)
    assert torch.equal(results[0][:, :3], PROMPT)
    assert torch.equal(*results)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_takes_the_largest_logit_at_every_step(architecture):
    model = model_of(architecture).train()
    out = generate(model, PROMPT, 5)
    assert model.training
    model.entp_method = "reference"
    for t in range(3, 8):
        logits = last_logits(model, out[:, :t], prompt_lengths_B=torch.tensor([3, 3]))
        assert torch.equal(logits.argmax(-1), out[:, t])


@given(
    logits=st.lists(st.integers(-6, 6), min_size=1, max_size=8),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.integers(1, 9),
    top_p=st.floats(0.01, 1.0),
)
def test_filters_keep_what_they_say(logits, temperature, top_k, top_p):
    x = torch.tensor([logits], dtype=torch.float64)
    plain = F.softmax(x / temperature, -1)[0]
    found = sampling_probabilities(x, temperature, top_k, top_p)[0]
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    assert sampling_probabilities(x, 0.0)[0, order[0]] == 1
    kept = [i for i in order if found[i] > 0]
    assert kept == order[: len(kept)]
    assert 1 <= len(kept) <= top_k
    among = plain[order[:top_k]] / plain[order[:top_k]].sum()
    if top_p == 1:
        assert len(kept) == min(top_k, len(logits))
    else:
        assert among[: len(kept)].sum() >= top_p - 1e-9
        assert among[: len(kept) - 1].sum() < top_p + 1e-9
    torch.testing.assert_close(found[kept], plain[kept] / plain[kept].sum())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (dict(temperature=-0.5), "temperature"),
        (dict(temperature="1"), "temperature"),
        (dict(top_k=1.5), "top_k = 1.5"),
        (dict(new_tokens=2.0), "new_tokens = 2.0"),
        (dict(top_p=0.0), "top_p"),
        (dict(top_k=0), "top_k"),
        (dict(temperature=0.0, top_p=2.0), "top_p"),
        (dict(new_tokens=13), "max_length"),
        (dict(prompt_BT=PROMPT.float()), "prompt"),
        (dict(prompt_BT=PROMPT + 6), "token id 11"),
    ],
)
def test_bad_input_is_named(change, named):
    arguments = dict(prompt_BT=PROMPT, new_tokens=2, temperature=1.0) | change
    with pytest.raises(ValueError, match=named):
        generate(model_of("decoder"), **arguments)


def test_bad_caches_are_named():
    model = model_of("decoder")
    with pytest.raises(ValueError, match="15 positions"):
        Cache(model, 2, 15)
    cache = Cache(model, 2, 4)
    cached_logits(model, PROMPT, cache)
    for tokens, named in (
        (PROMPT, "6 tokens"),
        (PROMPT[:, :0], "tokens of shape"),
        (PROMPT[:1, :1], "1 rows"),
    ):
        with pytest.raises(ValueError, match=named):
            cached_logits(model, tokens, cache)
    with pytest.raises(ValueError, match="continuous"):
        generate(model_of(vocab_size=0, input_dim=3, output_dim=2), PROMPT, 1)


class Banning(Transformer):
    """A model that never says 3 or more."""

    def forward(self, *arguments, **more):
        return super().forward(*arguments, **more).index_fill(1, torch.arange(3, 11), -torch.inf)


def test_a_forward_of_ones_own_is_asked():
    model = model_of("decoder")
    model.__class__ = Banning
    assert generate(model, PROMPT, 6)[:, 3:].max() < 3
