"""Configurations of records: training runs and studies, their tiers, and the ids that name their records.

A ``RunConfig`` holds everything that decides the outcome of one training run and nothing else, so that its hash
can name the record. Time limits, devices and thread counts are not part of it.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from entp_lib.config import MAX_CURVE_POINTS, ModelConfig, TrainConfig
from entp_lib.validation import ConfigError, Json, check_types, from_dict, require

TierName = Literal["smoke", "quick", "overnight", "gpu", "paper"]
TIERS = get_args(TierName)
BEST_FIRST = ("paper", "gpu", "overnight", "quick")  # tiers that claims may rest on
TRIAL_SEED = 100  # random seeds from here on belong to trial runs, which no verdict counts
# tiers whose runs never use a GPU, so that their records are comparable
ON_CPU = ("smoke", "quick", "overnight")


@dataclass(frozen=True)
class RunConfig:
    """One training run. ``model_seed`` decides the initial weights, ``data_seed`` the data.

    ``start_from``: the run, as "experiment/id" of its record, whose weights this one starts from; "" for none.
    """

    experiment: str
    tier: TierName
    task: str
    task_params: Json
    model: ModelConfig
    train: TrainConfig
    model_seed: int = 0
    data_seed: int = 0
    start_from: str = ""

    def __post_init__(self):
        check_types(self)
        check_plain("task_params", self.task_params)
        require(
            re.fullmatch(r"(\w+/[0-9a-f]{16})?", self.start_from),
            f"start_from = {self.start_from!r}: must be experiment/id of a record, or empty for a fresh start",
        )

    @property
    def label(self) -> str:
        """Architecture and random seed, which distinguish a run from its siblings in messages."""
        full = self.model.full_layers
        kind = self.model.architecture + ("" if full is None else f" with {full} full layers")
        return f"{kind}, seed {self.model_seed}"


@dataclass(frozen=True)
class StudyConfig:
    """A record made by a function of ``entp_lab.registry.STUDIES`` with JSON arguments, not by ``train``."""

    experiment: str
    tier: TierName
    study: str
    params: Json
    model_seed: int = 0
    data_seed: int = 0

    def __post_init__(self):
        check_types(self)
        check_plain("params", self.params)

    @property
    def label(self) -> str:
        """The parameters, which distinguish a study from its siblings in messages."""
        return ", ".join(
            f"{name} {value}"
            for name, value in self.params.items()
            if not isinstance(value, list | dict)
        )


Config = RunConfig | StudyConfig
Configs = Sequence[Config]


def config_from(values: Json) -> Config:
    """Return the configuration with the plain form that ``to_dict`` gives; ConfigError for unknown or missing names."""
    return from_dict(StudyConfig if "study" in values else RunConfig, values)


def config_id(config: Config, version: int) -> str:
    """Return the sixteen hexadecimal digits that name the record of ``config`` under an experiment's ``version``."""
    text = canonical_json({"config": to_dict(config), "version": version})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def record_name(config: Config, version: int) -> str:
    """Return "experiment/id", by which stores, claims, figures and weights name the record of ``config``."""
    return f"{config.experiment}/{config_id(config, version)}"


def family(config: Config) -> str:
    """Return a configuration without its random seeds, as text: runs of one family cost and measure the same."""
    found = to_dict(config) | {"model_seed": 0, "data_seed": 0}
    found.pop("start_from", None)
    own = "task_params" if isinstance(config, RunConfig) else "params"
    found[own] = {name: value for name, value in found[own].items() if not name.endswith("seed")}
    return canonical_json(found)


def lengthened(train: TrainConfig, ratio: float, eval_every: int | None = None) -> TrainConfig:
    """Return the schedule with ``ratio`` times the steps; decay and evaluations are stretched alike.

    It gives a decoder the budget of ENTP, whose step costs ``ratio`` times as much. Warm-up stays as it is. Raises
    ConfigError for a ratio that is not above 0 and finite.
    """
    require(0 < ratio < math.inf, f"ratio = {ratio}: must be above 0 and finite")
    steps = round(train.steps * ratio)
    decay = train.decay_steps and round(train.decay_steps * ratio)
    if eval_every is None:  # rounding down could give one point too many
        eval_every = max(1, round(train.eval_every * ratio), -(-steps // MAX_CURVE_POINTS))
    return replace(train, steps=steps, decay_steps=decay, eval_every=eval_every)


def check_plain(name: str, params: Json) -> None:
    """Raise ConfigError unless JSON, and so a record, can hold all ``params``; NumPy and torch numbers are refused."""
    for key, value in params.items():
        try:
            canonical_json(value)
        except (TypeError, ValueError) as error:
            kinds = "must be of plain finite numbers, texts, lists and dictionaries"
            raise ConfigError(f"{name}[{key!r}] = {value!r}: {kinds} ({error})") from error


def canonical_json(value: Any) -> str:
    """Return one text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


# Fields that were added when records existed, by part of the configuration ("" for the top level). At their default
# they are left out of the plain form, so that older records keep their ids.
LATER_FIELDS: dict[str, Json] = {
    "": {"start_from": ""},
    "model": {"input_std": 0.02, "full_layers": None},
    "train": {"gradient_shards": 1, "stop_loss": None},
}


def to_dict(config: Config) -> Json:
    """Return a configuration as dictionaries, lists and tuples of plain types; its parameters are not copied."""
    found = dict(vars(config))
    for part, defaults in LATER_FIELDS.items():
        if part in found:
            found[part] = dict(vars(found[part]))
        holder = found.get(part, {}) if part else found
        for name, default in defaults.items():
            if name in holder and holder[name] == default:
                del holder[name]
    return found
