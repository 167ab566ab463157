"""Strict construction: what is wrong is said in the user's words."""

import dataclasses
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_lab.configs import TIERS, RunConfig, StudyConfig, config_from, config_id, lengthened, to_dict
from entp_lab.parameters import notebook_parameters
from entp_lib.config import ARCHITECTURES, ModelConfig, TrainConfig
from entp_lib.validation import from_dict

MODEL = dict(architecture="entp", n_layers=1, n_heads=1, width=4, vocab_size=4, max_length=4)
RUN = dict(experiment="e", tier="quick", task="counting", task_params={}, model=MODEL, train={"steps": 9})
DEFAULTS = dict(tier="best", seeds=0, fresh=False, jobs=0, time_limit=0.0)


shares = st.floats(0, 0.999) | st.just(0)
models = st.builds(
    lambda heads, per_head, dims, **rest: ModelConfig(
        n_heads=heads, width=heads * per_head, input_dim=dims, output_dim=dims, **rest
    ),
    heads=st.integers(1, 4),
    per_head=st.integers(1, 8),
    dims=st.none() | st.integers(1, 5),
    architecture=st.sampled_from(list(ARCHITECTURES)),
    n_layers=st.integers(1, 12),
    vocab_size=st.integers(1, 99),
    max_length=st.integers(1, 99),
    positions=st.sampled_from(["learned", "none"]),
    position_std=shares,
)
trainings = st.builds(
    lambda warmup, later, **rest: TrainConfig(warmup_steps=warmup, decay_steps=later and warmup + later, **rest),
    warmup=st.integers(0, 50),
    later=st.none() | st.integers(1, 500),
    steps=st.integers(1, 300),
    eval_every=st.integers(1, 9),
    max_lr=st.floats(1e-9, 1) | st.just(1),
    min_lr=shares,
    betas=st.tuples(shares, shares),
    weight_decay=shares,
    precision=st.sampled_from(["fp32", "bf16"]),
    patience=st.integers(0, 9),
)
values = st.recursive(st.integers() | st.booleans() | st.text(max_size=5) | st.floats(0, 1), st.lists, max_leaves=4)
runs = st.builds(
    RunConfig,
    experiment=st.text(max_size=9),
    tier=st.sampled_from(TIERS),
    task=st.text(max_size=9),
    task_params=st.dictionaries(st.text(max_size=9), values, max_size=4),
    model=models,
    train=trainings,
    model_seed=st.integers(0, 99),
    data_seed=st.integers(0, 99),
)


def reversed_keys(value):
    return {k: reversed_keys(v) for k, v in reversed(value.items())} if isinstance(value, dict) else value


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(runs, st.integers(1, 9))
def test_configurations_survive_json(config, version):
    """And keep their id, whatever the order of keys."""
    values = json.loads(json.dumps(to_dict(config)))
    for again in (from_dict(RunConfig, values), from_dict(RunConfig, reversed_keys(values))):
        assert again == config
        assert type(again.train.betas) is tuple
        assert config_id(again, version) == config_id(config, version)


# A changed value for every field of a run; a field that is missing here fails the test below.
CHANGES = {
    "experiment": "other", "tier": "quick", "task": "triplets", "task_params": {"length": 9},
    "model_seed": 7, "data_seed": 7, "start_from": "count3/0123456789abcdef",
    "model.architecture": "entp", "model.n_layers": 3, "model.n_heads": 4, "model.width": 32, "model.vocab_size": 9,
    "model.max_length": 9, "model.positions": "none", "model.position_std": 0.1,
    "model.input_dim": 3, "model.output_dim": 3, "model.input_std": 0.1, "model.full_layers": 2,
    "train.steps": 13, "train.batch_size": 9, "train.max_lr": 0.1, "train.min_lr": 0.1, "train.warmup_steps": 4,
    "train.decay_steps": 99, "train.betas": (0.9, 0.98), "train.weight_decay": 0.2,
    "train.precision": "bf16", "train.eval_every": 5, "train.eval_sequences": 33, "train.final_eval_sequences": 65,
    "train.patience": 1,
    "train.stop_loss": 0.5,
}  # fmt: skip


def test_the_id_depends_on_every_field_and_on_the_version(small_run):
    base = small_run()
    leaves = [f.name for f in dataclasses.fields(RunConfig) if f.name not in ("model", "train")]
    leaves += [f"model.{f.name}" for f in dataclasses.fields(ModelConfig)]
    leaves += [f"train.{f.name}" for f in dataclasses.fields(TrainConfig)]
    assert set(leaves) - set(CHANGES) == {"model.dropout", "train.grad_clip", "train.gradient_shards"}  # of one value
    ids = [config_id(base, 1), config_id(base, 2)]
    for name, value in CHANGES.items():
        part, _, field = name.rpartition(".")
        fields = {"input_dim": value, "output_dim": value} if field.endswith("_dim") else {field: value}
        if field == "output_dim":  # the two go together
            fields["input_dim"] = 5
        if field == "full_layers":  # of a hybrid of three or more
            fields |= {"architecture": "hybrid", "n_layers": 3}
        changed = {part: dataclasses.replace(getattr(base, part), **fields)} if part else fields
        ids.append(config_id(dataclasses.replace(base, **changed), 1))
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("changes", [{"betas": (0, 0.9)}, {"max_lr": 1}])
def test_equal_configurations_have_equal_ids(small_run, changes):
    """1 and 1.0 are the same number: the same run must not have two names."""
    as_floats = {k: tuple(map(float, v)) if isinstance(v, tuple) else float(v) for k, v in changes.items()}
    one = small_run(**changes)
    two = small_run(**as_floats)
    assert one == two
    assert config_id(one, 1) == config_id(two, 1)


def test_a_field_that_came_later_leaves_old_names_alone(small_run):
    """At its default it is no part of the plain form, on which the name of a record rests; else it is."""
    plain = to_dict(small_run())
    assert "input_std" not in plain["model"]
    assert config_from(plain) == small_run()
    continuous = small_run(model=dict(input_dim=2, output_dim=1, input_std=0.5))
    assert to_dict(continuous)["model"]["input_std"] == 0.5
    assert config_from(to_dict(continuous)) == continuous


def test_a_longer_schedule_has_no_more_points_than_a_record_holds():
    """300 points stay at most 300; a warm-up stays."""
    longer = lengthened(TrainConfig(steps=300, eval_every=1, warmup_steps=10, decay_steps=200), 1.4)
    assert (longer.steps, longer.eval_every, longer.warmup_steps, longer.decay_steps) == (420, 2, 10, 280)


# The table of architectures, and how many layers of a configuration are full.


def config(architecture="entp", n_layers=4, **rest):
    return ModelConfig(architecture, n_layers, 2, 16, 7, 9, **rest)


def test_full_layers_by_architecture():
    found = {name: [config(name, n).recomputed_layers for n in (1, 2, 4)] for name in ARCHITECTURES}
    assert found == {"decoder": [0, 0, 0], "prefix_decoder": [0, 0, 0], "entp": [1, 2, 4], "hybrid": [0, 1, 3]}
    assert [name for name in ARCHITECTURES if config(name).open_prompt] == ["prefix_decoder"]


@given(layers=st.integers(2, 9), data=st.data())
def test_a_number_of_full_layers_has_one_configuration(layers, data):
    """None is the decoder, all is ENTP, and what lies between survives being written and read."""
    base = config(n_layers=layers)
    full = data.draw(st.integers(0, layers).filter(lambda n: n != 1))
    found = base.with_full_layers(full)
    assert found.recomputed_layers == full
    assert from_dict(ModelConfig, asdict(found)) == found
    assert found.architecture == ("decoder" if full == 0 else "entp" if full == layers else "hybrid")
    if full in (0, layers):
        assert found == replace(base, architecture=found.architecture)


# What is wrong is named, with its part of the configuration.


def built(cls, **values):
    """A case's call: the configuration of a class, from a dictionary as a record has it."""
    whole = {TrainConfig: {"steps": 10}, ModelConfig: MODEL, RunConfig: RUN}[cls] | values
    return lambda: from_dict(cls, {name: value for name, value in whole.items() if value is not None})


def holding(params):
    """A case's call: a run and a study with parameters of any kind."""
    return lambda: [from_dict(RunConfig, {**RUN, "task_params": params}), StudyConfig("e", "quick", "newton", params)]


test_mistakes_are_named = named(
    (built(TrainConfig, max_rl=1e-3), "'max_rl'"),
    (built(TrainConfig, steps=None), "'steps' is missing"),
    *((built(TrainConfig, max_lr=value), "^max_lr = ") for value in (True, 0.0, math.nan, math.inf)),
    *((built(TrainConfig, betas=value), "^betas = ") for value in ((0.9,), (0.9, 1.0))),
    *((built(TrainConfig, grad_clip=value), "^grad_clip = ") for value in ("1.0", 0.0)),
    (built(TrainConfig, weight_decay=-0.1), "^weight_decay = "),
    (built(TrainConfig, patience=-1), "^patience = "),
    (built(TrainConfig, gradient_shards=2), "^gradient_shards = 2: only 1 is supported"),
    (built(TrainConfig, precision="fp16"), "must be one of 'fp32', 'bf16'"),
    (built(TrainConfig, warmup_steps=5, decay_steps=2), "decay_steps = "),
    (built(TrainConfig, steps=301, eval_every=1), "would store 301 points.*eval_every >= 2"),
    (built(TrainConfig, steps=3001, eval_every=10), "would store 301 points"),  # the last step counts as a point
    (built(ModelConfig, architecture="encoder"), "architecture = "),
    (built(ModelConfig, n_heads=3), "width = "),
    (built(ModelConfig, n_layers=0), "n_layers = "),
    (built(ModelConfig, dropout=0.1), "^dropout = 0.1: only 0.0 is supported"),
    (built(ModelConfig, input_dim=3), "input_dim and output_dim go together"),
    (built(ModelConfig, position_std=-1), "position_std = "),
    *((lambda full=full: config("hybrid", full_layers=full), "full_layers = ") for full in (1, 4, 2.0)),
    *(
        (lambda n=n, full=full: config(n, full_layers=full), "full_layers = ")
        for n, full in dict(entp=3, decoder=2).items()
    ),
    (built(RunConfig, model={**MODEL, "widht": 4}), "model.'widht'"),
    (built(RunConfig, train={"steps": 9, "grad_clip": 1.0}), "^train.grad_clip = 1.0: only None is supported"),
    (built(RunConfig, train={}), "parameter train.'steps' is missing"),
    (built(RunConfig, train={"steps": "9"}), "steps = "),
    (built(RunConfig, train=9), "train = "),
    (built(RunConfig, task_params=[1]), "task_params = "),
    (built(RunConfig, tier="fast"), "tier = "),
    *((built(RunConfig, start_from=name), "start_from = ") for name in ("count3", "../x/0123456789abcdef")),
    (holding({"vocab": np.int64(5)}), r"params\['vocab'\] = "),
    (holding({"counts": [1, np.float32(2)]}), r"params\['counts'\]\[1\] = "),
    (holding({"inner": {3: 1}}), r"params\['inner'\]: the name 3 \(int\) must be a text"),
    (holding({"share": math.nan}), r"params\['share'\] = "),
    *(
        (lambda ratio=ratio: lengthened(TrainConfig(steps=3), ratio), "ratio = ")
        for ratio in (0, math.nan, math.inf, -1)
    ),
    (lambda: notebook_parameters({**DEFAULTS, "In": ["# Parameters\nseedz = 3\n"]}), "'seedz'"),
    *(
        (lambda name=name, value=value: notebook_parameters({**DEFAULTS, name: value}), f"{name} = ")
        for name, value in [("seeds", True), ("seeds", -1), ("fresh", 1), ("time_limit", "1"), ("time_limit", -2.0)]
    ),
)
