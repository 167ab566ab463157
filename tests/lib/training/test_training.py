"""The loop: schedule, exact resumption, what stops it, and what a checkpoint refuses."""

import dataclasses
import math

import pytest
import torch
from made_up import train_until

from entp_lab.configs import RunConfig
from entp_lab.resume import Checkpoint, train_run
from entp_lib import entp
from entp_lib.config import ARCHITECTURES, ModelConfig, TrainConfig
from entp_lib.evaluation import evaluate
from entp_lib.model import build_model
from entp_lib.tasks import TASKS, Counting, build_task, generator_for
from entp_lib.tasks.text import Text
from entp_lib.training import (
    STEPS_PER_DRAW,
    TrainingError,
    TrainingState,
    accumulate_gradients,
    add_point,
    check_fit,
    learning_rate,
    make_optimizer,
    training_batches,
)
from entp_lib.validation import ConfigError


def without_times(curves):
    return {name: values for name, values in curves.items() if name != "seconds"}


def test_schedule_at_its_corners():
    schedule = TrainConfig(steps=200, max_lr=1.0, min_lr=0.1, warmup_steps=10, decay_steps=110)
    rates = {step: learning_rate(step, schedule) for step in (1, 5, 10, 60, 110, 200)}
    assert rates == pytest.approx({1: 0.1, 5: 0.5, 10: 1.0, 60: 0.55, 110: 0.1, 200: 0.1})
    to_the_end = dataclasses.replace(schedule, decay_steps=None)
    assert learning_rate(200, to_the_end) == 0.1
    assert learning_rate(105, to_the_end) == pytest.approx(0.55)
    no_warmup = dataclasses.replace(schedule, warmup_steps=0)
    assert 0.99 < learning_rate(1, no_warmup) < 1.0
    assert learning_rate(55, no_warmup) == pytest.approx(0.55)
    rates = [learning_rate(step, schedule) for step in range(1, 201)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_initial_weights_depend_on_the_model_seed_alone(small_run):
    base = small_run(seed=1)
    config = dataclasses.replace(small_run("entp", seed=1), data_seed=5)
    models = [train_until(c, 0)[1].model for c in (base, config, small_run("entp", seed=2))]
    ours, twin, other = ([p for p in m.parameters() if p.dim() > 1] for m in models)
    assert all(torch.equal(p, q) for p, q in zip(ours, twin, strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(ours, other, strict=True))


def test_weight_decay_spares_vectors_only(small_model):
    model = small_model()
    decayed, spared = make_optimizer(model, TrainConfig(steps=1)).param_groups
    assert decayed["weight_decay"] == 0.1
    assert spared["weight_decay"] == 0.0
    assert all(p.dim() >= 2 for p in decayed["params"])
    assert all(p.dim() < 2 for p in spared["params"])
    assert any(p is model.positions.weight for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_batch_can_be_overfitted(small_run, architecture):
    config = small_run(architecture, model=dict(width=32))
    task = Counting(**config.task_params)
    batch = next(training_batches(task, config.train, 0, 1, "cpu"))
    model = build_model(config.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = task.losses(model(batch.inputs_BT, batch.scored_BT, batch.prompt_lengths_B), batch.targets_N).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.02


def test_batches_do_not_depend_on_where_one_starts(small_run):
    config = small_run()
    task = Counting(**config.task_params)
    stream = training_batches(task, config.train, 0, 1, "cpu")
    whole = [next(stream).inputs_BT for _ in range(2 * STEPS_PER_DRAW)]
    for first in (1, 5, STEPS_PER_DRAW, STEPS_PER_DRAW + 1, 2 * STEPS_PER_DRAW):
        assert torch.equal(next(training_batches(task, config.train, 0, first, "cpu")).inputs_BT, whole[first - 1])
    assert len({tuple(x.flatten().tolist()) for x in whole}) == len(whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "entp"},
        {"architecture": "decoder"},
        {"architecture": "prefix_decoder", "precision": "bf16"},
        {"architecture": "entp", "precision": "bf16"},
        {"architecture": "entp", "batch_size": 4, "steps": 2 * STEPS_PER_DRAW + 2, "cut": 7},
    ],
    ids=["entp", "decoder", "bf16", "entp, bf16", "across draws"],
)
def test_a_run_cut_anywhere_ends_like_an_uninterrupted_one(small_run, tmp_path, changes):
    """Bit for bit: weights, moments, curves and metrics. Cut after every third step, or every ``cut``."""
    cut = changes.pop("cut", 3)
    config = small_run(**changes)
    whole = train_run(config)
    checkpoint = tmp_path / "run.safetensors"
    cuts = 0
    while True:
        part, state = train_until(config, cut, checkpoint)
        if part is not None:
            break
        cuts += 1
        assert state.step == cut * cuts
    assert cuts == (config.train.steps - 1) // cut
    assert part.costs["token_forwards"] == whole.costs["token_forwards"]
    assert without_times(part.state.curves) == without_times(whole.state.curves)
    assert part.metrics == whole.metrics
    for (name, p), q in zip(part.model.named_parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(p, q), name


def test_curves_and_metrics_have_what_notebooks_show(small_run):
    outcome = train_run(small_run("entp", steps=10, eval_every=4))
    curves = outcome.state.curves
    metrics = outcome.metrics
    assert curves["step"] == [4, 8, 10]
    assert curves["token_forwards"] == [step * 8 * sum(range(4, 9)) for step in (4, 8, 10)]
    assert metrics["position"] == [4, 5, 6, 7, 8]
    assert metrics["sequences"] == 64
    assert 0 <= metrics["first_generated"]["token_accuracy"] <= 1
    assert metrics["margin"]["q05"] <= metrics["margin"]["q50"] <= metrics["margin"]["q95"]
    assert metrics["baseline"]["token_accuracy"] > 1 / 8


def test_the_training_loss_is_the_mean_since_the_last_evaluation(small_run):
    """Evaluating twice as often must give the same losses on average."""
    often = train_run(small_run(eval_every=2)).state.curves["train_loss"]
    seldom = train_run(small_run(eval_every=4)).state.curves["train_loss"]
    last = train_run(small_run(max_lr=1e-30, min_lr=0.0, steps=9, eval_every=4)).state.curves["train_loss"]
    assert last == pytest.approx([math.log(8)] * 3, abs=0.3)  # the last point averages over one step only
    assert [(a + b) / 2 for a, b in zip(often[::2], often[1::2], strict=True)] == pytest.approx(seldom, rel=1e-6)


def test_a_loss_that_explodes_is_an_error_with_its_step_and_rate(small_run):
    with pytest.raises(TrainingError, match=r"loss is (nan|inf) at step 4; a lower max_lr than 1e\+30"):
        train_run(small_run(max_lr=1e30, warmup_steps=0))


def test_a_last_update_that_ruins_the_weights_is_an_error_and_no_complete_run(small_run, monkeypatch):
    """The training loss comes before the update, so that the held-out loss is what tells."""
    monkeypatch.setattr("entp_lib.training.evaluate", lambda *_, **__: {"loss": math.nan, "token_accuracy": 0.0})
    with pytest.raises(TrainingError, match=r"the held-out loss is nan at step 4; a lower max_lr than"):
        train_run(small_run())


def test_patience_ends_a_run_that_no_longer_improves(small_run):
    """After the wait has begun anew twice."""
    config = small_run(seed=8, max_lr=1e-30, min_lr=0.0, steps=80, eval_every=4, patience=2)
    outcome = train_run(config)
    assert outcome.state.step < 80
    assert outcome.metrics
    losses = outcome.state.curves["train_loss"]
    assert min(losses[-2:]) >= min(losses[:-2])
    lasting = train_run(dataclasses.replace(config, train=dataclasses.replace(config.train, patience=0))).state
    assert lasting.step == 80
    assert lasting.curves["train_loss"][: len(losses)] == losses
    course = lasting.curves["train_loss"]
    waited = [n - course.index(min(course[:n])) - 1 for n in range(1, len(course) + 1)]  # points since the best
    assert waited.index(2) + 1 == len(losses)


@pytest.mark.parametrize("cut", [6, None])
def test_patience_is_kept_over_a_cut(small_run, tmp_path, cut):
    """Also where the run had stopped already and was killed before its record was written."""
    config = small_run(max_lr=1e-30, min_lr=0.0, steps=80, eval_every=4, patience=2)
    checkpoint = tmp_path / "run"
    whole = train_run(config)
    if cut is None:
        train_run(config, checkpoint=Checkpoint(checkpoint))
    else:
        train_until(config, cut, checkpoint)
    resumed = train_run(config, checkpoint=Checkpoint(checkpoint))
    assert resumed.state.step == whole.state.step
    assert resumed.metrics == whole.metrics
    assert without_times(resumed.state.curves) == without_times(whole.state.curves)


@pytest.mark.parametrize("model", [dict(vocab_size=9), dict(max_length=7), dict(input_dim=3, output_dim=1)])
def test_task_and_model_must_fit(small_run, model):
    with pytest.raises(ConfigError, match=f"{next(iter(model))} = "):
        train_run(small_run(model=model))


def test_a_prefix_decoder_needs_the_prompts_that_it_opens_later(addition_run):
    """Windows of a text have none; trained so it would be asked under a mask that it has never had."""
    prefix = dataclasses.replace(
        addition_run, model=dataclasses.replace(addition_run.model, architecture="prefix_decoder")
    )
    check_fit(build_task("addition", {"n_train": 200}), prefix.model)
    for task in (build_task("addition", {"n_train": 200, "view": "windows"}), Text(context=13)):
        config = dataclasses.replace(
            prefix, model=dataclasses.replace(prefix.model, vocab_size=task.vocab_size, max_length=task.length)
        )
        with pytest.raises(ConfigError, match="trains without the prompts that it opens later"):
            check_fit(task, config.model)
        check_fit(task, dataclasses.replace(config.model, architecture="decoder"))


@pytest.fixture
def addition_run():
    """A run with a test set: the weights of every checkpoint rule are scored on it."""
    return RunConfig(
        "test",
        "smoke",
        "addition",
        dict(n_train=200),
        ModelConfig("decoder", 2, 2, 16, 14, 13),
        TrainConfig(10, 16, 3e-2, 0.0, 2, eval_every=2, eval_sequences=64, final_eval_sequences=300),
    )


def test_every_checkpoint_rule_is_tested(addition_run):
    outcome = train_run(addition_run)
    curves = outcome.state.curves
    test = outcome.metrics["test"]
    assert set(test) == {"last", "lowest_loss", "highest_accuracy"}  # the answer view watches no whole texts
    assert test["last"]["step"] == 10
    assert test["lowest_loss"]["step"] == curves["step"][curves["loss"].index(min(curves["loss"]))]
    best = curves["sequence_accuracy"].index(max(curves["sequence_accuracy"]))
    assert test["highest_accuracy"]["step"] == curves["step"][best]
    for scores in test.values():
        assert sum(g["sequences"] for g in scores["groups"].values()) == 300
        right = sum(g["right"] for g in scores["groups"].values())
        assert right / 300 == pytest.approx(scores["sequence_accuracy"])
    again = evaluate(outcome.model, build_task("addition", {"n_train": 200}).test(), 300, 0, "test")
    assert again["loss"] == pytest.approx(test["last"]["loss"])  # the last weights are in place again


def test_the_weights_of_the_lowest_loss_and_of_the_first_highest_score_are_kept(addition_run, monkeypatch):
    model = build_model(addition_run.model, 0)
    state = TrainingState(model, make_optimizer(model, addition_run.train), addition_run.train, torch.zeros(()))
    task = build_task("addition", {"n_train": 200})
    for step, loss in enumerate((3.0, 1.0, 2.0, 0.5)):
        state.step = step
        scores = {"loss": loss, "sequence_accuracy": 0.0}
        monkeypatch.setattr("entp_lib.training.evaluate", lambda *_, found=scores, **__: found)
        add_point(state, task, 1.0, 0, "cpu")
    assert state.kept["lowest_loss"] == {"step": 3, "score": 0.5}
    assert state.kept["highest_accuracy"]["step"] == 0


@dataclasses.dataclass(frozen=True)
class Curriculum(Counting):
    """Counting whose first sixteen steps have shorter sequences, watched as a task of its own."""

    patience_score = "short_loss"

    def at_step(self, step):
        return dataclasses.replace(self, length=6) if step <= 16 else self

    def extra_scorings(self):
        return {"short": dataclasses.replace(self, length=6)}


def test_a_curriculum_goes_by_the_step_and_a_watched_task_by_its_name(small_run, monkeypatch):
    monkeypatch.setitem(TASKS, "counting", Curriculum)
    config = small_run(steps=20, eval_every=5, patience=2, max_lr=1e-9, min_lr=0.0)
    outcome = train_run(config)
    lengths = [
        b.inputs_BT.shape[1]
        for b, _ in zip(
            training_batches(build_task("counting", config.task_params), config.train, 0, 15, "cpu"),
            range(4),
            strict=False,
        )
    ]
    assert lengths == [6, 6, 8, 8]
    curves = outcome.state.curves
    assert len(curves["short_loss"]) == len(curves["step"])
    assert curves["short_loss"] != curves["loss"]
    watched = curves["short_loss"]
    better = [0, *(i for i in range(1, len(watched)) if watched[i] < min(watched[:i]))]
    assert len(watched) == min(4, next(i for i in range(99) if i - max(b for b in better if b <= i) == 2) + 1)


@dataclasses.dataclass(frozen=True)
class Backwards(Counting):
    """Counting whose tokens count their positions from the end and do not see the token before them."""

    def batch(self, generator, size, evaluating=False):
        batch = super().batch(generator, size, evaluating)
        length = batch.inputs_BT.shape[1]
        mask_TT = torch.ones(length, length, dtype=torch.bool) ^ torch.ones(length - 1, dtype=torch.bool).diag(-1)
        positions_BT = torch.arange(length).flip(0).expand(size, -1)
        return dataclasses.replace(batch, positions_BT=positions_BT, mask_BTT=mask_TT.expand(size, -1, -1))


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_a_task_may_bring_position_ids_and_a_mask(small_run, monkeypatch, architecture):
    """A step descends the loss of the model that is told them, and evaluation tells them too."""
    config = small_run(architecture, model=dict(n_layers=3))
    plain = train_run(config)
    monkeypatch.setitem(TASKS, "counting", Backwards)
    told = train_run(config)
    assert told.state.curves["train_loss"] != plain.state.curves["train_loss"]
    batch = next(training_batches(build_task("counting", config.task_params), config.train, 0, 3, "cpu"))
    assert batch.mask_BTT.shape == (8, 8, 8)
    assert batch.positions_BT[0].tolist() == list(range(8))[::-1]
    model = told.model.eval()
    scores = evaluate(model, Backwards(**config.task_params), 64, 0, "x")
    assert scores["loss"] != evaluate(model, Counting(**config.task_params), 64, 0, "x")["loss"]


def test_gradients_of_micro_batches_add_up_to_those_of_the_whole(small_model, monkeypatch):
    task = Counting(length=8, seed_length=3, symbols=8)
    model = small_model("entp", vocab_size=8, max_length=8, dtype=torch.float32)
    batch = task.batch(generator_for("cpu", 0), 6)
    found = []
    for tokens in (10_000, 12):
        monkeypatch.setattr(entp, "micro_batch_tokens", lambda *_, tokens=tokens: tokens)
        loss = accumulate_gradients(model, task, batch, len(batch.targets_N), "fp32")
        found.append([loss, *(p.grad.clone() for p in model.parameters())])
        model.zero_grad()
    assert len(model.plan(batch.scored_BT)) > 3
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
