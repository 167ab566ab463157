"""How our settings differ from a paper's: from runs of its own tier, and from what the paper states about a claim.

``results/reference/<paper>/settings.csv`` has the paper's settings of a claim, one a row. These are facts of the paper
alone; what it does not state is left out. A ``key`` is a field of our configurations, ``head_width`` or ``runs`` (the
number of random seeds), and is compared with the records that the claim rests on; slashes separate alternatives. A
setting that is fixed in code, so that no record holds it, has our value beside the paper's, as ``ours``.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, cast

from entp_lab import paths
from entp_lab.claims import reference_claims
from entp_lab.configs import RunConfig, StudyConfig, family
from entp_lab.experiment import PlannedRun
from entp_lab.registry import build_task
from entp_lab.store import Record, Records
from entp_lab.tables import read_table
from entp_lib.validation import ConfigError, Json, require

NO_DIFFERENCE = "none"
TRAINING = ("steps", "batch_size", "max_lr", "min_lr", "warmup_steps", "weight_decay", "precision")
COLUMNS = ("id", "key", "paper", "ours")  # of settings.csv
Settings = dict[str, dict[str, None]]  # by name an ordered set of texts


def stated_settings() -> dict[str, list[Any]]:
    """Return the settings that the papers state, rows of their tables by claim. ConfigError names table and claim."""
    claims = reference_claims()
    found: dict[str, list[Any]] = defaultdict(list)
    for path in sorted(paths.reference().glob("*/settings.csv")):
        known = set(claims.loc[claims["paper"] == path.parent.name, "id"])
        table = read_table(path, COLUMNS, needed=COLUMNS[:3], dtype=str).fillna("")
        for row in table[table.duplicated(["id", "key"])].itertuples():
            raise ConfigError(f"{paths.relative(path)}: {row.id} has {row.key!r} twice")
        for row in table.itertuples():
            place = f"{paths.relative(path)}: {row.id}"
            require(row.id in known, f"{place} is not a claim of claims.csv beside it")
            found[row.id].append(row)
    return found


def differing_settings(
    records: Records, of_paper: Sequence[PlannedRun], stated: Sequence[Any]
) -> str:
    """Name the settings of ``records`` that differ from the paper's: "steps 1,200 (150,000)", the paper's in brackets.

    ``of_paper``: runs of the paper's tier; those with the most similar labels are compared. ``stated``: rows of what
    the paper states about the claim, which overrides settings of the same name. If a setting varies, all its values are
    named. Returns ``NO_DIFFERENCE`` if everything that could be compared is equal, and "" if nothing could. Raises
    ConfigError for a stated setting that no record holds and that has no value of ours.
    """
    families: dict[str, Record] = {}
    for record in records:
        families.setdefault(family(record.config), record)
    ours: Settings = defaultdict(dict)
    mine: Settings = defaultdict(dict)  # our values that differ
    theirs: Settings = defaultdict(dict)  # the paper's values that they differ from
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
    for row in stated:
        require(
            row.ours or row.key in ours,
            f"settings.csv: no record of {row.id} has {row.key!r}; write ours",
        )
        values = {row.ours: None} if row.ours else ours[row.key]
        mine.pop(row.key, None)
        if not values.keys() <= set(row.paper.split("/")):
            mine[row.key] = values
            theirs[row.key] = {row.paper: None}
    said = [f"{name} {'/'.join(mine[name])} ({'/'.join(theirs[name])})" for name in mine]
    return ", ".join(said) or (NO_DIFFERENCE if compared else "")


def settings_most_alike(record: Record, of_paper: Sequence[PlannedRun]) -> Settings:
    """Return the settings of the paper's training runs whose labels are most similar to those of a record."""
    found: Settings = defaultdict(dict)
    if isinstance(record.config, StudyConfig):
        return found
    runs = [run for run in of_paper if isinstance(run.config, RunConfig)]
    likeness = [len(record.labels.items() & run.labels.items()) for run in runs]
    for run, alike in zip(runs, likeness, strict=True):
        if alike == max(likeness):
            for name, values in settings_of(run.config).items():
                found[name] |= values
    return found


def settings_of(config: RunConfig | StudyConfig) -> Settings:
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
def settings_of_task(name: str, params: str) -> Json:
    """Return all parameters of a task, with their defaults; ``params``: those that are given, as JSON."""
    return dict(innermost(asdict(cast(Any, build_task(name, json.loads(params))))))


def innermost(params: Json) -> Iterator[tuple[str, Any]]:
    """Yield names and values of nested parameters, except those that only identify a run or a file."""
    for name, value in params.items():
        if isinstance(value, dict):
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
