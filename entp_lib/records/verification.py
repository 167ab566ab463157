"""Whether a record says what its configuration gives: computed again, elsewhere if need be, and compared.

It is computed in the record's own arithmetic (``entp_lib.arithmetic``), with which a run ended bit for bit where it did
on every machine tried. Another instruction set rounds otherwise and training carries that on: a model at its plateau
ends within a bound, one in mid-course somewhere else, as another seed would. There a run is held against the seeds.
"""

import copy
import math
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from entp_lib import arithmetic
from entp_lib.config import ON_CPU, StudyConfig, family
from entp_lib.records.execution import run
from entp_lib.records.loading import weights_of
from entp_lib.records.provenance import arithmetic_of
from entp_lib.records.store import Record, Store, is_complete
from entp_lib.records.sweeps import local_processes
from entp_lib.validation import require

BOUND = 0.02  # of a score between 0 and 1; of a larger number, as a share of it
OUTCOMES = ("identical", "within the bound", "within the seeds", "differs")
TIMES = ("seconds", "_bytes")  # how names of what no two computations have in common end


@dataclass(frozen=True)
class Comparison:
    """A stored record and the same computed again. ``largest``: the largest difference, and ``where`` it is.

    ``of_seeds``: how far each final score of runs that differ in their seeds alone lies apart, where there are two.
    """

    stored: Record
    computed: Record
    largest: float
    where: str
    of_seeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """``identical`` in every number and text, ``within the bound`` in every number, or ``differs``.

        ``within the seeds``: computed by another processor or torch, no final score further off than seeds are.
        """
        if self.largest == 0 and not self.where:
            return "identical"
        if self.largest <= BOUND:
            return "within the bound"
        mine, theirs = scores(self.stored), scores(self.computed)
        beyond = any(abs(mine[name] - theirs[name]) > between for name, between in self.of_seeds.items())
        elsewhere = machine(self.stored)[:3] != machine(self.computed)[:3] and math.isfinite(self.largest)
        return "within the seeds" if elsewhere and self.of_seeds and not beyond else "differs"


def sample(records: Sequence[Record], count: int, seed: int) -> list[Record]:
    """So many of the complete ``records``, drawn by a seed. ConfigError where there are not so many."""
    complete = sorted(filter(is_complete, records), key=lambda r: r.id)
    right = 1 <= count <= len(complete)
    require(right, f"sample = {count}: must be at least 1, and there are {len(complete)} complete records")
    return random.Random(seed).sample(complete, count)


def scores(record: Record) -> dict[str, float]:
    """The final scores of a record: its numbers, not those of its parts, and no times."""
    metrics = record.metrics.items()
    return {name: value for name, value in metrics if type(value) in (int, float) and not name.endswith(TIMES)}


def between_seeds(record: Record, others: Sequence[Record]) -> dict[str, float]:
    """How far the final scores of those ``others`` that differ from ``record`` in their seeds alone lie apart."""
    alike = [scores(r) for r in others if is_complete(r) and family(r.config) == family(record.config)]
    if len(alike) < 2:
        return {}
    shared = set.intersection(*map(set, alike))
    return {name: max(s[name] for s in alike) - min(s[name] for s in alike) for name in shared}


def verify(
    record: Record, store: Store, on_step: Callable[[int], None] | None = None, others: Sequence[Record] = ()
) -> Comparison:
    """Compute ``record`` again in its own arithmetic, in a store of its own, and compare; nothing in ``store`` changes.

    Weights that it starts from are taken from ``store``; ConfigError where they are missing there. ``on_step`` is
    called with each step, unless another process computes, as it must for another arithmetic. ``others``: records of
    the experiment, of which those of other random seeds show what another processor may change.
    """
    wanted = arithmetic_of(record)
    if record.config.tier not in ON_CPU or wanted == arithmetic.in_force() or not arithmetic.has_avx2():
        computed = compute_again(record, store, on_step)
    else:
        with arithmetic.for_new_processes(wanted), local_processes(1) as pool:
            computed = pool.submit(compute_again, record, store).result()
    return replace(compare(record, computed), of_seeds=between_seeds(record, others))


def compute_again(record: Record, store: Store, on_step: Callable[[int], None] | None = None) -> Record:
    """The record of the same configuration, computed in this process in a store of its own."""
    with tempfile.TemporaryDirectory() as folder:
        apart, untouched = Store(Path(folder), read_only=False), copy.copy(store)
        untouched.read_only = True  # damaged weights stay where they are
        study = isinstance(record.config, StudyConfig)
        if name := record.config.params.get("weights") if study else record.config.start_from:
            source, target = weights_of(untouched, name), apart.weights_path(*name.split("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        threads = record.provenance.get("threads", 1)
        return run(record.config, record.version, store=apart, threads=threads, on_step=on_step)


def report(found: Sequence[Comparison]) -> str:
    """A table of comparisons, and how many of each outcome."""
    rows = [("record", "stored on", "computed on", "largest difference", "outcome")]
    for f in found:
        largest = f"{f.largest:.2g} in {f.where}" if f.where else "none"
        places = (", ".join(filter(None, machine(r))) for r in (f.stored, f.computed))
        rows.append((f.stored.id, *places, largest, f.outcome))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    same, close, seeds, other = (sum(f.outcome == outcome for f in found) for outcome in OUTCOMES)
    lines.append(
        f"{same} of {len(found)} records are identical, {close} within {BOUND} in every number, {seeds + other} not"
    )
    if seeds:
        lines.append(f"{seeds} of these, on another processor or torch, end no further off in any score than seeds are")
    return "\n".join(lines)


def machine(record: Record) -> tuple[str, ...]:
    """Processor, arithmetic and torch, which decide the last bits of a record, and its sources."""
    where = record.provenance
    torch, sources = where.get("versions", {}).get("torch", "?"), where.get("sources", "?")
    return where.get("device", ""), arithmetic_of(record), f"torch {torch}", f"sources {sources}"


def compare(stored: Record, computed: Record) -> Comparison:
    """The largest difference between the numbers of two records, times aside, and where it is."""
    mine, theirs = (dict(leaves({"metrics": r.metrics, "curves": r.curves})) for r in (stored, computed))
    found, texts = {}, ""
    for name in sorted(mine.keys() | theirs.keys()):
        a, b = mine.get(name, ""), theirs.get(name, "")  # a text where a number is is as far off as can be
        if isinstance(a, str) and isinstance(b, str):
            texts = texts or ("texts" if a != b else "")
        else:
            found[name] = difference(a, b)
    where = max(found, key=found.get, default="")
    return Comparison(stored, computed, found.get(where, 0.0), where if found.get(where) else texts)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, float | str | None]]:
    """Every number and text in nested dictionaries and lists, by its path, but those that measure times or memory."""
    if isinstance(value, dict):
        for key, v in value.items():
            if isinstance(v, dict) or not str(key).endswith(TIMES):
                yield from leaves(v, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from leaves(v, f"{name}[{i}]")
    else:
        yield name, value


def difference(a: Any, b: Any) -> float:
    """How far two numbers are apart: as they are up to 1, as a share of the larger one above; None only equals None."""
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return 0.0 if a is b else math.inf
    return abs(a - b) / max(1.0, abs(a), abs(b))
