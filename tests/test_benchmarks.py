"""Opponents of the engine's benchmark compute the same thing, and its rows have the columns that
readers expect.
"""

import pytest
import torch

from benchmarks import engine
from benchmarks.hammer import inputs
from entp_lib.config import ModelConfig
from entp_lib.model import build_model


def gradients(model, step):
    step()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("other", ["loop", "padded"])
def test_opponents_compute_the_same_gradients(other):
    """The loop and the padded batch are honest: same loss, same gradients as the engine's step."""
    tiny = build_model(ModelConfig("entp", 3, 2, 16, engine.VOCAB, 10)).double()
    x, y = engine.data(4, 10, "cpu")
    scored = torch.ones_like(x, dtype=torch.bool)
    step = {
        "loop": lambda: engine.loop_step(tiny, x, y, scored),
        "padded": lambda: engine.padded_step(tiny, x, y, 35),
    }[other]
    expected = gradients(tiny, lambda: engine.engine_step(tiny, x, y, scored))
    for found, grad in zip(gradients(tiny, step), expected, strict=True):
        torch.testing.assert_close(found, grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["record, looked at", "stories"])
def test_the_hammer_finds_nothing_malformed_that_is_used(kind, tmp_path):
    """Its quick kinds of file with all damage; the hammer itself takes minutes."""
    spoiled = inputs.KINDS[kind]
    (tmp_path / "sound").mkdir()
    spoiled.make(tmp_path / "sound")
    sound = spoiled.read(tmp_path / "sound")
    for how, damage in inputs.DAMAGE.items():
        at = tmp_path / how
        at.mkdir()
        path = spoiled.make(at)
        damage(path)
        assert inputs.judged(spoiled, at, path, sound) == [], how
