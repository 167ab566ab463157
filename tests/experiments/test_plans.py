"""Experiments as tables: which runs a plan stands for, what a budget makes equal, which claims are measured."""

import math

import pytest
from made_up import record_of

from entp_lib.config import TrainConfig
from entp_lib.experiments.budgets import equal_forwards, equal_operations, layer_tokens, training_operations
from entp_lib.experiments.comparisons import Comparisons, Paired
from entp_lib.experiments.plans import Arm, Plan, Tier, Variant, run_of

TASK, SHAPE = dict(length=8, seed_length=3, symbols=8), dict(n_layers=2, n_heads=2, width=16)
TRAIN = TrainConfig(steps=200, batch_size=8, warmup_steps=2, eval_every=20, eval_sequences=8)
ARMS = {
    "decoder": Arm("decoder"),
    "entp": Arm("entp"),
    "longer": Arm("decoder", equal_forwards),
    "operations": Arm("decoder", equal_operations),
    "wide": Arm("entp", model=dict(width=32), once=True),
}
VARIANTS = {"count3": Variant(dict(order=3)), "count2": Variant(dict(order=2), arms=("decoder",))}
TIERS = {
    "smoke": Tier(TASK, SHAPE, TRAIN, 2),
    "quick": Tier(TASK, SHAPE, TRAIN, 2, arms=("decoder", "entp"), variants=("count3",), by_seed=True),
}
PLAN = Plan("test", "counting", TIERS, ARMS, VARIANTS, variant_label="task")


def test_a_plan_has_every_arm_and_seed_of_every_variant():
    runs = [(r.labels["task"], r.labels["arm"], r.labels["seed"]) for r in PLAN("smoke")]
    twins = [("count3", arm, seed) for seed in (0, 1) for arm in ("decoder", "entp")]
    budgets = [("count3", arm, seed) for arm in ("longer", "operations") for seed in (0, 1)]
    assert runs == [*twins, *budgets, ("count3", "wide", 1), ("count2", "decoder", 0), ("count2", "decoder", 1)]
    assert [r.labels["seed"] for r in PLAN("quick", 3)] == [0, 0, 1, 1, 2, 2] and PLAN("paper") == []
    assert {r.config.task_params["order"] for r in PLAN("smoke")} == {2, 3}
    wide = next(r.config for r in PLAN("smoke") if r.labels["arm"] == "wide")
    assert (wide.model.width, wide.model.n_layers, wide.model_seed, wide.data_seed) == (32, 2, 1, 1)


def test_a_budget_is_spent_by_both_to_half_a_step():
    runs = {r.labels["arm"]: r.config for r in PLAN("smoke", 1)}
    for arm, spent in (("longer", lambda c: layer_tokens(c) * c.steps), ("operations", training_operations)):
        step = spent(runs[arm]) / runs[arm].steps
        assert abs(spent(runs[arm]) - spent(runs["entp"])) <= 0.5 * step and runs[arm].steps > runs["decoder"].steps


def test_a_model_takes_its_sizes_from_the_task():
    tokens = run_of("test", "smoke", "counting", TASK, SHAPE, TRAIN).model
    assert (tokens.vocab_size, tokens.max_length, tokens.input_dim) == (8, 8, None)
    real = run_of("test", "smoke", "in_context", dict(dims=3, points=4), SHAPE, TRAIN).model
    assert (real.vocab_size, real.input_dim, real.output_dim) == (0, 3, 1)


def test_claims_are_paired_within_their_labels_and_say_what_excludes_them():
    scores = {"decoder": 0.5, "entp": 0.7}
    baseline = {"token_accuracy": 0.2, "sequence_accuracy": 0.0}
    records = [
        record_of(r, token_accuracy=scores[r.labels["arm"]] + r.labels["seed"] / 10, baseline=baseline)
        for r in PLAN("quick")
    ]
    rows = [
        Paired("A", "token_accuracy", "entp", "decoder", dict(task="count3")),
        Paired("B", "token_accuracy", "entp", "longer"),
        Paired("C", "token_accuracy", "entp", "decoder", dict(task="count2")),
    ]
    (found,) = Comparisons(rows, excluded=lambda runs, arms: f"{len(runs)} {arms}")(records)
    assert found.claim == "A" and found.values == pytest.approx([0.2, 0.2]) and len(found.records) == 4
    assert found.excluded_because == "4 ('entp', 'decoder')" and not found.paper_settings
    assert sorted(level.score for level in found.levels) == pytest.approx([0.55, 0.75])
    assert all(math.isclose(level.floor, 0.2) for level in found.levels)
