"""Count3 trained to its end: does a decoder fail, who arrives first, has a curve flattened, does the gap grow with n?

The questions that the ``overnight`` tier asks of Count3, for its two tasks alike. Their rules were written down before
the runs (docs/JOURNAL.md): a run that never reaches the timed accuracy counts with the end of its schedule, and a pair
of which neither does is none.
"""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from entp_lib.collection.ends import FLAT, rise
from entp_lib.collection.experiment import name_of, select
from entp_lib.collection.frames import by_position, gap_table, levels, paired, paired_within, summary
from entp_lib.collection.measurements import Level, Measurement
from entp_lib.runs.records import Record
from entp_lib.statistics import exceeds, first_at, reaches

REACHED = 0.95  # held-out token accuracy whose first evaluation is timed
LEARNED = 0.90  # sequence accuracy that is no failure, if every seed has it
CEILING = 0.99  # mean sequence accuracy that leaves nothing to compare, if both arms have it
FLOOR = 0.05  # of token accuracy above the mode baseline; two arms below it have not begun
ALL = 2.0  # a distance that takes every accuracy in


def arrivals(records: Sequence[Record], threshold: float = REACHED, metric: str = "token_accuracy") -> pd.DataFrame:
    """A row per run: step and token-forwards at the first evaluation with so much accuracy, and their logarithms.

    ``reached`` is False where no evaluation has it; such a run counts with its last one.
    """
    rows = []
    for r in records:
        row = dict(r.labels)
        for axis in ("step", "token_forwards"):
            at = first_at(r.curves, metric, threshold, axis)
            row["reached"] = at is not None
            row[axis] = r.curves[axis][-1] if at is None else at
            row[f"log_{axis}"] = math.log(row[axis])
        rows.append(row)
    return pd.DataFrame(rows)


def flatness(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run: how much token accuracy rose from the last but one fifth of its evaluations to the last one.

    ``flat`` where the mean over the seeds of its arm is below ``FLAT``.
    """
    found = pd.DataFrame({**r.labels, "rise": rise(r.curves["token_accuracy"])} for r in records)
    found["flat"] = exceeds(FLAT, found.groupby("arm")["rise"].transform("mean"))
    return found


def stand(table: pd.DataFrame, metric: str, arms: Sequence[str]) -> tuple[Level, ...]:
    """Where two arms stand in a metric, both ends of it as far away as the rule has it: all or nothing.

    Nothing can be compared if both have ``CEILING`` of the sequences, or neither has left the mode baseline.
    """
    means = table[table["arm"].isin(arms)].groupby("arm")[["token_accuracy", "sequence_accuracy"]].mean()
    mode = table["baseline_token_accuracy"].mean()
    low = bool(exceeds(mode + FLOOR, means["token_accuracy"]).all())
    high = bool(reaches(means["sequence_accuracy"], CEILING).all())
    floor = table[f"baseline_{metric}"].mean()
    return levels(
        table, metric, arms, floor=floor, ceiling=1.0, distance=ALL if low else 0.0, from_top=ALL if high else 0.0
    )


def leads(records: Sequence[Record], claims: Mapping[str, tuple[str, str]]) -> list[Measurement]:
    """For every claim the lead of ENTP over an arm in a final accuracy, paired by seed: claim to metric and arm."""
    table, tier, found = summary(records), records[0].config.tier, []
    for claim, (metric, other) in claims.items():
        values = paired(table, metric, "entp", other).tolist()
        used = tuple(name_of(r) for r in select(records, arm=(other, "entp")))
        found.append(Measurement(claim, values, tier, used, levels=stand(table, metric, (other, "entp"))))
    return found


def both(claims: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """``leads`` in tokens, and in sequences under the claim's name with that behind it; ``claims``: claim to arm."""
    ends = (("", "token_accuracy"), ("-sequences", "sequence_accuracy"))
    return {claim + end: (metric, other) for claim, other in claims.items() for end, metric in ends}


def gap_by_n(records: Sequence[Record]) -> pd.DataFrame:
    """ENTP − decoder in final token accuracy by prefix length on Count3 itself: mean and paired interval."""
    counted = [r for r in records if r.labels.get("task", "count3") == "count3"]
    if not counted:
        return pd.DataFrame()
    table = by_position(counted, {"token_accuracy": "token_accuracy_by_position"})
    return gap_table(dict(paired_within(table, "token_accuracy", "entp", "decoder", "position").items()))


def slopes(
    records: Sequence[Record], first: str = "entp", second: str = "decoder", by_parity: bool = False
) -> pd.Series:
    """By seed: the slope of the final gap in token accuracy, first − second, on the prefix length n, per token.

    ``by_parity``: one slope for even and for odd n, each about its own mean. Trained models are worse at even n, and a
    gap that is larger there has a slope from an odd to an even end without growing.
    """
    runs = select(records, arm=(first, second))
    if {r.labels["arm"] for r in runs} != {first, second}:
        return pd.Series(dtype=float)
    found = by_position(runs, {"token_accuracy": "token_accuracy_by_position"})
    wide = found.pivot(index=["seed", "position"], columns="arm", values="token_accuracy")
    gap = (wide[first] - wide[second]).dropna().unstack("position")
    lengths = pd.Series(gap.columns, index=gap.columns, dtype=float)
    apart = lengths - lengths.groupby(lengths % 2 if by_parity else 0 * lengths).transform("mean")
    if not apart.any():  # no two lengths to compare
        return pd.Series(dtype=float)
    return gap.mul(apart, axis=1).sum(axis=1, skipna=False) / (apart**2).sum()


def lead(came: pd.DataFrame, axis: str, first: str, second: str) -> pd.Series:
    """``paired`` of ln ``axis`` until an accuracy was reached, of ``arrivals``; without pairs of which neither came."""
    arms = came[came["arm"].isin((first, second))]
    somebody = arms.groupby("seed")["reached"].any()
    found = paired(came, f"log_{axis}", first, second).dropna()
    return found[somebody.reindex(found.index)]


def whole(records: Sequence[Record], threshold: float = REACHED) -> pd.DataFrame:
    """A row per arm, for the notebook: sequence accuracy (least seed), when it arrives, and whether it is flat."""
    table, came, rise = summary(records), arrivals(records, threshold), flatness(records)
    rows = {}
    for arm, part in table.groupby("arm", sort=False):
        times = came[came["arm"] == arm]
        seeds = f"{int((part['sequence_accuracy'] >= LEARNED).sum())} of {len(part)}"
        rows[arm] = {
            "sequence accuracy, least seed": round(part["sequence_accuracy"].min(), 3),
            f"seeds at {LEARNED} of sequences": seeds,
            f"seeds that reach {threshold} of tokens": f"{int(times['reached'].sum())} of {len(times)}",
            "steps to it, geometric mean": round(math.exp(times["log_step"].mean())),
            "token-forwards to it": f"{math.exp(times['log_token_forwards'].mean()):.3g}",
            "rise in the last fifth": round(rise[rise["arm"] == arm]["rise"].mean(), 4),
            "flat": bool(rise[rise["arm"] == arm]["flat"].all()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def measure(records: Sequence[Record], prefix: str, longer: str, threshold: float = REACHED) -> list[Measurement]:
    """``prefix``-fails, -fails-fair, -learns, -speed, -speed-fair, -slope and -parity.

    ``longer``: the arm at ENTP's token-forwards. ``threshold``: the token accuracy whose first evaluation is timed.
    """
    if not records:
        return []
    tier, table, came = records[0].config.tier, summary(records), arrivals(records, threshold)
    found = []

    def add(question: str, arms: tuple[str, ...], values: pd.Series, standing: tuple = ()) -> None:
        if len(values):
            ids = tuple(name_of(r) for r in select(records, arm=arms))
            found.append(Measurement(f"{prefix}-{question}", values.tolist(), tier, ids, levels=standing))

    for suffix, arm in (("fails", "decoder"), ("fails-fair", longer), ("learns", "entp")):
        add(suffix, (arm,), table[table["arm"] == arm]["sequence_accuracy"] - LEARNED)
    add("speed", ("decoder", "entp"), lead(came, "step", "decoder", "entp"))
    add("speed-fair", (longer, "entp"), lead(came, "token_forwards", longer, "entp"))
    standing = stand(table, "token_accuracy", ("decoder", "entp"))
    add("slope", ("decoder", "entp"), slopes(records), standing)
    add("parity", ("decoder", "entp"), slopes(records, by_parity=True), standing)
    return found
