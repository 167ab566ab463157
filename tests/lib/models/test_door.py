"""Defaults, bad arguments, compilation and devices of the model's call.

Letters: B batch, T tokens, N scored positions.
"""

import pytest
import torch

from entp_lib.config import ModelConfig
from entp_lib.model import build_model
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


@pytest.mark.parametrize(
    ("architecture", "method"),
    [("decoder", "fast"), ("prefix_decoder", "fast"), ("entp", "reference"), ("entp", "fast"), ("hybrid", "packed")],
)
def test_all_positions_are_scored_unless_some_are(small_model, inputs_BT, architecture, method):
    model = small_model(architecture, n_layers=3)
    model.entp_method = method
    prompts, scored_BT = arguments(model, inputs_BT)
    torch.testing.assert_close(model(inputs_BT, **prompts), model(inputs_BT, scored_BT, **prompts), rtol=0, atol=0)


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_a_compiled_model_is_the_same_function(small_model, inputs_BT, architecture):
    """A decoder in one graph, ENTP in several; no compiler of them is needed to tell."""
    model = small_model(architecture, n_layers=3)
    compiled = torch.compile(model, fullgraph=architecture == "decoder", backend="eager", dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs_BT[:, :3]), model(inputs_BT[:, :3]))
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(inputs=[[1, 2]]), "inputs"),
        (dict(inputs=torch.ones(3, 6)), "inputs"),
        (dict(inputs=torch.ones(3, 6, dtype=torch.uint8)), "inputs"),
        (dict(inputs=torch.ones(6, dtype=torch.long)), "inputs"),
        (dict(inputs=torch.ones(0, 6, dtype=torch.long)), "inputs"),
        (dict(inputs=torch.ones(3, 13, dtype=torch.long)), "max_length"),
        (dict(inputs=torch.full((3, 6), 11)), "token id 11"),
        (dict(inputs=torch.full((3, 6), -2)), "token id -2"),
        (dict(scored=torch.ones(3, 5, dtype=torch.bool)), "scored"),
        (dict(scored=torch.ones(3, 6, dtype=torch.int)), "scored"),
        (dict(positions_BT=[[0] * 6] * 3), "positions"),
        (dict(positions_BT=torch.zeros(3, 5, dtype=torch.long)), "positions"),
        (dict(positions_BT=torch.zeros(3, 6, dtype=torch.uint8)), "positions"),  # bytes would wrap in distances
        (dict(positions_BT=torch.full((3, 6), 12)), "position id 12"),
        (dict(positions_BT=torch.full((3, 6), -1)), "position id -1"),
        (dict(mask_BTT=torch.ones(3, 6, 6)), "mask"),  # numbers would be added to the scores
        (dict(mask_BTT=torch.ones(6, 6, dtype=torch.bool)), "mask"),
        (dict(mask_BTT=torch.ones(6, 6, dtype=torch.bool).triu(1).expand(3, 6, 6)), "token 0 of row 0"),
    ],
)
def test_bad_arguments_are_named(small_model, inputs_BT, changes, named):
    with pytest.raises(ValueError, match=named):
        small_model()(**{"inputs": inputs_BT, **changes})


def test_a_prefix_decoder_needs_prompts_and_does_not_answer_within_them(small_model, inputs_BT):
    model = small_model("prefix_decoder")
    everywhere_BT = torch.ones(3, 6, dtype=torch.bool)
    for wrong in (
        None,
        [1, 2, 3],
        torch.tensor([1, 1]),
        torch.tensor([0, 1, 1]),
        torch.tensor([1, 1, 7]),
        torch.ones(3),
    ):
        with pytest.raises(ValueError, match="prompt_lengths"):
            model(inputs_BT, prompt_lengths_B=wrong)
    with pytest.raises(ValueError, match="inside the prompt"):
        model(inputs_BT, everywhere_BT, torch.tensor([1, 3, 1]))


@pytest.mark.parametrize("device", ["gpu", "xpu", "mps", "cuda:99"] + ["cuda"] * (not torch.cuda.is_available()))
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(ConfigError, match=f"device = '{device}'"):
        build_model(ModelConfig("entp", 2, 2, 16, 11, 12), device=device)
