"""How our settings differ from a paper's: from runs of its own tier, and from what the paper states about a claim.

``results/reference/<paper>/settings.csv`` has the paper's settings of a claim as ``key: value; key: value``. These are
facts of the paper alone; what it does not state is left out. A key is a field of our configurations, ``head_width`` or
``runs`` (the number of random seeds), and is compared with the records that the claim rests on; slashes separate
alternatives. A setting that is fixed in code, so that no record holds it, has our value beside it: ``key: the paper's |
ours``.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

from entp_lab import paths
from entp_lab.claims import reference_claims
from entp_lab.configs import RunConfig, StudyConfig, family
from entp_lab.experiment import PlannedRun
from entp_lab.registry import build_task
from entp_lab.store import Record
from entp_lab.tables import read_table
from entp_lib.validation import ConfigError, require

NO_DIFFERENCE = "none"
TRAINING = ("steps", "batch_size", "max_lr", "min_lr", "warmup_steps", "weight_decay", "precision")
Values = dict[str, None]  # an ordered set of texts


class Stated(NamedTuple):
    """A setting that a paper states: its value, ours where no record holds it, and the table and claim that say so."""

    paper: str
    ours: str
    place: str


def stated_settings() -> dict[str, dict[str, Stated]]:
    """Return the settings that the papers state, by claim and key. ConfigError names table, claim and key."""
    claims = reference_claims()
    found = {}
    for path in sorted(paths.reference().glob("*/settings.csv")):
        known = set(claims.loc[claims["paper"] == path.parent.name, "id"])
        for row in read_table(
            path, ["id", "setting"], needed=("id", "setting"), dtype=str
        ).itertuples():
            place = f"{paths.relative(path)}: {row.id}"
            require(row.id in known, f"{place} is not a claim of claims.csv beside it")
            require(row.id not in found, f"{place} has a setting already; put both into one row")
            found[row.id] = parsed(row.setting, place)
    return found


def parsed(setting: str, place: str) -> dict[str, Stated]:
    """Read settings of the form ``key: value; key: value | ours`` by key; ``place`` begins an error's message."""
    found: dict[str, Stated] = {}
    for part in setting.split(";"):
        key, _, values = (text.strip() for text in part.partition(":"))
        paper, bar, ours = (text.strip() for text in values.partition("|"))
        right = "must be 'key: the paper's value' or 'key: the paper's value | ours'"
        require(
            bool(key and paper) and bool(bar) == bool(ours),
            f"{place} has the setting {part.strip()!r}: {right}",
        )
        require(key not in found, f"{place} has {key!r} twice")
        found[key] = Stated(paper, ours, place)
    return found


def differing_settings(
    records: Sequence[Record], of_paper: Sequence[PlannedRun], stated: Mapping[str, Stated]
) -> str:
    """Name the settings of ``records`` that differ from the paper's: "steps 1,200 (150,000)", the paper's in brackets.

    ``of_paper``: runs of the paper's tier; those with the most similar labels are compared. ``stated``: what the paper
    states about the claim, which overrides settings of the same name. If a setting varies, all its values are named.
    Returns ``NO_DIFFERENCE`` if everything that could be compared is equal, and "" if nothing could. Raises ConfigError
    for a stated setting that no record holds and that has no value of ours.
    """
    families: dict[str, Record] = {}
    for record in records:
        families.setdefault(family(record.config), record)
    ours: dict[str, Values] = defaultdict(dict)
    mine: dict[str, Values] = defaultdict(dict)  # our values that differ
    theirs: dict[str, Values] = defaultdict(dict)  # the paper's values that they differ from
    compared = bool(stated)
    for record in families.values():
        papers = settings_most_alike(record, of_paper)
        compared = compared or bool(papers)
        for name, values in settings_of(record.config).items():
            ours[name] |= values
            if name in papers and not values.keys() <= papers[name].keys():
                mine[name] |= values
                theirs[name] |= papers[name]
    seeds = {(record.config.model_seed, record.config.data_seed) for record in records}
    ours.setdefault("runs", {str(len(seeds)): None})  # unless a study sets them
    for name, setting in stated.items():
        if not (setting.ours or name in ours):
            raise ConfigError(
                f"{setting.place}: its records have no {name!r}; write '{name}: {setting.paper} | ours'"
            )
        values = {setting.ours: None} if setting.ours else ours[name]
        mine.pop(name, None)
        if not values.keys() <= set(setting.paper.split("/")):
            mine[name] = values
            theirs[name] = {setting.paper: None}
    said = [f"{name} {'/'.join(mine[name])} ({'/'.join(theirs[name])})" for name in mine]
    return ", ".join(said) or (NO_DIFFERENCE if compared else "")


def settings_most_alike(record: Record, of_paper: Sequence[PlannedRun]) -> dict[str, Values]:
    """Return the settings of the paper's training runs whose labels are most similar to those of a record."""
    found: dict[str, Values] = defaultdict(dict)
    if isinstance(record.config, StudyConfig):
        return found
    runs = [run for run in of_paper if isinstance(run.config, RunConfig)]
    likeness = [len(record.labels.items() & run.labels.items()) for run in runs]
    for run, alike in zip(runs, likeness, strict=True):
        if alike == max(likeness):
            for name, values in settings_of(run.config).items():
                found[name] |= values
    return found


def settings_of(config: RunConfig | StudyConfig) -> dict[str, Values]:
    """Return the settings that a reader would compare, as text: a run's task, model and schedule, a study's parameters.

    Nested settings go by their innermost name. The width of a head follows from width and heads unless it is set.
    """
    if isinstance(config, StudyConfig):
        found = dict(innermost(config.params))
    else:
        found = dict(settings_of_task(config.task, json.dumps(config.task_params)))
        found |= {name: getattr(config.model, name) for name in ("n_layers", "n_heads", "width")}
        train = config.train
        found |= {name: getattr(train, name) for name in TRAINING}
        if train.max_lr != train.min_lr:  # else the learning rate does not decay
            found["decay_steps"] = train.decay_steps or train.steps
        found["betas"] = " and ".join(map(str, train.betas))
    if "n_heads" in found and "width" in found:
        found.setdefault("head_width", found["width"] // found["n_heads"])
    return {name: dict.fromkeys(texts(value)) for name, value in found.items()}


@functools.lru_cache(maxsize=512)
def settings_of_task(name: str, params: str) -> dict[str, Any]:
    """Return all parameters of a task, with their defaults; ``params``: those that are given, as JSON."""
    return dict(innermost(asdict(cast(Any, build_task(name, json.loads(params))))))


def innermost(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values of nested parameters, except those that only identify a run or a file."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from innermost(value)
        elif not name.endswith("seed") and name not in ("part", "checksum"):
            yield name, value


def texts(value: Any) -> list[str]:
    """Return a value as text, a list as the texts of its entries."""
    if isinstance(value, list | tuple):
        return [text for entry in value for text in texts(entry)]
    if isinstance(value, float):
        return [f"{value:g}"]
    return [f"{value:,}" if type(value) is int else str(value)]
