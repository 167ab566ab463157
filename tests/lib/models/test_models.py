"""Properties of the three architectures, and parity with GPT-2.

Letters: B batch, T tokens, N scored positions, V vocabulary.
"""

import math
from dataclasses import replace

import pytest
import torch
from conftest import everywhere, seeded, spread
from hypothesis import given
from hypothesis import strategies as st
from mistakes import refused
from torch.nn.utils import prune

from entp_lab.budgets import token_forwards
from entp_lib import entp, kernels
from entp_lib.config import SIZES, ModelConfig
from entp_lib.decoding import generate
from entp_lib.entp import MicroBatch
from entp_lib.kernels import grouping
from entp_lib.model import Block, Transformer, build_model, parameter_count
from entp_papers.encoder_decoder.libraries import copy_gpt2


def tokens(batch=3, length=8):
    return torch.randint(11, (batch, length), generator=seeded(0))


@given(
    rows=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5).filter(
        lambda rows: any(map(any, rows))
    ),
    budget=st.integers(1, 60),
    even=st.booleans(),
)
def test_micro_batches_hold_every_prefix_once_within_the_budget(rows, budget, even):
    scored = torch.tensor(rows)
    parts = [part.scored_BT for part in entp.plan(scored, budget, even)]
    longest = int(scored.nonzero()[:, 1].max()) + 1
    budget = max(budget, longest)
    shape = ModelConfig("entp", 1, 1, 2, 2, 6)
    assert torch.equal(sum(part.int() for part in parts), scored.int())
    most = budget + even * longest
    assert all(part.any() and token_forwards(shape, part) <= most for part in parts)
    work = token_forwards(shape, scored)
    assert work == sum(t + 1 for row in rows for t in range(6) if row[t])
    assert token_forwards(replace(shape, architecture="decoder"), scored) == 6 * len(rows)
    # no part but the last is less than about half full
    assert len(parts) <= 1 + 2 * work // (budget - longest + 1)


def test_a_budget_bounds_the_tokens_in_the_stack(small_model, monkeypatch):
    held = []
    grouped = grouping.stack
    monkeypatch.setattr(
        grouping, "stack", lambda *x: held.append(sum(r * n for _, r, n in x[2])) or grouped(*x)
    )
    model = small_model(n_layers=3)
    model.micro_batch_tokens = 17
    x = tokens()
    model(x, everywhere(x)).sum().backward()
    assert max(held) <= 17
    assert sum(held) == 3 * 36
    monkeypatch.setattr("entp_lib.arguments.can_look", lambda x: False)  # as on a GPU
    assert torch.equal(model(x), model(x, everywhere(x)))


def logits_as_defined(model):
    """The logits of ``tokens()``, which have to be those of the definition."""
    logits = model(tokens())
    model.entp_method = "reference"
    with kernels.without_fused_kernels():
        torch.testing.assert_close(logits, model(tokens()))
    model.entp_method = "fast"
    return logits


class Adapted(torch.nn.Module):
    """A linear map with a low-rank change, whose ``weight`` is that of the map alone."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.weight, self.bias = linear.weight, linear.bias
        self.down = torch.nn.Linear(linear.weight.shape[1], 2).double()
        self.up = torch.nn.Linear(2, linear.weight.shape[0]).double()

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_a_module_that_was_replaced_is_called(small_model, architecture):
    model = small_model(architecture, n_layers=3)
    model.blocks[0].ln_1.eps = 0.1
    for changed in model.blocks[:0], model.blocks[1:2], model.blocks:
        for block in changed:
            block.attention.qkv = Adapted(block.attention.qkv)
            block.fc_in = Adapted(block.fc_in)
        logits = logits_as_defined(model)
    logits.sum().backward()
    assert all(block.attention.qkv.up.weight.grad.any() for block in model.blocks)


class Doubling(Block):
    def forward(self, *arguments, **more):
        return 2 * super().forward(*arguments, **more)


class Unscaled(torch.nn.LayerNorm):
    def forward(self, x):
        return x


def doubled(module):
    forward = module.forward
    module.forward = lambda *arguments, **more: 2 * forward(*arguments, **more)


def doubled_map(block):
    doubled(block.fc_out)


def doubled_attention(block):
    doubled(block.attention)


def pruned(block):
    """``weight`` is made anew before each call."""
    prune.l1_unstructured(block.fc_in, "weight", 0.5)
    torch.nn.init.ones_(block.fc_in.weight_orig)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
@pytest.mark.parametrize(
    "change",
    [
        doubled,
        doubled_map,
        doubled_attention,
        pruned,
        dict(ln_1=torch.nn.Identity()),
        dict(ln_1=torch.nn.RMSNorm(16, eps=1e-5)),
        dict(ln_2=Unscaled(16)),
        dict(fc_in=torch.nn.Linear(16, 64, bias=False)),
        dict(__class__=Doubling),
    ],
    ids=lambda change: getattr(change, "__name__", str(change)),
)
def test_other_norms_maps_and_blocks_are_those_of_the_definition(small_model, architecture, change):
    model = small_model(architecture)
    as_built = model(tokens())
    for block in model.blocks:
        if callable(change):
            change(block)
            continue
        for name, part in change.items():
            setattr(block, name, part)
    assert not torch.allclose(logits_as_defined(model.double()), as_built)
    if architecture == "decoder":
        ways = [generate(model, tokens(length=2), 5, use_cache=way) for way in (True, False)]
        assert torch.equal(*ways)


def test_a_block_has_one_mask(small_model):
    block = small_model("decoder").blocks[0]
    with refused("a mask goes without it"):
        block(torch.ones(1, 3, 16).double(), torch.eye(3).bool(), causal=True)


def test_a_micro_batch_is_read_like_its_mask_whatever_comes_with_it(small_model):
    """Groups and first layer serve where they apply; else the scored prefixes alone count."""
    model = small_model("entp")
    x = tokens()
    scored = everywhere(x)
    assert torch.equal(model(x, MicroBatch(scored)), model(x, scored))
    (part,) = model.plan(scored)
    mask_BTT = torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool).tril()
    projected = model.project_once(x)
    with_mask = model(x, part, mask_BTT=mask_BTT, projected=projected)
    torch.testing.assert_close(with_mask, model(x, scored, mask_BTT=mask_BTT))


def test_gradients_do_not_multiply_with_the_groups(small_model):
    """The gradient of a slice is a tensor as large as what it was cut from, one for every length of
    prefixes.
    """
    counts = []
    for length in (4, 8):
        model = small_model(n_layers=3)
        x = tokens(2, length)
        with torch.profiler.profile() as profiled:
            model(x, everywhere(x)).sum().backward()
        counts.append(sum(event.name == "aten::slice_backward" for event in profiled.events()))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("small", 1_334_976),
        ("medium", 10_647_552),
        ("large", 85_056_000),
        ("small_deep", 1_586_432),
    ],
)
def test_sizes_of_table_6(size, count):
    """12 L D² + 13 L D for the blocks, 2 D for the final norm."""
    with torch.device("meta"):  # shapes without memory
        model = Transformer(ModelConfig("entp", **SIZES[size], vocab_size=64, max_length=64))
    assert parameter_count(model) == count
    assert parameter_count(model, embeddings=True) == count + 128 * SIZES[size]["width"]


def test_initial_scales():
    """N(0, 0.02), residual projections divided by sqrt(2 L), positions as asked, LayerNorms 1 and
    biases 0.
    """
    symbols = ModelConfig("entp", 4, 2, 128, 50, 40, position_std=0.5)
    reals = replace(symbols, vocab_size=0, input_dim=30, output_dim=30, input_std=0.3)
    for cfg in (symbols, reals):
        model = build_model(cfg, 3)
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(7)
        model.init_weights(3)  # draws all again
        for name, p in model.named_parameters():
            if p.dim() == 1:
                assert (p == (name.endswith("weight") and 1)).all(), name
                continue
            residual = ".out." in name or ".fc_out." in name
            given = {"positions.weight": 0.5} | ({"embedding.weight": 0.3} if cfg.input_dim else {})
            std = given.get(name, 0.02 / math.sqrt(8) if residual else 0.02)
            assert p.std().item() == pytest.approx(std, rel=0.05), name
            assert abs(p.mean().item()) < 0.1 * std, name


def test_a_decoder_is_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = dict(vocab_size=11, n_positions=12, n_embd=16, n_layer=3, n_head=2)
    config = GPT2Config(**shape, initializer_range=0.3, attn_implementation="eager")
    theirs = GPT2LMHeadModel(config).double().eval()
    spread(theirs)  # biases too
    ours = build_model(ModelConfig("decoder", 3, 2, 16, 11, 12)).double()
    copy_gpt2(theirs.transformer, ours)
    x_BT = tokens(batch=2, length=7)
    expected = theirs(x_BT).logits.flatten(0, 1)
    torch.testing.assert_close(ours(x_BT), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("theirs", "field"),
    [
        ({"n_head": 4}, "n_heads"),
        ({"activation_function": "relu"}, "activation_function"),
        ({"layer_norm_epsilon": 1e-6}, "epsilon"),
    ],
)
def test_a_gpt2_that_computes_otherwise_is_refused(theirs, field):
    transformers = pytest.importorskip("transformers")
    shape = dict(n_layer=1, n_head=2, n_embd=8, n_positions=6, vocab_size=5) | theirs
    source = transformers.GPT2Model(transformers.GPT2Config(**shape))
    with refused(field):
        copy_gpt2(source, build_model(ModelConfig("decoder", 1, 2, 8, 5, 6)))
