"""Count3 trained to its end: does a decoder fail, who arrives first, has a curve flattened, does the gap grow with n?

The questions that the ``overnight`` tier asks of Count3. Their rules were written down before the runs
(docs/journal): a run that never reaches the timed accuracy counts with the end of its schedule, and a pair in which
neither run reaches it is dropped.
"""

import math
from collections.abc import Sequence

import pandas as pd

from entp_lib.experiments.caveats import FLAT, rise
from entp_lib.experiments.comparisons import measured
from entp_lib.experiments.frames import by_position, gap_table, levels, paired, paired_within, select, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.statistics import exceeds, first_at
from entp_papers.entp.pairless import no_pairs_found

REACHED = 0.95  # held-out token accuracy whose first evaluation is timed
LEARNED = 0.90  # sequence accuracy that is no failure, if every seed has it
NEAR = 0.02  # of accuracy: closer to the mode baseline counts as being there


def arrivals(records: Sequence[Record], threshold: float = REACHED) -> pd.DataFrame:
    """A row per run: step and token-forwards at the first evaluation with so many tokens right, and their logarithms.

    ``reached`` is False where no evaluation has it; such a run counts with its last one.
    """
    rows = []
    for r in records:
        row = dict(r.labels)
        for axis in ("step", "token_forwards"):
            at = first_at(r.curves, "token_accuracy", threshold, axis)
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


def gap_by_n(records: Sequence[Record]) -> pd.DataFrame:
    """ENTP − decoder in final token accuracy by prefix length on Count3 itself: mean and paired interval."""
    counted = [r for r in records if r.labels.get("task", "count3") == "count3"]
    if not counted:
        return pd.DataFrame()
    table = by_position(counted, {"token_accuracy": "token_accuracy_by_position"})
    return gap_table(dict(paired_within(table, "token_accuracy", "entp", "decoder", "position").items()))


def slopes(records: Sequence[Record]) -> pd.Series:
    """By seed: the slope of ENTP − decoder in final token accuracy on the prefix length n, per token.

    One slope for even and for odd n, each about its own mean: trained models are worse at even n, and a gap that is
    larger there has a slope from an odd to an even end without growing.
    """
    runs = select(records, arm=("decoder", "entp"))
    if {r.labels["arm"] for r in runs} != {"decoder", "entp"}:
        return pd.Series(dtype=float)
    found = by_position(runs, {"token_accuracy": "token_accuracy_by_position"})
    gap = paired_within(found, "token_accuracy", "entp", "decoder", "position")
    lengths = pd.Series(gap.columns, index=gap.columns, dtype=float)
    apart = lengths - lengths.groupby(lengths % 2).transform("mean")
    if not apart.any():  # no two lengths to compare
        return pd.Series(dtype=float)
    return gap.mul(apart, axis=1).sum(axis=1, skipna=False) / (apart**2).sum()


def lead(came: pd.DataFrame) -> pd.Series:
    """ln of the steps until an accuracy was reached, decoder − ENTP by seed, of ``arrivals``.

    Pairs in which neither run reaches it are dropped.
    """
    arms = came[came["arm"].isin(("decoder", "entp"))]
    somebody = arms.groupby("seed")["reached"].any()
    found = paired(came, "log_step", "decoder", "entp").dropna()
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


def measure(records: Sequence[Record]) -> list[Measurement]:
    """F2-fails: the decoder's sequence accuracy − ``LEARNED``. F2-speed: who needs fewer steps to ``REACHED``."""
    records, found = select(records, task="count3"), []
    if not records or records[0].config.tier == "quick":  # which stops in the middle of the course
        return found
    if runs := select(records, arm="decoder"):
        found.append(measured("F2-fails", summary(runs)["sequence_accuracy"] - LEARNED, runs))
    earlier = lead(arrivals(records))
    if len(earlier):
        found.append(measured("F2-speed", earlier, select(records, arm=("decoder", "entp"))))
    return found


def growth(records: Sequence[Record]) -> list[Measurement]:
    """F2-unseen-parity: does ENTP's lead grow with n among even and among odd n?"""
    values, arms, table = slopes(records), ("decoder", "entp"), summary(records)
    if not len(values):
        return []
    floor = table["baseline_token_accuracy"].mean()
    sides = levels(table, "token_accuracy", arms, floor=floor, ceiling=1.0, distance=NEAR)
    barred = no_pairs_found(records, arms)
    return [measured("F2-unseen-parity", values, select(records, arm=arms), levels=sides, excluded_because=barred)]
