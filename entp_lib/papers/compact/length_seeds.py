"""More seeds of the positional schemes that ``compact_lengths`` has a single one of at five digits.

With T5, ALiBi and FIRE that seed had ENTP learn the sums and the decoder not: whether that holds is asked of five
others, which had no part in forming the question.
"""

from collections.abc import Sequence

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


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Each scheme in padded text as decoder and as ENTP, with seeds from 1 up: 0 is that of ``compact_lengths``."""
    found = []
    for positions, count in SEEDS.get(tier, {}).items():
        for architecture in ARCHITECTURES:
            arm = dict(format="padded", positions=positions, architecture=architecture)
            shared = TIERS[tier]["shared"]
            found += [planned_sums(NAME, tier, arm, shared, 1 + seed) for seed in range(seeds or count)]
    return by_seed(found)


def entp_gain(records: Sequence[Record]) -> list[float]:
    """Whole sums of the trained length right, ENTP − decoder, mean over ``RELATIVE``; a value for each whole seed."""
    rows = table(select(records, positions=RELATIVE))
    rows = rows[rows["factor"] == 1]
    wide = rows.pivot_table(index="seed", columns=["architecture", "positions"], values="accuracy").dropna()
    if wide.shape[1] < len(ARCHITECTURES) * len(RELATIVE):
        return []
    return (wide["entp"].mean(axis=1) - wide["decoder"].mean(axis=1)).tolist()


def measure(records: Sequence[Record]) -> list[Measurement]:
    """The question that seed 0 raised; idle where neither architecture learns such sums, or both do."""
    chosen = select(records, positions=RELATIVE)
    if not chosen:
        return []
    rows = table(chosen)
    means = rows[rows["factor"] == 1].groupby("architecture")["accuracy"].mean()
    levels = tuple(Level(float(means[name]), 0.0, 1.0, LEARNED) for name in ARCHITECTURES)
    ids = tuple(name_of(r) for r in chosen)
    return [Measurement("CT-relative-entp", entp_gain(records), chosen[0].config.tier, ids, levels=levels)]


LENGTH_SEEDS = Experiment(
    name=NAME,
    version=1,
    title="Addition of five digits, more seeds of the positional schemes",
    notebook="12_compact_transformers",
    plan=plan,
    measure=measure,
)
