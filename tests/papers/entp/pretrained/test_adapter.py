"""Any transformers body as ENTP equals the loop over prefixes, and is what its
architecture says.
"""

import copy

import pytest
import torch
from conftest import seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_papers.entp.pretrained.adapter import Adapted, symbol_tokens
from entp_papers.entp.pretrained.weights import tiny_tokenizer, without_dropout

transformers = pytest.importorskip("transformers")
SYMBOLS = 7
LENGTH = 6
# transformers translates these names to those of each kind
SHAPE = dict(
    vocab_size=30,
    num_attention_heads=2,
    num_hidden_layers=2,
    hidden_size=16,
    intermediate_size=32,
    max_position_embeddings=34,
)
OWN = {
    "distilbert": dict(hidden_dim=32),
    "electra": dict(embedding_size=8),
    "opt": dict(word_embed_proj_dim=16),
    "llama": dict(num_key_value_heads=1),
}


def body_of(kind):
    """Build a random body of two layers whose attention matters."""
    config = transformers.AutoConfig.for_model(kind, **SHAPE, **OWN.get(kind, {}))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = without_dropout(transformers.AutoModel.from_config(config))
        for p in body.parameters():
            if p.dim() > 1:
                p.data.mul_(6)
    return body


DECODERS = ("llama", "gpt2")
KINDS = ("bert", "roberta", "distilbert", *DECODERS)


def adapted(kind, architecture="entp", **options):
    return Adapted(body_of(kind), architecture, SYMBOLS, **options)


def some_data(batch, seed):
    generator = seeded(seed)
    inputs_BT = torch.randint(SYMBOLS, (batch, LENGTH), generator=generator)
    scored_BT = torch.rand(batch, LENGTH, generator=generator) < 0.5
    scored_BT[0, -1] = True
    return inputs_BT, scored_BT


def gradients(model, logits_NV):
    model.zero_grad()
    (logits_NV * torch.linspace(-1, 1, logits_NV.numel()).view_as(logits_NV)).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_close(a, b):
    most = 1e-5 * max(1.0, float(b.detach().abs().max()))
    torch.testing.assert_close(a, b, rtol=0, atol=most)


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_the_loop(kind):
    fast = adapted(kind)
    loop = adapted(kind)
    inputs_BT, scored_BT = some_data(3, 1)
    ours = fast(inputs_BT, scored_BT)
    ends = scored_BT.nonzero().tolist()
    prefixes = [loop.read_in(inputs_BT[b : b + 1, : t + 1]) for b, t in ends]
    theirs = loop.read_out(torch.cat([loop.at_end(x_1TD) for x_1TD in prefixes]))
    assert_close(ours, theirs)
    ours = gradients(fast, ours)
    theirs = gradients(loop, theirs)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 10
    for name, gradient in theirs.items():
        assert_close(ours[name], gradient)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), batch=st.integers(1, 4), budget=st.integers(LENGTH, 40))
def test_micro_batches_add_up_to_the_whole(seed, batch, budget):
    model = adapted("bert")
    model.token_budget = budget
    inputs_BT, scored_BT = some_data(batch, seed)
    whole = model(inputs_BT, scored_BT)
    found = torch.zeros(*scored_BT.shape, SYMBOLS)
    for part in model.plan(scored_BT):
        assert sum(rows * length for _, rows, length in part.groups) <= budget
        found[part.scored_BT] = model(inputs_BT, part)
    assert_close(found[scored_BT], whole)


@pytest.mark.parametrize("architecture", ["entp", "decoder"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_depends_on_what_comes_later(kind, architecture):
    model = adapted(kind, architecture)
    inputs_BT, _ = some_data(2, 2)
    scored_BT = torch.zeros_like(inputs_BT, dtype=torch.bool)
    scored_BT[:, 2] = True
    logits_NV = model(inputs_BT, scored_BT)
    changed = (inputs_BT + 1) % SYMBOLS
    later = torch.cat([inputs_BT[:, :3], changed[:, 3:]], 1)
    earlier = torch.cat([changed[:, :1], inputs_BT[:, 1:]], 1)
    assert_close(model(later, scored_BT), logits_NV)
    assert (model(earlier, scored_BT) - logits_NV).abs().max() > 1e-3


@pytest.mark.parametrize("kind", DECODERS)
def test_a_kept_mask_is_the_models_own(kind):
    body = body_of(kind)
    model = Adapted(copy.deepcopy(body), "decoder", SYMBOLS, tokens=range(SYMBOLS))
    inputs_BT, scored_BT = some_data(2, 4)
    own = body(input_ids=inputs_BT).last_hidden_state[scored_BT]
    assert_close(model(inputs_BT, scored_BT), model.read_out(own))


def test_embeddings_may_be_narrower_than_states():
    inputs_BT, scored_BT = some_data(2, 4)
    assert adapted("electra")(inputs_BT, scored_BT).shape == (scored_BT.sum(), SYMBOLS)


def test_no_dropout_is_left_that_a_layer_hands_on_as_a_number():
    layers = body_of("opt").decoder.layers
    assert {layer.dropout for layer in layers} == {0.0}


test_mistakes_are_named = named(
    (lambda: adapted("mamba"), "attention of a 'mamba'"),
    (lambda: adapted("fnet", "decoder"), "attention of a 'fnet'"),
    (lambda: symbol_tokens(tiny_tokenizer(), 12), "symbols = 12.*splits 10"),
    (lambda: adapted("bert", "encoder"), "architecture = "),
    (lambda: adapted("bert", tokens=[1, 2]), "tokens: 7"),
)
