"""Strict construction: what is wrong is said in the user's words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.config import (
    ConfigError,
    ModelConfig,
    NotebookParameters,
    RunConfig,
    TrainConfig,
    config_id,
    from_dict,
    notebook_parameters,
    to_dict,
)

DEFAULTS = dict(tier="best", seeds=0, fresh=False, jobs=0, time_limit=0.0)


@given(
    steps=st.integers(1, 300),
    rate=st.floats(1e-6, 1, allow_nan=False),
    seed=st.integers(0, 5),
    architecture=st.sampled_from(["decoder", "entp", "prefix_decoder"]),
)
def test_configurations_survive_json(steps, rate, seed, architecture):
    config = RunConfig(
        "e",
        "quick",
        "counting",
        {"length": 20},
        ModelConfig(architecture, 2, 2, 16, 20, 20),
        TrainConfig(steps=steps, max_lr=rate, warmup_steps=0, eval_every=1),
        seed,
        seed,
    )
    again = from_dict(RunConfig, to_dict(config))
    assert again == config and config_id(again, 1) == config_id(config, 1)


def test_the_id_depends_on_every_field_and_on_the_version(small_run):
    base = small_run()
    changed = [small_run("entp"), small_run(seed=1), small_run(max_lr=1e-3), small_run(task={"order": 2})]
    ids = [config_id(base, 1), config_id(base, 2), *(config_id(c, 1) for c in changed)]
    assert len(set(ids)) == len(ids)
    shuffled = dict(reversed(to_dict(base).items()))
    assert config_id(from_dict(RunConfig, shuffled), 1) == ids[0]


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (TrainConfig, {"steps": 10, "max_rl": 1e-3}, "unknown parameter 'max_rl'; did you mean 'max_lr'"),
        (TrainConfig, {"steps": 10.0}, "steps = 10.0 .float.: must be a whole number"),
        (TrainConfig, {"steps": True}, "steps = True"),
        (TrainConfig, {"steps": 10, "max_lr": "1e-3"}, "max_lr = '1e-3' .str.: must be a number"),
        (TrainConfig, {"steps": 0}, "steps = 0: must be at least 1"),
        (TrainConfig, {"steps": 10, "precision": "fp16"}, "must be one of 'fp32', 'bf16'"),
        (TrainConfig, {"steps": 10, "warmup_steps": 5, "decay_steps": 2}, "decay_steps = 2"),
        (TrainConfig, {}, "'steps' is missing"),
        (ModelConfig, dict(architecture="encoder", n_layers=1, n_heads=1, width=4, vocab_size=4, max_length=4), "enc"),
        (ModelConfig, dict(architecture="entp", n_layers=1, n_heads=3, width=4, vocab_size=4, max_length=4), "width"),
    ],
)
def test_mistakes_are_named(cls, values, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(cls, values)


def test_curves_are_limited_to_300_points():
    assert TrainConfig(steps=300, eval_every=1)
    with pytest.raises(ConfigError, match="would store 301 points.*eval_every >= 2"):
        TrainConfig(steps=301, eval_every=1)


def test_an_unknown_size_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'medium'"):
        ModelConfig.from_size("meduim", architecture="entp", vocab_size=4, max_length=4)


def test_an_int_passes_as_a_float_and_becomes_one():
    rate = from_dict(TrainConfig, {"steps": 1, "max_lr": 1}).max_lr
    assert rate == 1 and type(rate) is float


def test_notebook_parameters_ignore_what_is_no_plain_value():
    found = notebook_parameters({**DEFAULTS, "math": math, "f": print, "_i": "x", "In": [], "Out": {}})
    assert found == NotebookParameters()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seedz": 3}, "unknown parameter 'seedz'; did you mean 'seeds'.*this notebook's parameters: tier, seeds"),
        ({"seeds": "3"}, "seeds = '3'"),
        ({"seeds": -1}, "seeds = -1"),
        ({"tier": "fast"}, "tier = 'fast': must be one of best, smoke, quick, gpu, paper"),
        ({"tier": "quik"}, "did you mean 'quick'"),
        ({"time_limit": -2.0}, "time_limit"),
    ],
)
def test_notebook_mistakes_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        notebook_parameters({**DEFAULTS, **change})


def test_a_missing_notebook_parameter_is_named():
    with pytest.raises(ConfigError, match="lacks jobs"):
        notebook_parameters({k: v for k, v in DEFAULTS.items() if k != "jobs"})
