"""One plan cut into shards for machines that know nothing of each other: a Slurm array, an indexed job, lab machines.

Every machine is told its place, "3/16", and finds its runs alone, from the plan. It leaves a note of what it took on
beside its records, so that a merge can say which shard is missing and which came twice.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from entp_lib.config import RunConfig, config_id
from entp_lib.files import write_atomically
from entp_lib.runs.execution import Config
from entp_lib.runs.provenance import sources
from entp_lib.runs.records import Store
from entp_lib.strict import check_types, require


@dataclass(frozen=True)
class Shard:
    """Part ``index`` (from 1) of ``count``."""

    index: int
    count: int

    def __post_init__(self):
        check_types(self)
        require(
            1 <= self.index <= self.count, f"--shard {self}: must be from 1/{self.count} to {self.count}/{self.count}"
        )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The shard that "3/16" names; ConfigError for anything else, and for one that is not there."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        require(match is not None and int(match[2]) > 0, f"--shard {text}: write 3/16, the third of sixteen")
        return cls(int(match[1]), int(match[2]))


def share(configs: Sequence[Config], version: int, shard: Shard) -> list[Config]:
    """The runs of ``shard``, in the plan's order: every run of a plan, in which none is twice, is in exactly one shard.

    Runs are dealt like cards, alike ones one after the other, so that each shard gets as many of each architecture and
    size as any other, but for one. The order of the plan does not matter, nor what a machine has computed before.
    """
    dealt = sorted(configs, key=lambda config: (kind(config), config_id(config, version)))
    mine = {config_id(config, version) for config in dealt[shard.index - 1 :: shard.count]}
    return [config for config in configs if config_id(config, version) in mine]


def kind(config: Config) -> tuple:
    """What makes two runs cost about the same."""
    if not isinstance(config, RunConfig):
        return (0, config.study)
    model, train = config.model, config.train
    steps = model.n_layers * model.width**2 * train.steps * train.batch_size
    return (-steps, config.task, model.architecture, model.recomputed_layers)


@dataclass(frozen=True)
class Note:
    """What a shard took on: the ids of its runs and of the whole plan, and the code that computes them."""

    experiment: str
    tier: str
    version: int
    index: int
    count: int
    mine: list  # of ids
    plan: list
    sources: str
    torch: str

    def __post_init__(self):
        check_types(self)
        require(all(isinstance(i, str) for i in self.plan), "ids are texts")
        require(1 <= self.index <= self.count and set(self.mine) <= set(self.plan), "a shard outside its plan")

    @property
    def plan_id(self) -> str:
        """Eight hexadecimal digits that name the plan, whatever its order."""
        return hashlib.sha256(" ".join(sorted(self.plan)).encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        return f"{self.experiment}-{self.tier}-{self.plan_id}-{self.index}-of-{self.count}.json"


def take(configs: Sequence[Config], version: int, shard: Shard, store: Store) -> list[Config]:
    """``share``, noted in ``store`` for a later merge.

    Raises ConfigError for a plan without runs, OSError where the note cannot be written.
    """
    require(bool(configs), "a plan without runs has no shards")
    mine = share(configs, version, shard)
    note = Note(
        configs[0].experiment,
        configs[0].tier,
        version,
        shard.index,
        shard.count,
        sorted(config_id(config, version) for config in mine),
        sorted({config_id(config, version) for config in configs}),
        sources(),
        torch.__version__,
    )
    write_note(store.root, note)
    return mine


def write_note(root: Path, note: Note) -> None:
    write_atomically(root / "shards" / note.name, (json.dumps(asdict(note)) + "\n").encode())


def notes(root: Path) -> tuple[list[Note], list[Path]]:
    """The notes below ``root``, and files among them that are none."""
    found, damaged = [], []
    for path in sorted((root / "shards").glob("*.json")):
        try:
            note = Note(**json.loads(path.read_text(encoding="utf-8")))
            require(note.name == path.name, "renamed")
            found.append(note)
        except (OSError, ValueError, TypeError, RecursionError):  # ConfigError is a ValueError
            damaged.append(path)
    return found, damaged


def gaps(found: Sequence[tuple[Note, str]], complete: Callable[[str, str], bool]) -> tuple[list[str], list[str]]:
    """What is missing of the plans that notes belong to, and what came more than once, in words.

    ``found``: notes with the place each came from. ``complete``: whether the run of an experiment and id is there in
    full: a note is written before the first of its runs.
    """
    missing, twice = [], []
    plans: dict[tuple[str, str, str], list[tuple[Note, str]]] = {}
    for note, place in found:
        plans.setdefault((note.experiment, note.tier, note.plan_id), []).append((note, place))
    for (experiment, tier, _), group in sorted(plans.items()):
        plan = set(group[0][0].plan)
        left = plan - {i for note, _ in group for i in note.mine}
        title, counts = f"{experiment} {tier}", sorted({note.count for note, _ in group})
        if left and len(counts) == 1:
            absent = [i for i in range(1, counts[0] + 1) if all(note.index != i for note, _ in group)]
            names = ", ".join(f"{i}/{counts[0]}" for i in absent[:8]) + (" ..." if len(absent) > 8 else "")
            missing.append(f"{title}: shard {names} is missing, and with it {len(left)} of {len(plan)} runs")
        elif left:
            missing.append(f"{title}: {len(left)} of {len(plan)} runs are in no shard")
        for note in {note.name: note for note, _ in group}.values():
            lacking = [i for i in note.mine if not complete(experiment, i)]
            if lacking:
                came = f"shard {note.index}/{note.count} came without {len(lacking)} of its {len(note.mine)} runs"
                missing.append(f"{title}: {came}, or with these cut: the same command on its machine goes on")
        if len(counts) > 1:
            kinds = " and ".join(map(str, counts))
            twice.append(f"{title}: shards of {kinds} overlap; each run's first complete record is kept")
        places: dict[tuple[int, int], set[str]] = {}
        for note, place in group:
            places.setdefault((note.index, note.count), set()).add(place)
        for (index, count), where in sorted(places.items()):
            if len(where) > 1:
                twice.append(f"{title}: shard {index}/{count} came from {' and '.join(sorted(where))}")
    return missing, twice
