"""The study of abstraction: deterministic, paired, and above its floor."""

import json

import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact.abstraction_studies import abstraction_study

TASK = dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3)
TINY = dict(n_layers=2, n_heads=2, width=16, steps=4, batch_size=8, evaluations=2, sequences=16)


def test_deterministic_and_plain():
    first = abstraction_study(TASK, "decoder", **TINY)
    assert first == abstraction_study(TASK, "decoder", **TINY)
    metrics, curves = json.loads(json.dumps(first))
    assert curves["step"] == [2, 4] and len(metrics["held_out"]["loss_by_position"]) == 11
    assert set(metrics["last"]) == set(metrics["matching"]) == {"held_out", "seen"}
    assert metrics["seen"]["loss"] > metrics["floor"]


def test_one_layer_of_entp_is_the_decoder_and_two_are_not():
    for n_layers, same in ((1, True), (2, False)):
        losses = [
            abstraction_study({**TASK, "scored": "sampled", "sample": 4}, name, **{**TINY, "n_layers": n_layers})[1]
            for name in ("decoder", "entp")
        ]
        assert (losses[0]["loss"] == pytest.approx(losses[1]["loss"], rel=1e-6)) == same


def test_a_small_task_comes_near_its_floor_and_never_below_it():
    task = dict(template_length=3, variables=1, instances=2, digits=3, held_out=0.0, sample=1)
    metrics, _ = abstraction_study(task, "decoder", **{**TINY, "steps": 250, "width": 32, "n_layers": 1, "rate": 3e-3})
    assert metrics["floor"] - 0.03 < metrics["seen"]["loss"] < metrics["floor"] + 0.1
    assert metrics["last"]["seen"] > 0.95


@pytest.mark.parametrize(
    "task, changes, named",
    [
        ({**TASK, "template_length": 2}, {}, "template_length = 2: must exceed variables = 2"),
        ({**TASK, "scored": "last"}, {}, "task.scored = 'last'"),
        (TASK, dict(n_heads=3), "width = 16 is not divisible by n_heads = 3"),
        (TASK, dict(steps=0), "steps = 0"),
    ],
)
def test_bad_input(task, changes, named):
    with pytest.raises(ConfigError, match=named):
        abstraction_study(task, "decoder", **{**TINY, **changes})
