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

from entp_lab.budgets import token_forwards
from entp_lib import entp
from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import SIZES, ModelConfig
from entp_lib.kernels import grouping
from entp_lib.model import Transformer, build_model, parameter_count
from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.libraries import copy_gpt2


def tokens(batch=3, length=8):
    return torch.randint(11, (batch, length), generator=seeded(0))


@given(
    rows=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5).filter(
        lambda rows: any(map(any, rows))
    ),
    budget=st.integers(6, 60),
)
def test_micro_batches_hold_every_prefix_once_within_the_budget(rows, budget):
    scored = torch.tensor(rows)
    parts = [part.scored_BT for part in entp.plan(scored, budget)]
    shape = ModelConfig("entp", 1, 1, 2, 2, 6)
    assert torch.equal(sum(part.int() for part in parts), scored.int())
    assert all(part.any() and token_forwards(shape, part) <= budget for part in parts)
    work = token_forwards(shape, scored)
    assert work == sum(t + 1 for row in rows for t in range(6) if row[t])
    assert token_forwards(replace(shape, architecture="decoder"), scored) == 6 * len(rows)
    # no part but the last is less than about half full
    assert len(parts) <= 1 + 2 * work // (budget - 5)


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
    x = tokens()
    for changed in model.blocks[:0], model.blocks[1:2], model.blocks:
        for block in changed:
            block.attention.qkv = Adapted(block.attention.qkv)
            block.fc_in = Adapted(block.fc_in)
            block.ln_1.eps = 0.1
        found = []
        for method in ("fast", "reference"):
            model.entp_method = method
            found.append(model(x))
        torch.testing.assert_close(*found)
    found[0].sum().backward()
    assert all(block.attention.qkv.up.weight.grad.any() for block in model.blocks)


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
    for cfg in (
        ModelConfig("entp", 4, 2, 128, 50, 40, position_std=0.5),
        ModelConfig(
            "entp", 4, 2, 128, 0, 40, position_std=0.5, input_dim=30, output_dim=30, input_std=0.3
        ),
    ):
        for name, p in build_model(cfg, 3).named_parameters():
            if p.dim() == 1:
                assert (p == (name.endswith("weight") and 1)).all(), name
                continue
            residual = ".out." in name or ".fc_out." in name
            given = {"positions.weight": 0.5} | ({"embedding.weight": 0.3} if cfg.input_dim else {})
            std = given.get(name, 0.02 / math.sqrt(8) if residual else 0.02)
            assert p.std().item() == pytest.approx(std, rel=0.05), name
            assert abs(p.mean().item()) < 0.1 * std, name


@pytest.fixture(scope="module")
def gpt2():
    """A GPT-2 with random weights, and our models with the same ones."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = dict(vocab_size=11, n_positions=12, n_embd=16, n_layer=3, n_head=2)
    config = GPT2Config(**shape, initializer_range=0.3, attn_implementation="eager")
    theirs = GPT2LMHeadModel(config).double().eval()
    spread(theirs)  # biases too
    models = {}
    for architecture in ARCHITECTURES:
        models[architecture] = build_model(ModelConfig(architecture, 3, 2, 16, 11, 12)).double()
        copy_gpt2(theirs.transformer, models[architecture])
    return theirs, models


def assert_near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_models_are_gpt2_with_their_own_masks(gpt2):
    """The decoder with GPT-2's, the prefix decoder with its prompt open, ENTP with none on every
    prefix.
    """
    theirs, ours = gpt2
    x_BT = tokens(batch=2, length=7)
    assert_near(ours["decoder"](x_BT).view(2, 7, 11), theirs(x_BT).logits)
    found = ours["entp"](x_BT).view(2, 7, 11)
    for n in range(1, 8):
        # added to the scores: nothing is hidden
        unmasked = torch.zeros(2, 1, n, n, dtype=torch.float64)
        assert_near(found[:, n - 1], theirs(x_BT[:, :n], attention_mask=unmasked).logits[:, -1])
    added = torch.full((2, 1, 7, 7), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)
    prompts_B = torch.tensor([5, 2])
    for row, n in enumerate(prompts_B):
        added[row, :, :n, :n] = 0
    scored_BT = torch.arange(7) >= prompts_B[:, None] - 1
    found = ours["prefix_decoder"](x_BT, scored_BT, prompts_B)
    assert_near(found, theirs(x_BT, attention_mask=added).logits[scored_BT])


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
    with pytest.raises(ConfigError, match=field):
        copy_gpt2(source, build_model(ModelConfig("decoder", 1, 2, 8, 5, 6)))
