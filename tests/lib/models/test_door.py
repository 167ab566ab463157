"""Defaults, bad arguments, compilation and devices of the model's call.

Letters: B batch, T tokens, N scored positions.
"""

import pytest
import torch
from conftest import seeded
from mistakes import refused

from entp_lib.config import ModelConfig
from entp_lib.model import build_model


@pytest.fixture
def inputs_BT():
    return torch.randint(11, (3, 6), generator=seeded(0))


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_a_compiled_model_is_the_same_function(small_model, inputs_BT, architecture):
    """A decoder in one graph, ENTP in several; no compiler of them is needed to tell."""
    model = small_model(architecture, n_layers=3)
    compiled = torch.compile(
        model, fullgraph=architecture == "decoder", backend="eager", dynamic=False
    )
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs_BT[:, :3]), model(inputs_BT[:, :3]))
    torch.compiler.reset()


def whole(*shape, value=1):
    return torch.full(shape, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("inputs", [[1, 2]], "inputs"),
        ("inputs", torch.ones(3, 6), "inputs"),
        ("inputs", whole(3, 6).byte(), "inputs"),
        ("inputs", whole(6), "inputs"),
        ("inputs", whole(0, 6), "inputs"),
        ("inputs", whole(3, 13), "max_length"),
        ("inputs", whole(3, 6, value=11), "token id 11"),
        ("inputs", whole(3, 6, value=-2), "token id -2"),
        ("scored", whole(3, 5).bool(), "scored"),
        ("scored", whole(3, 6), "scored"),
        ("positions_BT", [[0] * 6] * 3, "positions"),
        ("positions_BT", whole(3, 5), "positions"),
        ("positions_BT", whole(3, 6).byte(), "positions"),  # bytes would wrap in distances
        ("positions_BT", whole(3, 6, value=12), "position id 12"),
        ("positions_BT", whole(3, 6, value=-1), "position id -1"),
        ("mask_BTT", torch.ones(3, 6, 6), "mask"),  # numbers would be added to the scores
        ("mask_BTT", whole(6, 6).bool(), "mask"),
        ("mask_BTT", whole(3, 6, 6).bool().triu(1), "token 0 of row 0"),
    ],
)
def test_bad_arguments_are_named(small_model, inputs_BT, name, value, message):
    with pytest.raises(ValueError, match=message):
        small_model()(**{"inputs": inputs_BT, name: value})


@pytest.mark.parametrize(
    "wrong", [None, [1, 2, 3], *map(torch.tensor, ([1, 1], [0, 1, 1], [1, 1, 7], [1.0] * 3))]
)
def test_a_prefix_decoder_needs_prompts(small_model, inputs_BT, wrong):
    with pytest.raises(ValueError, match="prompt_lengths"):
        small_model("prefix_decoder")(inputs_BT, prompt_lengths_B=wrong)


def test_a_prefix_decoder_does_not_answer_within_its_prompts(small_model, inputs_BT):
    with pytest.raises(ValueError, match="inside the prompt"):
        small_model("prefix_decoder")(inputs_BT, inputs_BT >= 0, torch.tensor([1, 3, 1]))


@pytest.mark.parametrize(
    "device", ["gpu", "xpu", "mps", "cuda:99"] + ["cuda"] * (not torch.cuda.is_available())
)
def test_a_device_that_is_not_there_is_named(device):
    with refused(f"device = '{device}'"):
        build_model(ModelConfig("entp", 2, 2, 16, 11, 12), device=device)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_real_inputs_of_any_type_are_read(small_model, architecture):
    model = small_model(architecture, dtype=torch.float32, input_dim=2, output_dim=1, vocab_size=0)
    inputs = torch.randn(3, 6, 2, dtype=torch.float64, generator=seeded(0))
    assert torch.equal(model(inputs), model(inputs.float()))


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_fp16_autocast_has_gradients(small_model, inputs_BT, architecture):
    model = small_model(architecture, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(inputs_BT)
    logits.float().square().sum().backward()
    assert model.blocks[0].fc_in.weight.grad.any()
