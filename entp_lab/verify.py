"""Compute records again, elsewhere if need be, and say whether they are what their configurations give.

A record is computed in its own arithmetic (``entp_lab.provenance``): one made with AVX2 in a process that is held to
AVX2. On the same kind of processor every number and text must be equal. Another processor rounds the last bits
differently, and training amplifies this until a model ends as it would have from another random seed. A trained run is
then judged by its first evaluation and by whether its final scores are within the range of its siblings with other
random seeds; whatever is not trained, by each number. docs/journal/house.md has what was seen, by processor.
"""

import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entp_lab.configs import ON_CPU, family
from entp_lab.provenance import (
    arithmetic_here,
    arithmetic_of,
    for_new_processes,
    has_avx2,
    kernels_of,
)
from entp_lab.resume import OnStep
from entp_lab.runs import run, worker_processes
from entp_lab.store import Record, RecordError, Records, Store
from entp_lab.texts import printable
from entp_lib.validation import require

BOUND = 0.02  # largest difference of a score between 0 and 1; relative for larger numbers
ALONE = 0.1  # largest difference of final scores, if a run has no siblings with other random seeds
# endings of names whose values differ between any two computations
TIMES = ("seconds", "_per_second", "_bytes")
IDENTICAL, CLOSE, OTHER_KERNELS, DIFFERS = OUTCOMES = (
    "identical",
    "as close as another processor comes",
    "made by other kernels, and as close",
    "differs",
)


@dataclass(frozen=True)
class Comparison:
    """A stored record and the same computed again. ``largest``: the largest difference; ``where``: its name."""

    stored: Record
    computed: Record
    outcome: str
    largest: float
    where: str


def sample(records: Records, count: int, seed: int) -> Records:
    """Draw ``count`` of the ``records``. Raises ConfigError if there are fewer."""
    require(
        1 <= count <= len(records),
        f"sample = {count}: must be at least 1, and there are {len(records)} records",
    )
    return random.Random(seed).sample(sorted(records, key=lambda record: record.id), count)


def verify(record: Record, store: Store, on_step: OnStep = lambda step, last: None) -> Comparison:
    """Compute ``record`` again in its own arithmetic, in a temporary store, and compare; ``store`` stays as it is.

    The weights that it starts from and its siblings with other random seeds come from ``store``. ``on_step`` is called
    with each step, except if another process computes because the arithmetic differs. Raises RecordError if it cannot
    be computed.
    """
    asked = arithmetic_of(record)
    here = record.config.tier not in ON_CPU or asked == arithmetic_here() or not has_avx2()
    try:
        if here:
            computed = compute_again(record, store, on_step=on_step)
        else:
            with for_new_processes(asked), worker_processes(1, []) as workers:
                computed = workers.submit(compute_again, record, store).result()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RecordError(f"record {record.name} cannot be computed again: {reason}") from error
    mine = family(record.config)
    siblings = [r for r in store.all(record.experiment, record.version) if family(r.config) == mine]
    return compare(record, computed, siblings)


def compute_again(record: Record, store: Store, **options: Any) -> Record:
    """Compute the record of the same configuration in this process, in a temporary store; ``options``: of ``run``.

    That store has the weights of ``store``, too, and writes nothing to it.
    """
    with tempfile.TemporaryDirectory() as folder:
        return run(
            record.config,
            record.version,
            store=Store(folder, read_only=False, committed=store),
            fresh=True,
            threads=record.provenance["threads"],
            **options,
        )


def compare(stored: Record, computed: Record, siblings: Records = ()) -> Comparison:
    """Compare two records of one configuration; ``siblings`` differ from them in their random seeds at most."""
    mine, theirs = (
        dict(leaves({"metrics": r.metrics, "curves": r.curves})) for r in (stored, computed)
    )
    differences = {}
    for name in sorted(mine.keys() | theirs.keys()):
        pair = mine.get(name, math.inf), theirs.get(name, math.inf)
        if pair[0] != pair[1]:
            differences[name] = distance(*pair)
    where = max(differences, key=lambda name: differences[name], default="")
    outcome = DIFFERS if differences else IDENTICAL
    if (
        differences
        and machine(stored) != machine(computed)
        and is_close(stored, differences, siblings)
    ):
        outcome = CLOSE if kernels_of(stored) == kernels_of(computed) else OTHER_KERNELS
    return Comparison(stored, computed, outcome, differences.get(where, 0.0), where)


def is_close(stored: Record, differences: Mapping[str, float], siblings: Records) -> bool:
    """Say whether the differences are within what another processor may cause."""
    if "step" not in stored.curves:  # nothing is trained
        return all(difference <= BOUND for difference in differences.values())
    found = [dict(leaves(record.metrics, "metrics")) for record in siblings]
    for name, difference in differences.items():
        values = [value for metrics in found if isinstance(value := metrics.get(name), int | float)]
        spread = distance(min(values), max(values)) if len(values) > 1 else ALONE
        if name.startswith("metrics.") and difference > max(BOUND, spread):
            return False
        if name.endswith("[0]") and name.startswith("curves.") and difference > BOUND:
            return False
    return True


def distance(a: Any, b: Any) -> float:
    """Return the distance of two values of a record: absolute up to 1, above relative to the larger one.

    It is 0 for two texts, to which no bound applies, and infinite for None, or for a text and a number.
    """
    if isinstance(a, str) and isinstance(b, str):
        return 0.0
    if not (isinstance(a, int | float) and isinstance(b, int | float)) or math.inf in (a, b):
        return math.inf
    return abs(a - b) / max(1.0, abs(a), abs(b))


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, float | str | None]]:
    """Yield every number and text in nested dictionaries and lists, by its path, without times and memory sizes."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict) or not str(key).endswith(TIMES):
                yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{name}[{i}]")
    else:
        yield name, value


def machine(record: Record) -> tuple[str, ...]:
    """Return what decides the last bits of a record: processor, instruction set, arithmetic, torch and kernels."""
    where = record.provenance
    processor = f"{where['device']} {where.get('cpu_capability', '')}".strip()
    torch = f"torch {where['versions']['torch']}"
    return processor, arithmetic_of(record), torch, kernels_of(record)


def report(found: Sequence[Comparison]) -> str:
    """Return a line per comparison, and the number of comparisons with each outcome."""
    lines = []
    for one in found:
        largest = f", at most {one.largest:.2g} in {one.where}" if one.where else ""
        stored, computed = (
            ", ".join(filter(None, machine(record))) for record in (one.stored, one.computed)
        )
        lines.append(
            f"{one.stored.name} {one.outcome}{largest} (stored: {stored}; computed: {computed})"
        )
    for outcome in OUTCOMES:
        lines.append(f"{sum(one.outcome == outcome for one in found)} of {len(found)}: {outcome}")
    return printable("\n".join(lines))
