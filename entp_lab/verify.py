"""Whether a record says what its configuration gives: computed again, elsewhere if need be, and compared.

It is computed in the record's own arithmetic (``entp_lab.arithmetic``): AVX2 in a process of its own where the record
was made so. Another processor may round otherwise all the same, and training carries that on: a model at its plateau
ends within a bound, one in mid-course somewhere else, as another seed would. Of 24 records computed again on an Intel
with AVX-512, 14 were identical, 7 within the bound and 3 not; of trained ones made with AVX2 on AMD none was identical.
A run in bf16 that other kernels made is held to its scores at the end, within a wider bound.
"""

import copy
import math
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entp_lab import arithmetic
from entp_lab.configs import ON_CPU, StudyConfig
from entp_lab.loading import weights_of
from entp_lab.provenance import arithmetic_of, kernels_of
from entp_lab.runs import run
from entp_lab.store import Record, Store, is_complete
from entp_lab.sweeps import local_processes
from entp_lib.validation import require

BOUND = 0.02  # of a score between 0 and 1; of a larger number, as a share of it
KERNELS_BOUND = 0.1  # of the scores at the end, where other kernels made the record
OTHER_KERNELS = f"made by other kernels: within {KERNELS_BOUND}"
TIMES = ("seconds", "_per_second", "_bytes")  # how names of what no two computations have in common end


@dataclass(frozen=True)
class Comparison:
    """A stored record and the same computed again. ``largest``: the largest difference, and ``where`` it is."""

    stored: Record
    computed: Record
    largest: float
    where: str

    @property
    def outcome(self) -> str:
        """``identical`` in every number and text, ``within the bound`` in every number, or ``differs``.

        ``OTHER_KERNELS`` where other kernels made the record and its last scores are as near as that says.
        """
        if kernels_of(self.stored) != kernels_of(self.computed):
            return OTHER_KERNELS if self.largest <= KERNELS_BOUND else "differs"
        if self.largest == 0 and not self.where:
            return "identical"
        return "within the bound" if self.largest <= BOUND else "differs"


def sample(records: Sequence[Record], count: int, seed: int) -> list[Record]:
    """So many of the complete ``records``, drawn by a seed. ConfigError where there are not so many."""
    complete = sorted(filter(is_complete, records), key=lambda r: r.id)
    right = 1 <= count <= len(complete)
    require(right, f"sample = {count}: must be at least 1, and there are {len(complete)} complete records")
    return random.Random(seed).sample(complete, count)


def verify(record: Record, store: Store, on_step: Callable[[int], None] | None = None) -> Comparison:
    """Compute ``record`` again in its own arithmetic, in a store of its own, and compare; nothing in ``store`` changes.

    Weights that it starts from are taken from ``store``; ConfigError where they are missing. ``on_step`` is called with
    each step, unless another process computes, as for another arithmetic.
    """
    scored = arithmetic_of(record)
    if record.config.tier not in ON_CPU or scored == arithmetic.in_force() or not arithmetic.has_avx2():
        return compare(record, compute_again(record, store, on_step))
    with arithmetic.for_new_processes(scored), local_processes(1) as pool:
        return compare(record, pool.submit(compute_again, record, store).result())


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
    outcomes = [f.outcome for f in found]
    same, close, other, apart = map(outcomes.count, ("identical", "within the bound", "differs", OTHER_KERNELS))
    lines.append(f"{same} of {len(found)} records are identical, {close} within {BOUND} in every number, {other} not")
    if apart:
        lines.append(f"{apart} of {len(found)} records are {OTHER_KERNELS} in every score at the end")
    if any(f.outcome == "differs" and machine(f.stored)[:3] != machine(f.computed)[:3] for f in found):
        lines.append("on another processor or torch a model in mid-course may end as another seed would")
    return "\n".join(lines)


def machine(record: Record) -> tuple[str, ...]:
    """Processor, arithmetic and torch, which decide the last bits of a record, and its sources."""
    where = record.provenance
    torch, sources = where.get("versions", {}).get("torch", "?"), where.get("sources", "?")
    return where.get("device", ""), arithmetic_of(record), f"torch {torch}", f"sources {sources}"


def compare(stored: Record, computed: Record) -> Comparison:
    """The largest difference between the numbers of two records, times aside, and where it is.

    Of records that different kernels made, between their metrics alone: curves part on the way, as between seeds.

    Two numbers are as far apart as they are up to 1, as a share of the larger one above; None, or a text where a number
    is, as far as can be.
    """
    alike = kernels_of(stored) == kernels_of(computed)
    found = [{"metrics": r.metrics} | ({"curves": r.curves} if alike else {}) for r in (stored, computed)]
    mine, theirs = (dict(leaves(x)) for x in found)
    largest, where, texts = 0.0, "", ""
    for name in sorted(mine.keys() | theirs.keys()):
        a, b = mine.get(name, ""), theirs.get(name, "")
        if isinstance(a, str) and isinstance(b, str):
            texts = texts or ("texts" if a != b else "")
            continue
        numbers = not {type(a), type(b)} & {str, type(None)}
        off = abs(a - b) / max(1.0, abs(a), abs(b)) if numbers else 0.0 if a is b else math.inf
        if off > largest:
            largest, where = off, name
    return Comparison(stored, computed, largest, where or texts)


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
