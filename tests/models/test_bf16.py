"""Half-blocks with products in bf16 against the definition in fp32, with and without bf16 instructions."""

import pytest
import torch

from entp_lib.config import ModelConfig
from entp_lib.models import build_model, kernels
from entp_lib.models.kernels import bf16

ARCHITECTURES = ("decoder", "entp", "hybrid", "prefix_decoder")


def logits_and_gradients(architecture, method, half):
    model = build_model(ModelConfig(architecture, vocab_size=11, max_length=9, n_layers=3, n_heads=2, width=32), seed=3)
    model.entp_method = method
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # initial weights say little: scores near 0, biases 0
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    tokens_BT = torch.randint(11, (5, 9), generator=generator)
    wanted_BT = torch.rand(5, 9, generator=generator) < 0.6
    wanted_BT[:, :3] = False  # behind every prompt
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        logits_NV = model(tokens_BT, wanted_BT, torch.full((5,), 3))
    weights_NV = torch.randn(logits_NV.shape, generator=generator)
    (logits_NV.float() * weights_NV).sum().backward()
    return [logits_NV.detach().float(), *(p.grad for p in model.parameters())]


def distances(found, right):
    return [float((a - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in zip(found, right, strict=True)]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_values_and_gradients_are_those_of_the_definition(architecture, native, monkeypatch):
    monkeypatch.setattr(bf16, "multiplies_bf16", lambda: native)
    right = logits_and_gradients(architecture, "reference", half=False)
    assert max(distances(logits_and_gradients(architecture, "fast", half=True), right)) < 3e-2


def test_the_kernels_are_what_computes_under_autocast(monkeypatch):
    passes = []
    real = bf16.product
    monkeypatch.setattr(bf16, "product", lambda a, b: passes.append(a.dtype) or real(a, b))
    logits_and_gradients("entp", "fast", half=True)
    assert passes and set(passes) == {torch.bfloat16}
    passes.clear()
    with kernels.left_out():
        logits_and_gradients("entp", "fast", half=True)
    assert not passes


def test_a_processor_without_bf16_computes_the_same_up_to_the_order_of_sums(monkeypatch):
    found = {}
    for native in (True, False):
        monkeypatch.setattr(bf16, "multiplies_bf16", lambda native=native: native)
        found[native] = logits_and_gradients("entp", "fast", half=True)
    assert max(distances(found[False], found[True])) < 1e-2  # an entry that falls to the other side when rounded


def test_products_round_their_result_once():
    a, b = (torch.randn(s, generator=torch.Generator().manual_seed(2)).bfloat16() for s in ((7, 64), (64, 5)))
    right = (a.double() @ b.double()).float().bfloat16()
    assert torch.equal(bf16.product(a, b), right)
