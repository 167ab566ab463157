"""Position ids, positional schemes and masks by row, in every architecture, against a computation
by hand.

Letters: B batch, T tokens, N scored positions, H heads, K head width.
"""

import math

import pytest
import torch
from conftest import everywhere, model_of, seeded
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mistakes import refused

from entp_lib import entp, kernels
from entp_lib.architectures import ARCHITECTURES, POSITIONS
from entp_lib.config import ModelConfig
from entp_lib.model import build_model
from entp_lib.positions import SCHEMES, alibi_slopes

LENGTH = 7


def by_hand(model, inputs_BT, scored_BT, prompts_B, positions_BT, mask_BTT):
    """Every scored position from its prefix alone, one head and one query after the other in
    spirit.
    """
    cfg = model.cfg
    rows = []
    causal_layers = cfg.n_layers - cfg.recomputed_layers
    for b, t in scored_BT.nonzero().tolist():
        n = t + 1
        ids = positions_BT[b, :n]
        seen = mask_BTT[b, :n, :n]
        x = model.embedding(inputs_BT[b, :n])
        if cfg.positions == "learned":
            x = x + model.positions.weight[ids]
        places = torch.arange(n)
        before = places[None] <= places[:, None]
        if cfg.open_prompt:
            inside = places < prompts_B[b]
            before = before | (inside[None] & inside[:, None])
        for layer, block in enumerate(model.blocks):
            allowed = seen & before if layer < causal_layers else seen
            x = block.residual(x, attention_by_hand(block, x, ids, allowed, cfg))
        rows.append(model.head(model.ln_f(x[-1])))
    return torch.stack(rows)


def attention_by_hand(block, x_TD, ids_T, allowed_TT, cfg):
    width = cfg.width // cfg.n_heads
    by_head = (
        z.split(width, -1) for z in block.attention.qkv(block.ln_1(x_TD)).split(cfg.width, -1)
    )
    heads = []
    for h, (q, k, v) in enumerate(zip(*by_head, strict=True)):
        if cfg.positions == "rotary":
            # as complex numbers, of which coordinates i and i + K/2 are the parts
            exponents = -torch.arange(0, 1, 2 / width, dtype=torch.float64)
            turns = torch.exp(1j * (ids_T[:, None] * 10_000**exponents))
            q, k = (torch.complex(*z.chunk(2, -1)) * turns for z in (q, k))
            scores = (q @ k.conj().T).real.to(v.dtype) / math.sqrt(width)
        else:
            scores = q @ k.T / math.sqrt(width)
        if cfg.positions == "alibi":
            scores = (
                scores - 2 ** (-8 * (h + 1) / cfg.n_heads) * (ids_T[:, None] - ids_T[None]).abs()
            )
        heads.append(scores.masked_fill(~allowed_TT, -torch.inf).softmax(-1) @ v)
    return block.attention.out(torch.cat(heads, -1))


def gradients(model, out):
    model.zero_grad()
    (
        out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out) + out.square()
    ).sum().backward()
    return {
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()
    }


def assert_near(found, expected, half, name="outputs"):
    """Equal, relative to the largest entry; ``half`` has half the digits of fp64."""
    assert found.shape == expected.shape, name
    tolerance = 1e-5 if half else 1e-10
    least = 1e-6 if half else 1e-14
    assert (found - expected).abs().max() <= tolerance * expected.abs().max() + least, name


def drawn(seed):
    """Inputs, ids in no order and with repetitions, and a mask in which every token sees itself."""
    generator = seeded(seed)
    inputs_BT = torch.randint(11, (3, LENGTH), generator=generator)
    positions_BT = torch.randint(12, (3, LENGTH), generator=generator)
    mask_BTT = torch.rand(3, LENGTH, LENGTH, generator=generator) < 0.6
    return inputs_BT, positions_BT, mask_BTT | torch.eye(LENGTH, dtype=torch.bool)


@settings(max_examples=80)
@example(("entp", None), "learned", "plain", 3, False, False, False, False, 1.0, 0)
@given(
    kind=st.sampled_from([*((name, None) for name in ARCHITECTURES), ("hybrid", 2)]),
    positions=st.sampled_from(POSITIONS),
    method=st.sampled_from(["fast", "plain", "pieces", "reference", "parts", "plain parts"]),
    layers=st.integers(1, 5),
    own_ids=st.booleans(),
    own_mask=st.booleans(),
    continuous=st.booleans(),
    half=st.booleans(),
    share=st.sampled_from([0.3, 1.0]),
    seed=st.integers(0, 99),
)
def test_every_way_of_computing_equals_the_definition(
    kind, positions, method, layers, own_ids, own_mask, continuous, half, share, seed
):
    """Outputs and every parameter's gradient, in fp64 and in fp32, rows without a scored position
    among them.
    """
    layers = max(layers, 3 if kind[1] else 1)  # a hybrid of two full layers has three
    architecture, full_layers = kind
    shape = dict(n_layers=layers, full_layers=full_layers, positions=positions)
    if continuous:
        shape |= dict(input_dim=3, output_dim=2, vocab_size=0)
    model = model_of(architecture, seed, torch.float32 if half else torch.float64, **shape)
    inputs_BT, positions_BT, mask_BTT = drawn(seed)
    generator = seeded(seed)
    if continuous:
        inputs_BT = torch.randn(*inputs_BT.shape, 3, generator=generator).to(model.ln_f.weight)
    scored_BT = torch.rand(positions_BT.shape, generator=generator) < share
    scored_BT[1, -1] = True
    prompts_B = torch.tensor([1, 3, 6]) if model.cfg.open_prompt else None
    if prompts_B is not None:
        scored_BT &= torch.arange(LENGTH) >= prompts_B[:, None] - 1
    ids_BT = positions_BT if own_ids else torch.arange(LENGTH).expand_as(positions_BT)
    seen_BTT = mask_BTT if own_mask else torch.ones_like(mask_BTT)
    slow = by_hand(model, inputs_BT, scored_BT, prompts_B, ids_BT, seen_BTT)
    slow_grads = gradients(model, slow)
    model.entp_method = "reference" if method == "reference" else "fast"
    arguments = (prompts_B, positions_BT if own_ids else None, mask_BTT if own_mask else None)
    with pytest.MonkeyPatch.context() as patch:
        if "plain" in method:
            patch.setattr(kernels, "usable", lambda *_: False)
        elif method == "pieces":  # of five rows of the hidden layer
            patch.setattr(kernels.mlp, "PIECE", 5 * 64)
            patch.setattr(kernels.mlp, "BLOCK", 2 * 5 * 64 + 1)
        if "parts" in method:
            patch.setattr(entp, "micro_batch_tokens", lambda *_: 9)
            parts = model.plan(scored_BT)
            assert len(parts) > 1 or model.cfg.recomputed_layers < 2 or share < 1
            found = slow.new_zeros(slow.shape)
            for part in parts:
                places = part.scored_BT[scored_BT].nonzero()[:, 0]
                found = found.index_copy(0, places, model(inputs_BT, part, *arguments))
        else:
            found = model(inputs_BT, None if share == 1 else scored_BT, *arguments)
        found_grads = gradients(model, found)
    assert_near(found.detach(), slow.detach(), half)
    for name, grad in found_grads.items():
        assert_near(grad, slow_grads[name], half, name)


def test_schemes_are_found_by_their_names():
    assert set(SCHEMES) == set(POSITIONS) == {"alibi", "learned", "none", "rotary"}
    for width, name in ((16, "rotery"), (6, "rotary")):
        with refused("positions"):
            build_model(ModelConfig("entp", 2, 2, width, 11, 12, positions=name))
    assert alibi_slopes(6) == [2.0**-n for n in (2, 4, 6, 8, 1, 3)]


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi"])
def test_schemes_without_a_table_share_all_weights(positions):
    """And depend on differences of positions alone: the same ids moved by a constant give the same
    logits.
    """
    model = model_of(n_layers=3, positions=positions)
    learned = model_of(n_layers=3)
    assert learned.state_dict().keys() - model.state_dict().keys() == {"positions.weight"}
    inputs_BT, positions_BT, _ = drawn(1)
    scored_BT = everywhere(inputs_BT)
    moved = model(inputs_BT, scored_BT, positions_BT=positions_BT + 1000)
    torch.testing.assert_close(moved, model(inputs_BT, scored_BT, positions_BT=positions_BT))
