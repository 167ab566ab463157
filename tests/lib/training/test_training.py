"""The loop: schedule, exact resumption, what stops it, and what a checkpoint refuses."""

import functools
import itertools
import math
from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from made_up import train_until
from mistakes import refused

from entp_lab.configs import RunConfig
from entp_lab.resume import Checkpoint, train_run
from entp_lib import entp
from entp_lib.config import ARCHITECTURES, ModelConfig, TrainConfig
from entp_lib.evaluation import evaluate
from entp_lib.tasks import TASKS, Addition, Counting, generator_for
from entp_lib.tasks.base import Batch
from entp_lib.tasks.text import Text
from entp_lib.training import (
    STEPS_PER_DRAW,
    TrainingError,
    accumulate_gradients,
    add_point,
    check_fit,
    learning_rate,
    make_optimizer,
    train,
    training_batches,
)
from entp_lib.validation import ConfigError

COUNTING = Counting(length=8, seed_length=3, symbols=8)
STILL = dict(max_lr=1e-30, min_lr=0.0, eval_every=4)  # a run that learns nothing


@pytest.fixture
def counter(small_model):
    """A function that gives a model for ``COUNTING``, ENTP unless told otherwise."""
    return functools.partial(small_model, vocab_size=8, max_length=8, dtype=torch.float32)


def without_times(curves):
    return {name: values for name, values in curves.items() if name != "seconds"}


def assert_same(one, other):
    """Bit for bit: weights, curves and metrics."""
    assert without_times(one.state.curves) == without_times(other.state.curves)
    assert one.metrics == other.metrics
    assert all(map(torch.equal, one.model.parameters(), other.model.parameters()))


def test_schedule_at_its_corners():
    schedule = TrainConfig(steps=200, max_lr=1.0, min_lr=0.1, warmup_steps=10, decay_steps=110)
    rates = {step: learning_rate(step, schedule) for step in (1, 5, 10, 35, 60, 110, 200)}
    quarter = 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2
    assert rates == pytest.approx(
        {1: 0.1, 5: 0.5, 10: 1.0, 35: quarter, 60: 0.55, 110: 0.1, 200: 0.1}
    )
    to_the_end = replace(schedule, decay_steps=None)
    assert learning_rate(200, to_the_end) == 0.1
    assert learning_rate(105, to_the_end) == pytest.approx(0.55)
    assert learning_rate(55, replace(schedule, warmup_steps=0)) == pytest.approx(0.55)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_initial_weights_depend_on_the_model_seed_alone(small_run, architecture):
    base = small_run(seed=1)
    twin = replace(small_run(architecture, seed=1), data_seed=5)
    first, same, other = (
        {name: p for name, p in train_until(config, 0)[1].model.named_parameters() if p.dim() > 1}
        for config in (base, twin, small_run(architecture, seed=2))
    )
    assert first.keys() == same.keys()
    for name in first:
        assert torch.equal(first[name], same[name])
        assert not torch.equal(first[name], other[name])


def test_weight_decay_spares_vectors_only(small_model):
    model = small_model()
    groups = make_optimizer(model, TrainConfig(steps=1)).param_groups
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert decays == {id(p): 0.1 if p.dim() > 1 else 0.0 for p in model.parameters()}


def test_batches_do_not_depend_on_where_one_starts():
    def batches(first):
        for batch in training_batches(COUNTING, TrainConfig(steps=1), 0, first, "cpu"):
            yield tuple(batch.inputs_BT.flatten().tolist())

    whole = list(itertools.islice(batches(1), 2 * STEPS_PER_DRAW))
    for first in (5, STEPS_PER_DRAW, STEPS_PER_DRAW + 1, 2 * STEPS_PER_DRAW):
        assert next(batches(first)) == whole[first - 1]
    assert len(set(whole)) == len(whole)


@pytest.mark.parametrize(
    ("architecture", "cut", "changes"),
    [
        ("sums", 3, {}),
        ("prefix_decoder", 3, {"precision": "bf16"}),
        ("entp", 3, {"precision": "bf16"}),
        ("entp", 7, {"batch_size": 4, "steps": 2 * STEPS_PER_DRAW + 2}),
    ],
    ids=["sums", "bf16", "entp, bf16", "entp, across draws"],
)
def test_a_run_cut_anywhere_ends_like_an_uninterrupted_one(
    small_run, tmp_path, architecture, cut, changes
):
    config = (
        addition_run(**ANSWERS) if architecture == "sums" else small_run(architecture, **changes)
    )
    whole = train_run(config)
    path = tmp_path / "run.safetensors"
    for step in range(cut, config.train.steps, cut):
        part, state = train_until(config, cut, path)
        assert part is None
        assert state.step == step
    rest, _ = train_until(config, cut, path)
    assert rest.costs["token_forwards"] == whole.costs["token_forwards"]
    assert_same(rest, whole)


def test_a_stored_configuration_still_computes_what_it_did(small_run):
    outcome = train_run(small_run("entp", task=dict(held_out=0.2)))
    curves = outcome.state.curves
    found = [*curves["train_loss"], *curves["loss"], outcome.metrics["loss"]]
    before = [2.07803, 2.03975, 2.04636, 2.04813, 2.02142, 2.02215, 2.01342]
    assert found == pytest.approx(before, rel=1e-4)


def test_curves_count_steps_and_tokens_and_metrics_are_detailed(small_run):
    outcome = train_run(small_run("entp", steps=10, eval_every=4))
    assert outcome.state.curves["step"] == [4, 8, 10]
    assert outcome.state.curves["token_forwards"] == [
        step * 8 * sum(range(4, 9)) for step in (4, 8, 10)
    ]
    assert outcome.metrics["sequences"] == 64
    assert outcome.metrics.keys() >= {"first_generated", "margin", "baseline"}


def test_the_training_loss_is_the_mean_since_the_last_evaluation(small_run):
    """Evaluating twice as often must give the same losses on average."""

    def losses(**schedule):
        return train_run(small_run(**schedule)).state.curves["train_loss"]

    often = losses(eval_every=2)
    seldom = losses(eval_every=4)
    means = [(a + b) / 2 for a, b in zip(often[::2], often[1::2], strict=True)]
    assert means == pytest.approx(seldom, rel=1e-6)
    still = losses(**STILL, steps=9)
    assert still == pytest.approx([math.log(8)] * 3, abs=0.3)  # the last averages over one step


def test_a_loss_that_explodes_is_an_error_with_its_step_and_rate(small_run):
    with pytest.raises(
        TrainingError, match=r"loss is (nan|inf) at step 4; a lower max_lr than 1e\+30"
    ):
        train_run(small_run(max_lr=1e30, warmup_steps=0))


def test_a_last_update_that_ruins_the_weights_is_an_error_and_no_complete_run(
    small_run, monkeypatch
):
    """The training loss comes before the update, so that the held-out loss is what tells."""
    monkeypatch.setattr(
        "entp_lib.training.evaluate", lambda *_, **__: {"loss": math.nan, "token_accuracy": 0.0}
    )
    with pytest.raises(
        TrainingError, match=r"the held-out loss is nan at step 4; a lower max_lr than"
    ):
        train_run(small_run())


def waited(losses):
    """How many points a run has waited for a better one, at each."""
    return [n - losses.index(min(losses[:n])) - 1 for n in range(1, len(losses) + 1)]


def test_patience_ends_a_run_that_no_longer_improves(small_run):
    """After the wait has begun anew twice."""
    config = small_run(seed=8, **STILL, steps=80, patience=2)
    losses = train_run(config).state.curves["train_loss"]
    endless = replace(config, train=replace(config.train, patience=0))
    course = train_run(endless).state.curves["train_loss"]
    assert len(course) == 20
    assert course[: len(losses)] == losses
    assert waited(course).index(2) + 1 == len(losses)


@pytest.mark.parametrize("cut", [6, 80])
def test_patience_is_kept_over_a_cut(small_run, tmp_path, cut):
    """Also where the run had stopped already and was killed before its record was written."""
    config = small_run(**STILL, steps=80, patience=2)
    whole = train_run(config)
    train_until(config, cut, tmp_path / "run")
    resumed = train_run(config, checkpoint=Checkpoint(tmp_path / "run"))
    assert resumed.state.step == whole.state.step < 80
    assert_same(resumed, whole)


@pytest.mark.parametrize(
    "model", [dict(vocab_size=9), dict(max_length=7), dict(input_dim=3, output_dim=1)]
)
def test_task_and_model_must_fit(small_run, model):
    with refused(f"{next(iter(model))} = "):
        train_run(small_run(model=model))


@pytest.mark.parametrize("task", [Addition(n_train=200, view="windows"), Text(context=13)], ids=str)
def test_a_prefix_decoder_needs_the_prompts_that_it_opens_later(task):
    """Windows of a text have none: it would be asked under a mask that it has never had."""
    decoder = ModelConfig("decoder", 2, 2, 16, task.vocab_size, task.length)
    check_fit(task, decoder)
    with refused("trains without the prompts that it opens later"):
        check_fit(task, replace(decoder, architecture="prefix_decoder"))


def addition_run(**params):
    """A run with a test set: the weights of every checkpoint rule are scored on it."""
    task = Addition(**params)
    model = ModelConfig("decoder", 2, 2, 16, task.vocab_size, task.length)
    train = TrainConfig(
        10, 16, 3e-2, 0.0, 2, eval_every=2, eval_sequences=64, final_eval_sequences=300
    )
    return RunConfig("test", "smoke", "addition", params, model, train)


ANSWERS = dict(n_train=200)
WINDOWS = dict(n_train=200, largest=99, view="windows", drawn=5)
RULES = {
    "lowest_loss": ("loss", min),
    "highest_accuracy": ("sequence_accuracy", max),
    "lowest_text_loss": ("text_loss", min),
}


@pytest.mark.parametrize(
    ("params", "rules"), [(ANSWERS, 2), (WINDOWS, 3)], ids=["answers", "windows"]
)
def test_every_checkpoint_rule_is_tested(params, rules):
    """Only a run on windows watches whole texts."""
    outcome = train_run(addition_run(**params))
    curves = outcome.state.curves
    test = outcome.metrics["test"]
    steps = {"last": 10}
    for rule, (score, best) in list(RULES.items())[:rules]:
        steps[rule] = curves["step"][curves[score].index(best(curves[score]))]
    assert {rule: scores["step"] for rule, scores in test.items()} == steps
    for scores in test.values():
        groups = pd.DataFrame(scores["groups"].values()).sum()
        assert groups["sequences"] == 300
        assert groups["right"] / 300 == pytest.approx(scores["sequence_accuracy"])
    again = evaluate(outcome.model, Addition(**params).test(), 300, 0, "test")
    # the last weights are in place again
    assert again["loss"] == pytest.approx(test["last"]["loss"])


def test_the_weights_of_the_lowest_loss_and_of_the_first_highest_score_are_kept(monkeypatch):
    config = addition_run(**ANSWERS)
    _, state = train_until(config, 0)
    for step, loss in enumerate((3.0, 1.0, 2.0, 0.5)):
        state.step = step
        scores = {"loss": loss, "sequence_accuracy": 0.0}
        monkeypatch.setattr("entp_lib.training.evaluate", lambda *_, found=scores, **__: found)
        add_point(state, Addition(**ANSWERS), 1.0, 0, {})
    assert state.kept["lowest_loss"] == {"step": 3, "score": 0.5}
    assert state.kept["highest_accuracy"]["step"] == 0


@dataclass(frozen=True)
class Curriculum(Counting):
    """Counting whose first sixteen steps have shorter sequences, watched as a task of its own."""

    patience_score = "short_loss"

    def at_step(self, step):
        return replace(self, length=6) if step <= 16 else self

    def extra_scorings(self):
        return {"short": replace(self, length=6)}


def test_a_curriculum_goes_by_the_step_and_a_watched_task_by_its_name(small_run, monkeypatch):
    monkeypatch.setitem(TASKS, "counting", Curriculum)
    config = small_run(steps=20, eval_every=5, patience=2, max_lr=1e-9, min_lr=0.0)
    batches = training_batches(Curriculum(**config.task_params), config.train, 0, 15, "cpu")
    lengths = [batch.inputs_BT.shape[1] for batch in itertools.islice(batches, 4)]
    assert lengths == [6, 6, 8, 8]
    curves = train_run(config).state.curves
    watched = curves["short_loss"]
    assert watched != curves["loss"]
    *before, last = waited(watched)
    assert last == 2 or len(watched) == 4
    assert max(before) < 2


@dataclass(frozen=True)
class Backwards(Counting):
    """Counting whose tokens count their positions from the end and do not see the token before
    them.
    """

    def batch(self, generator, size, evaluating=False):
        batch = super().batch(generator, size, evaluating)
        length = batch.inputs_BT.shape[1]
        mask_TT = torch.ones(length - 1).diag(-1) == 0
        positions_BT = torch.arange(length).flip(0).expand(size, -1)
        return replace(batch, positions_BT=positions_BT, mask_BTT=mask_TT.expand(size, -1, -1))


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_a_task_may_bring_position_ids_and_a_mask(small_run, monkeypatch, architecture):
    """A step descends the loss of the model that is told them, and evaluation tells them too."""
    config = small_run(architecture, model=dict(n_layers=3))
    plain = train_run(config)
    monkeypatch.setitem(TASKS, "counting", Backwards)
    told = train_run(config)
    assert told.state.curves["train_loss"] != plain.state.curves["train_loss"]
    tasks = Backwards(**config.task_params), Counting(**config.task_params)
    with_them, without = (evaluate(told.model.eval(), task, 64, 0, "x")["loss"] for task in tasks)
    assert with_them != without


@pytest.mark.parametrize("frozen", [(), ("embedding", "positions", "blocks.0")])
@pytest.mark.parametrize(
    ("shared", "precision", "bound"),
    [(False, "fp32", 1e-5), (True, "fp32", 1e-5), (True, "bf16", 2e-2)],
    ids=["apart", "shared", "shared, bf16"],
)
@pytest.mark.parametrize("architecture", ["entp", "hybrid"])
def test_gradients_of_micro_batches_add_up_to_those_of_the_whole(
    counter, monkeypatch, architecture, shared, precision, bound, frozen
):
    """Whether each projects for itself or all share one projection, of trained or frozen layers."""
    monkeypatch.setattr(entp, "RECORDED_WIDTH", 0 if shared else 16)
    model = counter(architecture, n_layers=4)
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(frozen))
    batch = COUNTING.batch(generator_for("cpu", 0), 6)
    found = []
    for tokens in (10_000, 12):
        model.micro_batch_tokens = tokens
        loss = accumulate_gradients(model, COUNTING, batch, len(batch.targets_N), precision)
        found.append([loss, *(p.grad for p in model.parameters() if p.requires_grad)])
        model.zero_grad()
    assert len(model.plan(batch.scored_BT)) > 3
    for whole, added in zip(*found, strict=True):
        assert (added - whole).abs().max() <= bound * whole.abs().max()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda b: b.rows(slice(40)), ConfigError, "returned 40 sequences of 512 asked for"),
        (lambda b: replace(b, targets_BT=b.targets_BT.int()), ConfigError, "targets of shape"),
        (lambda b: replace(b, targets_BT=b.targets_BT + 8), ConfigError, "target 1.: must be"),
        (lambda b: replace(b, scored_BT=b.scored_BT & False), TrainingError, "step 1 is scored"),
        (lambda b: b.rows(torch.randperm(512)), ConfigError, "draws without its generator"),
        (
            lambda b: replace(b, scored_BT=torch.rand(b.scored_BT.shape) < 0.5),
            ConfigError,
            "draws without its generator",
        ),
        (
            lambda b: Batch.of_text(F.pad(b.inputs_BT, (0, 2))),
            ConfigError,
            "returned 9 tokens; length = 8",
        ),
    ],
)
def test_a_batch_that_teaches_nothing_is_named(counter, monkeypatch, change, error, message):
    batch = Counting.batch
    monkeypatch.setattr(Counting, "batch", lambda *arguments: change(batch(*arguments)))
    with pytest.raises(error, match=message):
        train(counter(), COUNTING, TrainConfig(steps=2, batch_size=32))


def test_a_model_without_a_parameter_to_train_is_named(counter):
    with refused("all parameters are frozen"):
        train(counter().requires_grad_(False), COUNTING, TrainConfig(steps=1))


def change_of_a_step(model, clip):
    """By how much one step changes the last bias."""
    before = model.ln_f.bias.detach().clone()
    train(model, COUNTING, TrainConfig(steps=1, warmup_steps=0, grad_clip=clip))
    return model.ln_f.bias.detach() - before


def test_clipping_bounds_what_a_step_changes(counter):
    free, clipped = (change_of_a_step(counter(), clip).abs().max() for clip in (None, 1e-9))
    assert free > 2 * clipped  # whose gradients are smaller than Adam's epsilon


@pytest.mark.parametrize("clip", [None, 1e-6])
def test_gradients_from_before_change_no_step(counter, clip):
    """Neither those that an interrupted step left nor, in the clipping, those of frozen weights."""
    found = []
    for old in (0.0, 1e6):
        model = counter()
        for p in model.parameters():
            p.grad = torch.full_like(p, old)
        model.blocks[0].fc_in.bias.requires_grad_(False)
        found.append(change_of_a_step(model, clip))
    assert torch.equal(*found)
