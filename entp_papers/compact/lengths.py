"""Addition beyond the trained length: the runs of every tier, the table of schemes, and the claims (§3.4).

The quick tier trains on sums of up to two digits, the most that nearly every scheme learns in its time: in padded text
five seeds of the schemes that a claim compares, three of the others; in the other formats three of learned positions.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, by_seed, name_of, planned_study, select
from entp_lib.experiments.frames import levels
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.statistics import mean_interval, reaches
from entp_papers.compact.formats import FORMATS
from entp_papers.compact.positions import SCHEMES

NAME = "compact_lengths"
ARCHITECTURES = ("decoder", "entp")
LEARNED = 0.05  # share of right sums at the trained length; below it, how far a scheme reaches is not measured
# What a scheme tells the model: where a token is, or how far two tokens are apart. A row of panels each.
FAMILIES = {
    "places": ("learned", "sinusoidal", "randomised", "coupled", "none"),
    "distances": ("t5", "alibi", "kerple", "fire", "rope"),
}

# Claims of the paper, the format and the scheme that each holds against learned positions in the same format.
COMPARED = (
    ("CT-coupling", "padded", "coupled"),
    ("CT-relative", "padded", "t5"),
    ("CT-none", "padded", "none"),
    ("CT-fire", "hinted", "fire"),
)

# By tier: what all runs share, seeds of every scheme in padded text (of ``more`` apart, where there is not the time for
# five of all), and seeds of the other formats with ``others``. At ``quick`` those have five that a claim compares. At
# ``overnight`` those that learned sums of five or three digits in a pilot; one of each other shows that it does not in
# this time. ``decoders``: formats and
# schemes of which decoders alone are trained, with seeds and steps of their own.
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        shared=dict(trained_digits=2, tested_digits=[2, 3], n_layers=1, n_heads=2, width=16, steps=4, batch_size=8,
                    tested=10),
        seeds=1, other_seeds=1, others=("learned", "fire"),
    ),
    "quick": dict(
        shared=dict(trained_digits=2, tested_digits=[2, 3, 4, 6], width=32, steps=2000, batch_size=32, rate=3e-3,
                    tested=200),
        seeds=3, more={"learned": 5, "coupled": 5, "t5": 5, "none": 5}, other_seeds=3, others=("learned",),
    ),
    "overnight": dict(
        shared=dict(trained_digits=5, tested_digits=[5, 7, 10, 15], width=64, steps=6000, batch_size=32, rate=3e-3,
                    tested=500),
        seeds=1, more={"learned": 5, "coupled": 5, "rope": 5}, other_seeds=3, others=(),
        decoders=dict(cells=(("hinted", "fire"), ("hinted", "learned")), seeds=5, steps=9000),
    ),
    "gpu": dict(
        shared=dict(trained_digits=5, tested_digits=[5, 7, 10, 15], width=128, steps=8000, batch_size=64, tested=500),
        seeds=5, other_seeds=5, others=tuple(name for name in SCHEMES if name != "coupled"),
    ),
}  # fmt: skip


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every scheme in padded text, and the other formats under some schemes, each as decoder and as ENTP."""
    if tier not in TIERS:
        return []
    t, found = TIERS[tier], []
    cells = [("padded", name, seeds or t.get("more", {}).get(name, t["seeds"])) for name in SCHEMES]
    cells += [(form, name, seeds or t["other_seeds"]) for form in FORMATS if form != "padded" for name in t["others"]]
    arms = [(*cell, architecture, t["shared"]) for cell in cells for architecture in ARCHITECTURES]
    if alone := t.get("decoders"):
        shared = t["shared"] | {"steps": alone["steps"]}
        arms += [(*cell, seeds or alone["seeds"], "decoder", shared) for cell in alone["cells"]]
    for form, positions, count, architecture, shared in arms:
        arm = dict(format=form, positions=positions, architecture=architecture)
        found += [planned_sums(NAME, tier, arm, shared, seed) for seed in range(count)]
    return by_seed(found)


def planned_sums(experiment: str, tier: str, arm: dict[str, str], shared: dict[str, Any], seed: int) -> PlannedRun:
    """A run of an ``arm``: its format, positions and architecture."""
    config = StudyConfig(experiment, tier, "compact_addition", {**arm, "seed": seed, **shared}, seed, seed)
    return planned_study(config, **arm, arm=arm["architecture"])


def table(records: Sequence[Record]) -> pd.DataFrame:
    """Long: one row per run and tested length, with both accuracies and the factor over the trained length."""
    return pd.DataFrame(
        {
            **{k: r.labels[k] for k in ("positions", "format", "architecture", "arm", "seed")},
            "digits": int(digits),
            "factor": int(digits) / r.config.params["trained_digits"],
            "accuracy": accuracy,
            "token_accuracy": r.metrics["token_accuracy"][digits],
            "loss": r.curves["loss"][-1],
        }
        for r in records
        for digits, accuracy in r.metrics["accuracy"].items()
    )


def overview(records: Sequence[Record], metric: str = "accuracy") -> pd.DataFrame:
    """Schemes and formats in rows, architectures and lengths in columns: mean over seeds and 95 % interval as text."""

    def text(values: pd.Series) -> str:
        mean, low, high = mean_interval(values)
        return f"{mean:.2f}" if low != low else f"{mean:.2f} ({max(low, 0):.2f} to {min(high, 1):.2f})"

    keys = ["format", "positions", "architecture", "digits"]
    cells = table(records).groupby(keys, sort=False)[metric].apply(text)
    # a record's lengths are in the order of their names, 10 before 5; blank: not run
    wide = cells.unstack(["architecture", "digits"], fill_value="")
    return wide[sorted(wide.columns, key=lambda column: (ARCHITECTURES.index(column[0]), column[1]))]


def furthest(records: Sequence[Record], threshold: float = 0.5) -> pd.DataFrame:
    """By scheme, format and architecture: the longest tested sums of which this share is right, over the trained."""
    means = table(records).groupby(["format", "positions", "architecture", "digits", "factor"], sort=False)
    means = means["accuracy"].mean().reset_index()
    reached = means[reaches(means["accuracy"], threshold)]
    return reached.groupby(["format", "positions", "architecture"], sort=False)["factor"].max().unstack("architecture")


def heading(records: Sequence[Record]) -> str:
    """What a panel's title says: the longest operands of training, the tier, and how many seeds its schemes have."""
    counts = table(select(records, format="padded")).groupby("positions")["seed"].nunique()
    most, least = counts.max(), counts.min()
    config = records[0].config
    some = f"{least} to {most}" if least < most else f"{most}"
    return f"to {config.params['trained_digits']} digits\n{config.tier}, {some} seed{'s' * bool(most > 1)}"


def reach(records: Sequence[Record], share: float = 0.5) -> str:
    """Which schemes keep such a share of the answer's tokens beyond training, padded text, mean over seeds; how far."""
    rows = table(select(records, format="padded"))
    means = rows[rows["factor"] > 1].groupby(["positions", "architecture", "digits"], sort=False)["token_accuracy"]
    kept = means.mean()[lambda found: reaches(found, share)].reset_index()
    furthest_of = kept.groupby(["positions", "architecture"], sort=False)["digits"].max()
    found = ", ".join(f"{name} ({arm}) to {digits} digits" for (name, arm), digits in furthest_of.items())
    return f"at least {share:.0%} of the tokens right beyond training: {found or 'none'}"


def beyond(records: Sequence[Record], form: str = "padded", by: float = 1.3) -> pd.DataFrame:
    """The rows of ``table`` in a format, at tested lengths so many times the trained one."""
    rows = table(records)
    return rows[(rows["format"] == form) & (rows["factor"] >= by)]


def gain(records: Sequence[Record], positions: str, architecture: str, form: str = "padded") -> list[float]:
    """Token accuracy with a scheme less that with learned positions, beyond the trained length, paired by seed."""
    rows = beyond(records, form)
    wide = rows[rows["architecture"] == architecture].pivot_table(
        index="seed", columns="positions", values="token_accuracy"
    )
    if positions not in wide or "learned" not in wide:
        return []
    return (wide[positions] - wide["learned"]).dropna().tolist()


def entp_gain(records: Sequence[Record], positions: str = "coupled") -> list[float]:
    """Token accuracy of ENTP less the decoder's beyond the trained length, in padded text, paired by seed."""
    rows = beyond(records)
    wide = rows[rows["positions"] == positions].pivot_table(
        index="seed", columns="architecture", values="token_accuracy"
    )
    return (wide["entp"] - wide["decoder"]).dropna().tolist() if len(wide) else []


def untaught(rows: pd.DataFrame, sides: Sequence[tuple[str, str]], form: str = "padded") -> str:
    """Which of the ``sides`` (positions, architecture) have not learned the sums they were trained on; empty if none.

    The reach of such a side is not measured. To have learned all of them is what is wanted, and bars nothing.
    """
    missing = []
    for positions, architecture in sides:
        part = rows[
            (rows["format"] == form) & (rows["architecture"] == architecture) & (rows["positions"] == positions)
        ]
        if not reaches(part.loc[part["factor"] == 1, "accuracy"].mean(), LEARNED):
            missing.append(f"{positions} ({architecture})")
    return f"trained length not learned: {', '.join(missing)}" if missing else ""


def measure(records: Sequence[Record]) -> list[Measurement]:
    """What each family of schemes gains over learned positions, for the decoder, which the paper speaks of."""
    if not records:
        return []
    tier, rows = records[0].config.tier, table(records)
    found, ends = [], dict(floor=0.0, ceiling=1.0, distance=0.0)
    for claim, form, positions in COMPARED:
        values = gain(records, positions, "decoder", form)
        if not values and form != "padded":  # quick has no such runs
            continue
        chosen = select(records, format=form, architecture="decoder", positions=(positions, "learned"))
        barred = untaught(rows, ((positions, "decoder"), ("learned", "decoder")), form)
        sides = beyond(chosen, form).assign(arm=lambda rows: rows["positions"])
        stand = levels(sides, "token_accuracy", (positions, "learned"), **ends)
        names = tuple(name_of(r) for r in chosen)
        found.append(Measurement(claim, values, tier, names, levels=stand, barred=barred))
    ids = tuple(name_of(r) for r in select(records, format="padded", positions="coupled"))
    barred, coupled = untaught(rows, (("coupled", "entp"), ("coupled", "decoder"))), beyond(records)
    stand = levels(coupled[coupled["positions"] == "coupled"], "token_accuracy", ARCHITECTURES, **ends)
    return [*found, Measurement("CT-entp-length", entp_gain(records), tier, ids, levels=stand, barred=barred)]


LENGTHS = Experiment(
    name=NAME,
    version=1,
    title="Addition beyond the trained length, by format and positions",
    notebook="12_compact_transformers",
    plan=plan,
    measure=measure,
)
