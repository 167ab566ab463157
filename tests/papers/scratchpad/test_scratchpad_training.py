"""Training on scratchpads: every arm runs, is scored as it should be, and a tiny task is learned."""

import numpy as np
import pytest

from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.models import build_model
from entp_lib.validation import ConfigError
from entp_papers.scratchpad.format import Example, chunks
from entp_papers.scratchpad.training import (
    ScratchpadConfig,
    compare_ways,
    context_for,
    draw,
    state_errors,
    text_scores,
    train_on,
    training_study,
)

TINY = dict(
    problem="parity",
    problem_params=dict(slots=4),
    train_sizes=(1, 2),
    test_sizes=(2, 3),
    n_layers=2,
    n_heads=2,
    width=16,
)
STEPS = dict(steps=3, batch_size=4, warmup_steps=1, eval_every=1)


@pytest.mark.parametrize("scratchpad, architecture", [("inductive", "decoder"), ("ordinary", "entp"), ("none", "entp")])
def test_every_arm_runs(scratchpad, architecture):
    setting = dict(TINY, scratchpad=scratchpad, architecture=architecture)
    metrics, curves = training_study(setting, STEPS, 3, 2, 0)
    assert training_study(setting, STEPS, 3, 2, 0) == (metrics, curves)
    assert curves["size"] == [2, 3] and len(curves["train_loss"]) == 3
    assert all(0 <= x <= 1 for name in ("answers_right", "texts_right", "state_error") for x in curves[name])
    assert len(curves["error_by_state"]) == (1 if scratchpad == "none" else 4)
    if "ways" in metrics:
        assert metrics["ways"]["largest_difference"] < 1e-9 and metrics["ways"]["differing_texts"] == 0
    assert ("ways" in metrics) == ((scratchpad, architecture) == ("inductive", "decoder"))


def test_both_ways_of_cutting_train_the_same_model():
    losses = []
    for rows in ("duplicated", "chunks"):
        setting = ScratchpadConfig(**TINY, scratchpad="inductive", architecture="decoder", positions="alibi", rows=rows)
        losses.append(train_on(setting, TrainConfig(**STEPS), 0, 0)[1])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4) and losses[0][0] != losses[0][-1]


def test_whole_texts_of_trained_sizes_fit_the_context():
    """Reading with a mask takes the whole text, which is longer than any chunk that the model was trained on."""
    setting = ScratchpadConfig("shift_addition", dict(most_digits=4), "inductive", "decoder", (1, 4), (4,), 2, 2, 16)
    task = setting.build_problem()
    examples = draw(task, 3, [4], "compare", 0)
    assert max(len(task.pad().text(e)) for e in examples) > max(
        len(r.tokens) for e in examples for r in chunks(task.pad(), e)
    )
    model = build_model(ModelConfig("decoder", 2, 2, 16, len(task.vocabulary), context_for(setting, task)), 0).eval()
    assert compare_ways(model, task, examples)["largest_difference"] < 1e-9


def test_a_state_is_learned_and_scored():
    """One bit in one slot, copied to two states."""
    setting = ScratchpadConfig("parity", dict(slots=1), "inductive", "decoder", (1,), (1,), 2, 2, 32)
    schedule = TrainConfig(steps=100, batch_size=24, max_lr=1e-2, min_lr=1e-3, warmup_steps=10, weight_decay=0.0)
    model, losses = train_on(setting, schedule, 0, 0)
    problem = setting.build_problem()
    examples = draw(problem, 20, [1], "test", 1)
    assert losses[-1] < 0.1 * losses[0]
    assert text_scores(model, setting, problem, examples) == {"answers_right": 1.0, "texts_right": 1.0}
    assert state_errors(model, setting, problem, examples) == [0.0, 0.0]
    broken = [Example(e.question, tuple(reversed(e.states)), e.answer) for e in examples]
    assert np.mean(state_errors(model, setting, problem, broken)) > 0.3


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(problem="sorting"), "problem = 'sorting'"),
        (dict(architecture="prefix_decoder"), "architecture = 'prefix_decoder'"),
        (dict(architecture="entp", rows="duplicated"), "rows = 'duplicated'"),
        (dict(test_sizes=(4, 2)), "test_sizes = .4, 2."),
        (dict(problem_params=dict(slot=4)), "parity.'slot'"),
        (dict(test_sizes=(5,)), "5 bits"),
        (dict(tested=0), "tested = 0"),
    ],
)
def test_bad_input_is_named_before_any_training(changes, named, monkeypatch):
    monkeypatch.setattr("entp_papers.scratchpad.training.make_optimizer", lambda *_: pytest.fail("it was trained"))
    numbers = {name: changes.pop(name, default) for name, default in (("tested", 2), ("compared", 0))}
    setting = {**TINY, "scratchpad": "none", "architecture": "decoder", **changes}
    with pytest.raises(ConfigError, match=named):
        training_study(setting, STEPS, **numbers, seed=0)
