"""Traced passes against the model's own, and heads that are built to look at one place."""

import pytest
import torch

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_papers.compact import heads
from entp_papers.compact.templates import Templates

TASK = Templates(template_length=4, variables=2, instances=2, digits=4, held_out=0.3)


def network(architecture="decoder", n_layers=2, seed=0):
    model = build_model(ModelConfig(architecture, n_layers, 2, 16, TASK.vocab_size, TASK.length), seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(8)
    return model.double().eval()


def inputs(count=6):
    return TASK.batch(torch.Generator().manual_seed(0), count, evaluating=True)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_traced_logits_are_the_model_s(architecture, n_layers):
    model, batch = network(architecture, n_layers), inputs()
    wanted = torch.zeros_like(batch.wanted_BT)
    wanted[:, 5] = True
    logits, looked = heads.traced(model, batch.inputs_BT[:, :6])
    torch.testing.assert_close(logits, model(batch.inputs_BT, wanted, None), rtol=1e-8, atol=1e-8)
    assert looked.shape == (n_layers, 6, 2, 6)
    torch.testing.assert_close(looked.sum(-1), torch.ones_like(looked[..., 0]))


def test_without_a_head_is_with_its_part_of_the_output_projection_zero():
    model, batch = network(), inputs()
    found, _ = heads.traced(model, batch.inputs_BT[:, :6], without=(0, 1))
    with torch.no_grad():
        model.blocks[0].attention.out.weight[:, 8:] = 0
    torch.testing.assert_close(found, heads.traced(model, batch.inputs_BT[:, :6])[0])


def test_attention_on_an_aligned_place_is_found():
    # keys and queries of 0 look everywhere alike
    model = network()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight[:32] = 0
    mass = heads.diagonals(model, inputs().inputs_BT, 4, 2)
    expected = sum(1 / (4 + place + 1) for place in range(3)) / 3
    torch.testing.assert_close(mass, torch.full_like(mass, expected))


def test_examine_is_plain_and_deterministic():
    model = network().train()
    found = [heads.examine(model, TASK, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert found[0] == found[1] and model.training
    assert len(found[0]["mass"]) == 2 and len(found[0]["without"][0]) == 2
    assert found[0]["strongest"] == max(x for layer in found[0]["mass"] for head in layer for x in head)
