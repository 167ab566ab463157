"""Strict construction: what is wrong is said in the user's words."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mistakes import named, refused

from entp_lab.configs import RunConfig, StudyConfig, config_id, lengthened, to_dict
from entp_lib.config import ARCHITECTURES, ModelConfig, TrainConfig
from entp_lib.validation import from_dict

MODEL = dict(architecture="entp", n_layers=1, n_heads=1, width=4, vocab_size=4, max_length=4)
RUN = dict(
    experiment="e", tier="quick", task="counting", task_params={}, model=MODEL, train={"steps": 9}
)


# A changed value for every field of a run; a field that is missing here fails the test below.
CHANGES = {
    "experiment": "other",
    "tier": "quick",
    "task": "triplets",
    "task_params": {"length": 9},
    "model_seed": 7,
    "data_seed": 7,
    "start_from": "count3/0123456789abcdef",
    "model.architecture": "entp",
    "model.n_layers": 3,
    "model.n_heads": 4,
    "model.width": 32,
    "model.vocab_size": 9,
    "model.max_length": 9,
    "model.positions": "none",
    "model.position_std": 0.1,
    "model.input_dim": 3,
    "model.output_dim": 3,
    "model.input_std": 0.1,
    "model.full_layers": 2,
    "train.steps": 13,
    "train.batch_size": 9,
    "train.max_lr": 0.1,
    "train.min_lr": 0.1,
    "train.warmup_steps": 4,
    "train.decay_steps": 99,
    "train.betas": (0.9, 0.98),
    "train.weight_decay": 0.2,
    "train.precision": "bf16",
    "train.eval_every": 5,
    "train.eval_sequences": 33,
    "train.final_eval_sequences": 65,
    "train.patience": 1,
    "train.stop_loss": 0.5,
}
WITH = {  # fields that go together
    "model.input_dim": dict(output_dim=3),
    "model.output_dim": dict(input_dim=5),
    "model.full_layers": dict(architecture="hybrid", n_layers=3),
}


@pytest.fixture
def changed(small_run):
    """A configuration for every field, in which it alone has another value than in the first."""
    base = small_run()
    configs = [base]
    for name, value in CHANGES.items():
        part, _, field = name.rpartition(".")
        fields = {field: value} | WITH.get(name, {})
        configs.append(
            replace(base, **({part: replace(getattr(base, part), **fields)} if part else fields))
        )
    return configs


def test_every_field_has_a_changed_value_here():
    names = {f"model.{name}" for name in ModelConfig.__annotations__}
    names |= {f"train.{name}" for name in TrainConfig.__annotations__}
    names |= RunConfig.__annotations__.keys() - {"model", "train"}
    assert names - CHANGES.keys() == {
        "model.dropout",
        "train.grad_clip",
        "train.gradient_shards",
    }  # of one value


def test_the_id_depends_on_every_field_and_on_the_version(changed):
    ids = [config_id(config, 1) for config in changed]
    assert len({*ids, config_id(changed[0], 2)}) == len(CHANGES) + 2


def test_configurations_survive_json(changed):
    """And keep their id, whatever the order of keys."""
    for config in changed:
        text = json.dumps(to_dict(config))
        backwards = json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
        for values in (json.loads(text), backwards):
            again = from_dict(RunConfig, values)
            assert again == config
            assert type(again.train.betas) is tuple
            assert config_id(again, 1) == config_id(config, 1)


def test_equal_configurations_have_equal_ids(small_run):
    """1 and 1.0 are the same number: the same run must not have two names."""
    one = small_run(betas=(0, 0.9), max_lr=1)
    two = small_run(betas=(0.0, 0.9), max_lr=1.0)
    assert one == two
    assert config_id(one, 1) == config_id(two, 1)


def test_a_longer_schedule_has_no_more_points_than_a_record_holds():
    """300 points stay at most 300; a warm-up stays."""
    short = TrainConfig(steps=300, eval_every=1, warmup_steps=10, decay_steps=200)
    longer = replace(short, steps=420, eval_every=2, decay_steps=280)
    assert lengthened(short, 1.4) == longer


# The table of architectures, and how many layers of a configuration are full.


def config(architecture="entp", n_layers=4, **rest):
    return ModelConfig(architecture, n_layers, 2, 16, 7, 9, **rest)


def test_full_layers_by_architecture():
    found = {name: [config(name, n).recomputed_layers for n in (1, 2, 4)] for name in ARCHITECTURES}
    assert found == {
        "decoder": [0, 0, 0],
        "prefix_decoder": [0, 0, 0],
        "entp": [1, 2, 4],
        "hybrid": [0, 1, 3],
    }
    assert [name for name in ARCHITECTURES if config(name).open_prompt] == ["prefix_decoder"]


@given(layers=st.integers(2, 9), data=st.data())
def test_a_number_of_full_layers_has_one_configuration(layers, data):
    """None is the decoder, all is ENTP, and what lies between survives being written and read."""
    base = config(n_layers=layers)
    full = data.draw(st.integers(0, layers).filter(lambda n: n != 1))
    name = {0: "decoder", layers: "entp"}.get(full, "hybrid")
    found = replace(base, architecture=name, full_layers=full)
    assert found.recomputed_layers == full
    assert from_dict(ModelConfig, asdict(found)) == found
    if full in (0, layers):
        assert found == replace(base, architecture=name)


# What is wrong is named, with its part of the configuration.


MISTAKES = {  # by field, of a configuration that is right otherwise
    TrainConfig: {
        "max_lr": [True, 0.0, math.nan, math.inf],
        "betas": [(0.9,), (0.9, 1.0)],
        "grad_clip": ["1.0", 0.0],
        "weight_decay": [-0.1],
        "patience": [-1],
        "gradient_shards": [2],
        "precision": ["fp16"],
    },
    ModelConfig: {
        "architecture": ["encoder"],
        "width": [3],
        "n_layers": [0],
        "dropout": [0.1],
        "input_dim": [3],
        "position_std": [-1],
        "full_layers": [3],
    },
    RunConfig: {
        "train": [9],
        "task_params": [[1]],
        "tier": ["fast"],
        "start_from": ["count3", "../x/0123456789abcdef"],
    },
}
RIGHT = {TrainConfig: {"steps": 10}, ModelConfig: MODEL | {"n_heads": 2}, RunConfig: RUN}


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (cls, name, value)
        for cls, fields in MISTAKES.items()
        for name, values in fields.items()
        for value in values
    ],
)
def test_a_wrong_value_is_named_with_its_field(cls, name, value):
    with refused(f"^{name}( = | and )"):
        from_dict(cls, RIGHT[cls] | {name: value})


def run_of(**parts):
    """A case's call: a run with other parts, as a record has them."""
    return lambda: from_dict(RunConfig, RUN | parts)


test_mistakes_are_named = named(
    (run_of(train={"steps": 9, "max_rl": 1e-3}), "train.'max_rl'"),
    (run_of(train={}), "parameter train.'steps' is missing"),
    (run_of(train={"steps": 9, "warmup_steps": 5, "decay_steps": 2}), "decay_steps = "),
    (run_of(train={"steps": 301, "eval_every": 1}), "would store 301 points.*eval_every >= 2"),
    (
        run_of(train={"steps": 3001, "eval_every": 10}),
        "would store 301 points",
    ),  # the last step counts as a point
    (run_of(model={**MODEL, "widht": 4}), "model.'widht'"),
    (run_of(model={**MODEL, "vocab_size": 0}), "vocab_size = 0: must be at least 1"),
    (
        run_of(model=MODEL | dict(vocab_size=-5, input_dim=3, output_dim=1)),
        "vocab_size = -5: must be at least 0",
    ),
    (lambda: config("hybrid", full_layers=2.0), "full_layers = "),
    (lambda: config("hybrid", full_layers=4), "full_layers = "),
    (lambda: lengthened(TrainConfig(steps=3), math.nan), "ratio = "),
    (lambda: lengthened(TrainConfig(steps=3), 0), "ratio = "),
)


UNSTORABLE = {"vocab": np.int64(5), "counts": [1, np.float32(2)], "share": math.nan}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_a_parameter_that_no_record_can_hold_is_named(name):
    params = {name: UNSTORABLE[name]}
    with refused(rf"^task_params\['{name}'\] = "):
        from_dict(RunConfig, RUN | {"task_params": params})
    with refused(rf"^params\['{name}'\] = "):
        StudyConfig("e", "quick", "newton", params)
