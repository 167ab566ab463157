"""More seeds of the positional schemes that ``compact_lengths`` has a single one of at five digits.

With T5, ALiBi and FIRE that seed had ENTP learn the sums and the decoder not: whether that holds is asked of five
others, which had no part in forming the question. With T5 and ALiBi, where most of these had ENTP learn them, decoders
are also trained for ENTP's token-forwards: 5.8 prefixes of a sum are scored, each a row of its own in ENTP.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from entp_lib.collection.experiment import Experiment, PlannedRun, by_seed, name_of, select
from entp_lib.collection.measurements import Level, Measurement
from entp_lib.papers.compact.lengths import ARCHITECTURES, LEARNED, TIERS, planned_sums, table
from entp_lib.runs.records import Record

NAME = "compact_length_seeds"
RELATIVE = ("t5", "alibi", "fire")
SEEDS = {
    "smoke": dict.fromkeys(RELATIVE, 1),
    "overnight": dict.fromkeys(RELATIVE, 5) | dict.fromkeys(("sinusoidal", "kerple", "none", "randomised"), 2),
}
# Decoders with ENTP's token-forwards: 5.8 times the steps at ``overnight``. Added after the runs at equal steps.
LONGER = {
    "smoke": dict(schemes=("t5",), steps=8, seeds=1),
    "overnight": dict(schemes=("t5", "alibi"), steps=34_800, seeds=5),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Each scheme in padded text as decoder and as ENTP, with seeds from 1 up: 0 is that of ``compact_lengths``.

    The ``arm`` of a decoder with more steps is ``longer``.
    """
    found = []
    for positions, count in SEEDS.get(tier, {}).items():
        for architecture in ARCHITECTURES:
            arm = dict(format="padded", positions=positions, architecture=architecture)
            shared = TIERS[tier]["shared"]
            found += [planned_sums(NAME, tier, arm, shared, 1 + seed) for seed in range(seeds or count)]
    more = LONGER.get(tier, {})
    for positions in more.get("schemes", ()):
        arm = dict(format="padded", positions=positions, architecture="decoder")
        shared = TIERS[tier]["shared"] | {"steps": more["steps"]}
        chosen = [planned_sums(NAME, tier, arm, shared, 1 + seed) for seed in range(seeds or more["seeds"])]
        found += [replace(run, labels={**run.labels, "arm": "longer"}) for run in chosen]
    return by_seed(found)


def trained_length(records: Sequence[Record], schemes: Sequence[str] = RELATIVE) -> pd.DataFrame:
    """Whole padded sums of the trained length right: a row per scheme and arm, a column per seed."""
    rows = table(select(records, format="padded", positions=tuple(schemes)))
    rows = rows[rows["factor"] == 1]
    return rows.pivot_table(index=["positions", "arm"], columns="seed", values="accuracy", sort=False).sort_index(
        axis=1
    )


def entp_gain(records: Sequence[Record], schemes: Sequence[str], other: str = "decoder") -> list[float]:
    """Whole sums of the trained length right, ENTP − the ``other`` arm, mean over schemes; a value per whole seed."""
    arms = ("entp", other)
    chosen = select(records, positions=tuple(schemes), arm=arms)
    if not chosen:
        return []
    rows = table(chosen)
    wide = rows[rows["factor"] == 1].pivot_table(index="seed", columns=["arm", "positions"], values="accuracy").dropna()
    if wide.shape[1] < len(arms) * len(schemes):
        return []
    return (wide["entp"].mean(axis=1) - wide[other].mean(axis=1)).tolist()


def measure(records: Sequence[Record]) -> list[Measurement]:
    """The question that seed 0 raised, and the same at equal token-forwards; idle where no side, or each, learns."""
    found = []
    for claim, other, schemes in (
        ("CT-relative-entp", "decoder", RELATIVE),
        ("CT-relative-compute", "longer", LONGER["overnight"]["schemes"]),
    ):
        chosen = select(records, positions=schemes, arm=("entp", other))
        if {r.labels["arm"] for r in chosen} != {"entp", other}:
            continue
        rows = table(chosen)
        means = rows[rows["factor"] == 1].groupby("arm")["accuracy"].mean()
        levels = tuple(Level(float(means[name]), 0.0, 1.0, LEARNED) for name in ("entp", other))
        ids = tuple(name_of(r) for r in chosen)
        found.append(Measurement(claim, entp_gain(records, schemes, other), chosen[0].config.tier, ids, levels=levels))
    return found


LENGTH_SEEDS = Experiment(
    name=NAME,
    version=1,
    title="Addition of five digits, more seeds of the positional schemes",
    notebook="12_compact_transformers",
    plan=plan,
    measure=measure,
)
