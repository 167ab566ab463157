"""Properties of the three architectures, and parity with GPT-2.

Letters: B batch, T tokens, N wanted positions, V vocabulary.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.config import ARCHITECTURES, SIZES, ModelConfig
from entp_lib.models import build_model, entp, parameter_count
from entp_lib.models.transformer import prefix_mask


def tokens(batch=3, length=8, seed=0, vocab=11):
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def everywhere(inputs):
    return torch.ones(inputs.shape[:2], dtype=torch.bool)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
@pytest.mark.parametrize("t", [0, 3, 6])
def test_output_does_not_depend_on_later_tokens(small_model, architecture, t):
    model, x = small_model(architecture), tokens()
    later = x.clone()
    later[:, t + 1 :] = (later[:, t + 1 :] + 1) % 11
    wanted = torch.zeros_like(x, dtype=torch.bool)
    wanted[:, t] = True
    torch.testing.assert_close(model(x, wanted), model(later, wanted), rtol=0, atol=1e-12)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_gradient_reaches_exactly_the_positions_before(small_model, architecture):
    model, x, t = small_model(architecture), tokens(batch=1), 4
    wanted = torch.zeros_like(x, dtype=torch.bool)
    wanted[:, t] = True
    model(x, wanted).square().sum().backward()
    reached = model.positions.weight.grad.abs().sum(1) > 0
    assert reached.tolist() == [i <= t for i in range(12)]


def test_hidden_states_of_entp_are_revised_and_those_of_a_decoder_are_not(small_model):
    """The state of token 1 after layer 1, with and without token 4 in sight."""
    x = tokens(batch=1, length=5)
    for architecture, revised in (("entp", True), ("decoder", False)):
        model = small_model(architecture)
        block, causal = model.blocks[0], architecture == "decoder"
        short, long = (block(model.embed(x[:, :n]), causal=causal)[0, 1] for n in (4, 5))
        assert torch.allclose(short, long, atol=1e-9) is not revised


@settings(max_examples=25, deadline=None)
@given(
    layers=st.integers(2, 4),
    batch=st.integers(1, 4),
    length=st.integers(1, 9),
    budget=st.sampled_from([0, 8, 30, 10_000]),
    positions=st.sampled_from(["learned", "none"]),
    continuous=st.booleans(),
    data=st.data(),
)
def test_grouped_equals_reference(layers, batch, length, budget, positions, continuous, data):
    cfg = ModelConfig("entp", layers, 2, 16, 7, 9, positions=positions)
    if continuous:
        cfg = ModelConfig("entp", layers, 2, 16, 0, 9, positions=positions, input_dim=3, output_dim=2)
    seed = data.draw(st.integers(0, 99))
    model = build_model(cfg, seed).double()
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, length, 3, generator=generator).double() if continuous else tokens(batch, length, seed, 7)
    wanted = torch.rand(batch, length, generator=generator) < data.draw(st.sampled_from([0.2, 0.6, 1.0]))
    wanted[0, 0] = True
    results = []
    for method in ("reference", "grouped"):
        model.entp_method = method
        model.zero_grad()
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(entp.GROUP_TOKENS, "cpu", budget)
            out = model(x, wanted)
        out.pow(2).sum().backward()
        grads = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
        results.append((out.detach(), grads))
    (slow, slow_grads), (fast, fast_grads) = results
    assert slow.shape == (int(wanted.sum()), model.cfg.output_dim or 7)
    assert (slow - fast).abs().max() <= 1e-10 * slow.abs().max()
    for name, grad in slow_grads.items():
        assert (grad - fast_grads[name]).abs().max() <= 1e-10 * max(grad.abs().max(), 1e-12), name


def test_grouped_equals_reference_in_single_precision(small_model):
    model, x = small_model(dtype=torch.float32), tokens()
    fast = model(x, everywhere(x))
    model.entp_method = "reference"
    slow = model(x, everywhere(x))
    assert (fast - slow).abs().max() <= 1e-5 * slow.abs().max()


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=12), budget=st.integers(0, 60))
def test_groups_keep_lengths_whole_and_within_the_budget(counts, budget):
    lengths = [length for length, n in enumerate(counts, 1) for _ in range(n)]
    sizes, start = entp.group_sizes(lengths, budget), 0
    assert sum(sizes) == len(lengths)
    for size in sizes:
        group = lengths[start : start + size]
        start += size
        assert start == len(lengths) or lengths[start] != group[-1]
        assert len(set(group)) == 1 or size * group[-1] <= budget


@pytest.mark.parametrize(("layers", "equal"), [(1, True), (2, False)])
def test_one_layer_of_entp_is_a_decoder(small_model, layers, equal):
    """Appendix A.3, by the definition: values and gradients."""
    x, results = tokens(), []
    for architecture in ("decoder", "entp"):
        model = small_model(architecture, n_layers=layers)
        model.entp_method = "reference"
        out = model(x, everywhere(x))
        out.square().sum().backward()
        results.append((out, model.blocks[0].attention.qkv.weight.grad))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, atol=1e-9) is equal


def test_one_layer_shortcut_equals_the_loop(small_model):
    model, x = small_model("entp", n_layers=1), tokens()
    fast = model(x, everywhere(x))
    model.entp_method = "reference"
    torch.testing.assert_close(fast, model(x, everywhere(x)))


def test_twins_start_equal_and_seeds_differ(small_model):
    first, *others = [dict(small_model(a).named_parameters()) for a in ARCHITECTURES]
    for other in others:
        assert first.keys() == other.keys()
        assert all(torch.equal(first[name], other[name]) for name in first)
    third = dict(small_model("entp", seed=1).named_parameters())
    assert not torch.equal(first["blocks.0.fc_in.weight"], third["blocks.0.fc_in.weight"])


@pytest.mark.parametrize(("size", "count"), [("small", 1_334_976), ("medium", 10_647_552), ("small_deep", 1_586_432)])
def test_sizes_of_table_6(size, count):
    """12 L D² + 13 L D for the blocks, 2 D for the final norm."""
    layers, width = SIZES[size]["n_layers"], SIZES[size]["width"]
    assert count == 12 * layers * width**2 + 13 * layers * width + 2 * width
    model = build_model(ModelConfig.from_size(size, architecture="entp", vocab_size=64, max_length=64))
    assert parameter_count(model) == count
    assert parameter_count(model, embeddings=True) == count + 128 * width


def test_initial_scales():
    cfg = ModelConfig("entp", 4, 2, 128, 50, 40, position_std=0.5)
    model = build_model(cfg, 3)
    block = model.blocks[1]
    assert block.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.embedding.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for residual in (block.attention.out, block.fc_out):
        assert residual.weight.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
    assert model.positions.weight.std().item() == pytest.approx(0.5, rel=0.05)
    assert (block.ln_1.weight == 1).all() and (block.attention.qkv.bias == 0).all()


def test_prefix_mask_is_full_inside_the_prompt_and_causal_after():
    mask = prefix_mask(torch.tensor([3, 1]), 4)[:, 0].int().tolist()
    assert mask[0] == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask[1] == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_prefix_decoder_between_its_neighbours(small_model):
    """With a prompt of one token it is the decoder; at the prompt's end it is ENTP."""
    x = tokens()
    prefix, decoder, full = (small_model(a) for a in ("prefix_decoder", "decoder", "entp"))
    ones = torch.ones(3, dtype=torch.long)
    torch.testing.assert_close(prefix(x, everywhere(x), ones), decoder(x, everywhere(x)))
    end = torch.zeros_like(x, dtype=torch.bool)
    end[:, 4] = True
    torch.testing.assert_close(prefix(x, end, 5 * ones), full(x, end))
    end[:, 4], end[:, 6] = False, True
    assert not torch.allclose(prefix(x, end, 5 * ones), full(x, end))


def test_rows_come_in_row_major_order_and_may_be_empty(small_model):
    model, x = small_model(), tokens()
    wanted = torch.zeros_like(x, dtype=torch.bool)
    wanted[0, [7, 2]] = wanted[2, 5] = True
    out = model(x, wanted)
    for row, (b, t) in zip(out, [(0, 2), (0, 7), (2, 5)], strict=True):
        alone = model(x[b : b + 1, : t + 1], torch.arange(t + 1)[None] == t)
        torch.testing.assert_close(row, alone[0])
    assert model(x, torch.zeros_like(wanted)).shape == (0, 11)


def test_dropout_is_off_in_evaluation_and_on_in_training(small_model):
    model, x = small_model(dropout=0.5), tokens()
    torch.testing.assert_close(model(x, everywhere(x)), model(x, everywhere(x)))
    model.train()
    assert not torch.allclose(model(x, everywhere(x)), model(x, everywhere(x)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x[:0], w[:0]), "batch is empty"),
        (lambda x, w: (x + 5, w), "token id 1[0-9]: outside the vocabulary of 11"),
        (lambda x, w: (x - 11, w), "token id -[0-9]+"),
        (lambda x, w: (torch.cat([x, x], 1), torch.cat([w, w], 1)), "16 tokens: beyond .* 12"),
        (lambda x, w: (x, w[:, :-1]), "must be boolean of shape"),
        (lambda x, w: (x, w.int()), "torch.int32"),
        (lambda x, w: (x[0], w), "takes .B, T. token ids"),
    ],
)
@pytest.mark.parametrize("architecture", ["entp", "decoder"])
def test_bad_input_is_named(small_model, architecture, change, message):
    x = tokens()
    x[0, 0], x[1, 1] = 10, 0
    with pytest.raises(ValueError, match=message):
        small_model(architecture)(*change(x, everywhere(x)))


def test_prefix_decoder_refuses_to_look_ahead(small_model):
    model, x = small_model("prefix_decoder"), tokens()
    with pytest.raises(ValueError, match="inside the prompt"):
        model(x, everywhere(x), torch.tensor([1, 3, 1]))
    with pytest.raises(ValueError, match="needs prompt_lengths"):
        model(x, everywhere(x))


def test_token_forwards_counts_prefixes():
    wanted = torch.tensor([[False, True, True], [True, False, False]])
    assert entp.token_forwards("entp", wanted) == 2 + 3 + 1
    assert entp.token_forwards("decoder", wanted) == entp.token_forwards("prefix_decoder", wanted) == 6
    paper = (torch.arange(1, 65) >= 17)[None]
    assert entp.token_forwards("entp", paper) / entp.token_forwards("decoder", paper) == pytest.approx(30.4, abs=0.05)


@pytest.fixture(scope="module")
def gpt2():
    """A GPT-2 with random weights, and our decoder and ENTP with the same ones."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=11,
        n_positions=12,
        n_embd=16,
        n_layer=3,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        initializer_range=0.3,
        attn_implementation="eager",
    )
    theirs = GPT2LMHeadModel(config).double().eval()
    models = {}
    for architecture in ("decoder", "entp"):
        model = build_model(ModelConfig(architecture, 3, 2, 16, 11, 12)).double().eval()
        copy_gpt2(theirs.transformer, model)
        models[architecture] = model
    return theirs, models


@torch.no_grad()
def copy_gpt2(source, model):
    """GPT-2 stores its linear maps transposed."""
    model.embedding.weight.copy_(source.wte.weight)
    model.positions.weight.copy_(source.wpe.weight)
    pairs = [(source.ln_f, model.ln_f)]
    for theirs, ours in zip(source.h, model.blocks, strict=True):
        pairs += [(theirs.ln_1, ours.ln_1), (theirs.ln_2, ours.ln_2)]
        for conv, linear in (
            (theirs.attn.c_attn, ours.attention.qkv),
            (theirs.attn.c_proj, ours.attention.out),
            (theirs.mlp.c_fc, ours.fc_in),
            (theirs.mlp.c_proj, ours.fc_out),
        ):
            linear.weight.copy_(conv.weight.T)
            linear.bias.copy_(conv.bias)
    for theirs, ours in pairs:
        ours.weight.copy_(theirs.weight)
        ours.bias.copy_(theirs.bias)


def test_decoder_is_gpt2(gpt2):
    theirs, ours = gpt2
    x = tokens(length=12)
    logits = ours["decoder"](x, everywhere(x)).view(3, 12, 11)
    torch.testing.assert_close(logits, theirs(x).logits, rtol=1e-9, atol=1e-9)


def test_entp_is_gpt2_without_its_mask_on_every_prefix(gpt2):
    theirs, ours = gpt2
    x = tokens(batch=2, length=6)
    logits = ours["entp"](x, everywhere(x)).view(2, 6, 11)
    for t in range(6):
        unmasked = torch.zeros(2, 1, t + 1, t + 1, dtype=torch.float64)  # added to the scores: nothing is hidden
        expected = theirs(x[:, : t + 1], attention_mask=unmasked).logits[:, -1]
        torch.testing.assert_close(logits[:, t], expected, rtol=1e-9, atol=1e-9)
