"""Half-blocks with products in bf16 against the definition in fp32, with and without bf16
instructions.
"""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import model_of, seeded

from entp_lib import kernels
from entp_lib.config import ARCHITECTURES
from entp_lib.kernels import bf16, gelu

CHOOSE = """
import torch
from entp_lib import kernels
from entp_lib.kernels import bf16, gelu
print(kernels.kernel_names())
active, slope = gelu.with_slope()[1](torch.ones(3, 5).bfloat16())
print(active.shape == slope.shape == (3, 5))
"""


def logits_and_gradients(architecture, method, half):
    model = model_of(architecture, 3, torch.float32, n_layers=3, width=32)
    model.entp_method = method
    generator = seeded(1)
    tokens_BT = torch.randint(11, (5, 9), generator=generator)
    scored_BT = torch.rand(5, 9, generator=generator) < 0.6
    scored_BT[:, :3] = False  # behind every prompt
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        logits_NV = model(tokens_BT, scored_BT, torch.full((5,), 3))
    weights_NV = torch.randn(logits_NV.shape, generator=generator)
    (logits_NV.float() * weights_NV).sum().backward()
    return [logits_NV.detach().float(), *(p.grad for p in model.parameters())]


def distance(found, right):
    """The largest of any tensor, in proportion to its largest entry."""
    return max(
        float((a - b).abs().max() / b.abs().max().clamp_min(1e-6))
        for a, b in zip(found, right, strict=True)
    )


@pytest.mark.parametrize(
    ("fused", "native", "longest"),
    [
        (True, True, 64),
        (True, True, 0),  # attention above the length up to which it is products
        (True, False, 64),
        (False, True, 64),  # as on a GPU
    ],
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_values_and_gradients_are_those_of_the_definition(
    architecture, fused, native, longest, monkeypatch
):
    monkeypatch.setattr(bf16, "multiplies_bf16", lambda: native)
    monkeypatch.setattr(bf16, "EXPLICIT", longest)
    right = logits_and_gradients(architecture, "reference", half=False)
    if not fused:
        monkeypatch.setattr(kernels, "usable", lambda *_: False)
    assert distance(logits_and_gradients(architecture, "fast", half=True), right) < 3e-2


def test_a_model_whose_weights_are_bf16_is_near_itself(small_model):
    model = small_model(n_layers=3, width=32).float()
    x_BT = torch.randint(11, (3, 8), generator=seeded(0))
    exact = model(x_BT).detach()
    assert distance([model.bfloat16()(x_BT).detach().float()], [exact]) < 5e-2


def test_the_kernels_are_what_computes_under_autocast(monkeypatch):
    passes = []
    real = bf16.product
    monkeypatch.setattr(bf16, "product", lambda a, b: passes.append(a.dtype) or real(a, b))
    logits_and_gradients("entp", "fast", half=True)
    assert passes
    assert set(passes) == {torch.bfloat16}
    passes.clear()
    with kernels.without_fused_kernels():
        logits_and_gradients("entp", "fast", half=True)
    assert not passes


def test_products_round_their_result_once():
    a, b = (torch.randn(s, generator=seeded(2)).bfloat16() for s in ((7, 64), (64, 5)))
    right = (a.double() @ b.double()).float().bfloat16()
    assert torch.equal(bf16.product(a, b), right)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Compile nothing, which takes seconds, but where a test says so."""
    monkeypatch.setattr(bf16, "with_slope", lambda: ("eager", gelu.in_pieces))


def test_gelu_and_slope_are_those_of_the_definition(monkeypatch):
    monkeypatch.setattr(gelu, "PIECE", 5 * 37)
    up = torch.linspace(-8, 8, 999).view(27, 37).bfloat16()
    exact = up.double().requires_grad_()
    right = F.gelu(exact, approximate="tanh")
    right.sum().backward()
    assert distance(gelu.in_pieces(up), [right.detach(), exact.grad]) < 4e-3


@pytest.mark.parametrize(
    ("width", "half", "alone"),
    [(16, False, True), (192, False, True), (256, False, False), (16, True, False)],
)
def test_models_of_committed_records_project_first_layers_as_they_did(
    small_model, width, half, alone
):
    """Each part by itself, in fp32 up to the width of the widest record."""
    model = small_model("entp", dtype=torch.float32, width=width)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        projected = model.project_once(torch.zeros(5, 9, dtype=torch.long))
    assert (projected is None) == alone


def test_a_model_whose_later_block_is_changed_projects_in_each_part(small_model):
    """Its stack would ignore shared projections, whose gradients would be missing."""
    model = small_model("entp", n_layers=3)
    tokens_BT = torch.zeros(5, 9, dtype=torch.long)
    with torch.no_grad():
        assert model.project_once(tokens_BT) is not None
        model.blocks[1].fc_in = torch.nn.Sequential(model.blocks[1].fc_in)
        assert model.project_once(tokens_BT) is None


BROKEN = {
    "a compiler that fails": {"CXX": "false"},
    "a folder that is none": {"TORCHINDUCTOR_CACHE_DIR": "/proc/none", "TMPDIR": "/proc/none"},
}


@pytest.mark.parametrize("how", BROKEN)
def test_without_a_compiler_that_works_one_line_says_so_and_the_pieces_compute(how, tmp_path):
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)} | BROKEN[how]
    run = subprocess.run(
        [sys.executable, "-c", CHOOSE], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [f"{bf16.VERSION}, GELU eager", "True"]
    ours = [line for line in run.stderr.splitlines() if "GELU in bf16" in line]
    assert len(ours) == 1
    assert "Traceback" not in run.stderr


def test_a_processor_without_bf16_products_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(bf16, "multiplies_bf16", lambda: False)
    bf16.say_emulated.cache_clear()
    ones = torch.ones(2, 2, dtype=torch.bfloat16)
    for _ in range(2):
        assert bf16.product(ones, ones).eq(2).all()
    assert caplog.text.count("bf16 is no faster than fp32 here") == 1
