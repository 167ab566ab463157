"""What a caller of the model meets first: defaults, messages, compilation, devices.

Letters: B batch, T tokens, N wanted positions.
"""

import numpy as np
import pytest
import torch

from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.validation import ConfigError

PROMPTS = torch.tensor([1, 3, 6])


@pytest.fixture
def inputs_BT():
    return torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0))


def arguments(model, inputs_BT):
    """Inputs with the prompts that a prefix decoder needs, and the positions that it can be asked."""
    places_T = torch.arange(inputs_BT.shape[1])
    if model.cfg.open_prompt:
        return dict(prompt_lengths_B=PROMPTS), places_T >= PROMPTS[:, None] - 1
    return {}, torch.ones_like(inputs_BT, dtype=torch.bool)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("method", ["fast", "reference", "packed"])
def test_all_positions_are_wanted_unless_some_are(small_model, inputs_BT, architecture, method):
    model = small_model(architecture, n_layers=3)
    model.entp_method = method
    prompts, wanted_BT = arguments(model, inputs_BT)
    torch.testing.assert_close(model(inputs_BT, **prompts), model(inputs_BT, wanted_BT, **prompts), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("architecture", "positions", "masked"),
    [("decoder", "learned", False), ("entp", "learned", False), ("hybrid", "rotary", False), ("entp", "alibi", True)],
)
def test_a_compiled_model_is_one_graph_and_the_same_function(small_model, inputs_BT, architecture, positions, masked):
    """Values and gradients; the graph is what matters here, so that no compiler of it is needed."""
    model, inputs_BT = small_model(architecture, n_layers=3, positions=positions), inputs_BT[:, :3]
    mask_BTT = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 0, 1]]).bool().expand(3, -1, -1) if masked else None
    results = []
    for call in (model, torch.compile(model, fullgraph=True, backend="eager", dynamic=False)):
        model.zero_grad()
        logits_NV = call(inputs_BT, mask_BTT=mask_BTT)
        logits_NV.square().sum().backward()
        results.append([logits_NV.detach(), *(p.grad.clone() for p in model.parameters())])
    for expected, found in zip(*results, strict=True):
        assert (found - expected).abs().max() <= 1e-10 * expected.abs().max()
    torch.compiler.reset()


def test_one_graph_of_full_layers_takes_a_part_and_says_so(small_model, inputs_BT):
    model, wanted_BT = (
        small_model("entp"),
        torch.rand(inputs_BT.shape, generator=torch.Generator().manual_seed(0)) < 0.5,
    )
    whole, broken = (torch.compile(model, fullgraph=full, backend="eager", dynamic=False) for full in (True, False))
    expected_NV, (part,) = model(inputs_BT, wanted_BT), model.plan(wanted_BT)
    with pytest.raises(RuntimeError, match="a part of model.plan\\(wanted\\), or no `wanted`"):
        whole(inputs_BT, wanted_BT)
    with torch.no_grad():
        for found_NV in (whole(inputs_BT, part), broken(inputs_BT, wanted_BT)):
            torch.testing.assert_close(found_NV, expected_NV)
    torch.compiler.reset()


def test_a_compiled_prefix_decoder_is_the_same_function(small_model, inputs_BT):
    """How many positions its prompts leave is not known beforehand: no single graph."""
    model = small_model("prefix_decoder")
    prompts, wanted_BT = arguments(model, inputs_BT)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs_BT, wanted_BT, **prompts), model(inputs_BT, wanted_BT, **prompts))
    torch.compiler.reset()


@pytest.mark.parametrize("architecture", ["decoder", "entp", "hybrid"])
def test_an_exported_model_is_the_same_function(small_model, inputs_BT, architecture):
    model, inputs_BT = small_model(architecture, n_layers=3), inputs_BT[:, :3]
    program = torch.export.export(model, (inputs_BT,))
    torch.testing.assert_close(program.module()(inputs_BT), model(inputs_BT))


@pytest.mark.parametrize("architecture", [a for a in ARCHITECTURES if a != "prefix_decoder"])
def test_the_meta_device_computes_shapes(architecture):
    model = build_model(ModelConfig(architecture, 3, 2, 16, 11, 12), device="meta")
    assert model(torch.zeros(3, 6, dtype=torch.long, device="meta")).shape == (18, 11)
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: dict(inputs=x.tolist()),
            r"inputs is a list: must be a tensor, \(B, T\) token ids, such as torch.tensor",
        ),
        (lambda x: dict(inputs=x.numpy()), "inputs is a ndarray: must be a tensor"),
        (
            lambda x: dict(inputs=x.float()),
            r"inputs of type torch.float32: token ids must be torch.int64 \(inputs.long",
        ),
        (lambda x: dict(inputs=x.to(torch.uint8)), "inputs of type torch.uint8"),
        (lambda x: dict(inputs=x, wanted=[[True] * 6] * 3), "wanted is a list: must be a tensor, a boolean mask"),
        (lambda x: dict(inputs=x, wanted=np.ones((3, 6), dtype=bool)), "wanted is a ndarray"),
        (lambda x: dict(inputs=x, positions_BT=[[0] * 6] * 3), "positions is a list: must be a tensor, whole numbers"),
        (lambda x: dict(inputs=x, mask_BTT=1), r"mask is a int: must be a tensor, boolean \(B, T, T\)"),
    ],
)
def test_what_is_no_tensor_of_the_right_kind_is_told_what_to_be(small_model, inputs_BT, change, message):
    with pytest.raises(ValueError, match=message):
        small_model()(**change(inputs_BT))


def test_inputs_of_a_continuous_model_are_real(small_model):
    model = small_model(vocab_size=0, input_dim=3, output_dim=2)
    with pytest.raises(ValueError, match="inputs of type torch.int64: this model's inputs are real numbers"):
        model(torch.zeros(2, 4, 3, dtype=torch.long))


def test_a_prefix_decoder_asks_for_its_prompts(small_model, inputs_BT):
    with pytest.raises(ValueError, match=r"needs prompt_lengths of shape \(3,\), how many tokens each prompt has"):
        small_model("prefix_decoder")(inputs_BT)
    with pytest.raises(ValueError, match="needs prompt_lengths"):
        small_model("prefix_decoder")(inputs_BT, prompt_lengths_B=[1, 2, 3])


def test_wrong_names_get_a_hint():
    rest = dict(vocab_size=11, max_length=12)
    with pytest.raises(ConfigError, match="size = 'smal': must be one of .*; did you mean 'small'"):
        ModelConfig.from_size("smal", architecture="entp", **rest)
    with pytest.raises(ConfigError, match="unknown parameter 'n_layer'; did you mean 'n_layers'"):
        ModelConfig.from_size("small", architecture="entp", n_layer=2, **rest)
    with pytest.raises(ConfigError, match="parameter 'max_length' is missing"):
        ModelConfig.from_size("small", architecture="entp", vocab_size=11)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_a_sentence():
    with pytest.raises(ConfigError, match="device = 'cuda': PyTorch finds no CUDA device here; use device = 'cpu'"):
        build_model(ModelConfig("entp", 2, 2, 16, 11, 12), device="cuda")


def test_a_device_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match="device = 'gpu': must be 'cpu', 'cuda'"):
        build_model(ModelConfig("entp", 2, 2, 16, 11, 12), device="gpu")
