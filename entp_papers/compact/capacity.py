"""Capacity for random sequences (§3.1): the runs of every tier, tables of them, and their part in the claims."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.experiment import Experiment
from entp_lab.frames import select
from entp_lab.measurements import Check, Measurement, Observation
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.statistics import TOLERANCE, exceeds
from entp_lab.store import Record, RecordError
from entp_lab.studies import flat, names_of
from entp_papers.compact import laws

NAME, TRAININGS_NAME = "compact_capacity", "compact_capacity_trainings"
NOTEBOOK = "12b_compact_details"
ONE_FUNCTION = "one function by construction: at the last token neither mask hides anything"
SCHEDULE = dict(epochs=100, batch_size=256, rate=1e-2, count_every=10)
PARTS = {"sweep", "one_layer", "feed_forward", "entp", "batch", "largest", "shatter"}
SMOKE = dict(epochs=4, batch_size=32, rate=1e-2, count_every=2)

# By tier: the library, its symbols and runs; what is swept; the schedule of the sweep.
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        library=64, symbols=8, runs=1, widths=(4, 6, 8, 12), heads=(1, 2), lengths=(4, 6, 8), head_width=4,
        schedule=SMOKE, ablated=(8,), sizes={8: [4, 8, 64, 72]}, steps=60,
        batches=(16, 64), batch_epochs=2, batch_steps=6, shatter=dict(library=6, runs=60, epochs=80),
    ),
    "quick": dict(
        library=2048, symbols=64, runs=2, widths=(8, 12, 16, 24), heads=(1, 2, 4), lengths=(8, 16, 32), head_width=16,
        schedule=SCHEDULE, ablated=(8, 12, 16, 20, 24), steps=1500,
        sizes={width: [int(start * 1.25**i) for i in range(12)] for width, start in ((8, 10), (16, 60), (24, 180))},
        batches=(16, 64, 256, 1024), batch_epochs=30, batch_steps=300,
        shatter=dict(library=16, runs=200, epochs=800),
    ),
    "paper": dict(
        library=16_000, symbols=128, runs=5, widths=(32, 64, 128, 256, 512), heads=(1, 2, 4, 8),
        lengths=(8, 16, 32, 64, 128), head_width=128,
        schedule=dict(epochs=1000, batch_size=512, rate=1e-3, count_every=5, patience=5), ablated=(32, 128, 512),
        steps=20_000, sizes={width: [int(100 * 1.25**i) for i in range(24)] for width in (32, 128, 512)},
        batches=(32, 128, 512, 2048), batch_epochs=500, batch_steps=10_000,
        shatter=dict(library=16, runs=1000, epochs=5000),
    ),
}  # fmt: skip


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """All studies of a tier; ``seeds`` > 0 sets the number of runs that each trains side by side, except figure 8's."""
    t, found = TIERS[tier], []
    runs, few = seeds or t["runs"], t["shatter"]

    def add(part: str, params: dict[str, Any], study: str = "compact_capacity", **labels) -> None:
        found.append(planned_study(NAME, tier, study, params, part=part, **labels))

    def model(width: int, n_heads: int, length: int, **changes) -> dict[str, Any]:
        shape = dict(symbols=t["symbols"], width=width, n_heads=n_heads, length=length, head_width=t["head_width"])
        return {**shape, **changes}

    def params(divisor: int, shape: dict[str, Any], **changes) -> dict[str, Any]:
        schedule = {**t["schedule"], **changes}
        return dict(model=shape, schedule=schedule, library=t["library"] // divisor, runs=runs)

    short = t["lengths"][0]
    for width, n_heads, length in itertools.product(t["widths"], t["heads"], t["lengths"]):
        add("sweep", params(1, model(width, n_heads, length)), width=width, n_heads=n_heads, length=length)
    for architecture in ("decoder", "entp"):
        shape = model(t["ablated"][0], 2, short, architecture=architecture)
        add("one_layer", params(4, shape), architecture=architecture)
    for width in t["ablated"]:
        for way in ("trained", "identity", "none"):
            shape = model(width, 2, short, n_layers=2, feed_forward=way)
            add("feed_forward", params(2, shape), width=width, way=way)
        shape = model(width, 2, short, n_layers=2, architecture="entp")
        add("entp", params(2, shape), width=width, way="entp")
    for batch, equal in itertools.product(t["batches"], ("epochs", "steps")):
        budget = {"batch_size": batch, equal: t[f"batch_{equal}"]}
        shape = model(t["widths"][-2], 1, t["lengths"][1])
        add("batch", params(2, shape, **budget), batch_size=batch, equal=equal)
    for width, sizes in t["sizes"].items():
        schedule = {**t["schedule"], "steps": t["steps"]}
        whole = dict(model=model(width, 2, short), schedule=schedule, sizes=sizes, runs=runs)
        add("largest", whole, "compact_largest_library", width=width)
    for way, epochs, shape in (
        ("attention", few["epochs"], dict(head_width=8, feed_forward="none")),
        # queries and keys alone never get there
        ("query_key", few["epochs"] // 4, dict(head_width=16, feed_forward="none", attention_weights="query_key")),
        ("whole", few["epochs"], dict(head_width=16)),
    ):
        shape = dict(symbols=32, length=8, width=16, **shape)
        schedule = dict(epochs=epochs, batch_size=16, rate=1e-2)
        whole = dict(model=shape, schedule=schedule, library=few["library"], runs=few["runs"])
        add("shatter", whole, "compact_shatter", way=way)
    return found


def table(records: Sequence[Record], part: str) -> pd.DataFrame:
    """One row per study of a part: its labels and its plain metrics. RecordError where a time limit left no record."""
    chosen = select(records, part=part)
    if not chosen:
        raise RecordError(f"no record of the part {part!r} is complete: a longer time limit, or none, leaves some")
    return flat(chosen, "study", "part", "tier")


def points(records: Sequence[Record]) -> np.ndarray:
    """The sweep for the capacity model: width, heads, length and, as in the paper, the capacity of the best run."""
    return table(records, "sweep")[["width", "n_heads", "length", "best"]].to_numpy(float)


def forms(records: Sequence[Record]) -> pd.DataFrame:
    """Both forms of the capacity model fitted to the sweep: their numbers and how well they fit."""
    found, rows = points(records), {}
    *shapes, measured = found.T
    for form in laws.FORMS:
        law = laws.fit(found, form)
        rows[form] = law._asdict() | laws.quality(measured, laws.capacity(law, *shapes, form))
    return pd.DataFrame(rows).T


def at_equal_parameters(records: Sequence[Record]) -> list[float]:
    """log2 of capacity with four heads over that with two at equal parameters, interpolated: one a length."""
    found = []
    for _, part in table(records, "sweep").groupby("length"):
        curves = [part[part["n_heads"] == h].sort_values("parameters") for h in (2, 4)]
        if any(len(c) < 2 for c in curves):
            continue
        low = max(c["parameters"].min() for c in curves)
        high = min(c["parameters"].max() for c in curves)
        if low < high:
            at = np.geomspace(low, high, 3)
            a, b = (np.interp(at, c["parameters"], c["best"]) for c in curves)
            found.append(float(np.log2(b / a).mean()))
    return found


def two_measures(records: Sequence[Record]) -> pd.DataFrame:
    """By width: MAC and MAC less chance, and the largest library recalled whole (two heads, shortest sequences)."""
    rows = table(records, "sweep")
    rows = rows[(rows["n_heads"] == 2) & (rows["length"] == rows["length"].min())]
    largest = table(records, "largest").set_index("width")["best"].rename("largest library")
    return rows.set_index("width")[["best", "above_chance"]].join(largest, how="inner")


def same_with_one_layer(records: Sequence[Record]) -> bool | None:
    """Whether a decoder and ENTP of one layer gave the same counts and losses throughout; None without both."""
    both = [r.metrics | r.curves for r in select(records, part="one_layer")]
    if len(both) < 2:
        return None
    first, second = both
    close = (np.allclose(first[name], second[name], rtol=0, atol=TOLERANCE) for name in first)
    return first.keys() == second.keys() and all(close)


def negative_binomial(records: Sequence[Record], tier: str) -> Observation:
    """Whether a negative binomial describes the epochs of attention alone, the model of the figure's 512 weights.

    All runs count, those that did not get there in time as later than the last epoch. Below a p of 0.01 it does not.
    """
    names = names_of(records, part="shatter")
    found = {r.labels["way"]: r for r in select(records, part="shatter") if r.metrics["fit"]}
    if "attention" not in found:
        return Observation("CT-negative-binomial", "uninformative", tier, "too few runs got there", records=names)
    alone, epochs = found["attention"].metrics, found["attention"].curves["epochs"]
    of_all = laws.fit_epochs(epochs, unfinished=alone["unfinished"], limit=alone["limit"])
    if of_all is None:
        return Observation("CT-negative-binomial", "uninformative", tier, "too few different epochs", records=names)
    p_value = of_all["p_value"]
    seen = (
        f"attention alone: p = {p_value:.1g}, and {alone['fit']['p_value']:.2g} without the {alone['unfinished']} of "
        f"{alone['runs']} runs that did not get there in time"
    )
    if "whole" in found:
        whole = found["whole"].metrics
        seen += f"; the whole layer: {whole['fit']['p_value']:.1g} without its {whole['unfinished']}"
    verdict = "not reproduced" if exceeds(0.01, p_value) else "same direction"
    return Observation("CT-negative-binomial", verdict, tier, "", seen, alone["runs"], names)


def measure(records: Sequence[Record]) -> list[Measurement | Check | Observation]:
    """Every claim of the section, from records of a whole tier; nothing from fewer than 24 shapes or parts alone."""
    from scipy import stats  # takes a second to import

    sweep = select(records, part="sweep")
    if len(sweep) < 24 or not PARTS <= {r.labels["part"] for r in records}:
        return []
    tier, ids, one = sweep[0].config.tier, names_of(sweep), names_of(records, part="one_layer")

    def observe(claim: str, part: str, why: str, seen: str) -> Observation:
        return Observation(claim, "inconclusive", tier, why, seen, records=names_of(records, part=part))

    fitted, found, widest = forms(records), points(records), two_measures(records).iloc[-1]
    r2 = {name: laws.quality(found[:, 3], values)["r2"] for name, values in laws.left_out(found).items()}
    left_out = f"left out of the fit: R² {r2['capacity_model']:.1f}, of the cubic {r2['cubic']:.1f}"
    largest = f"{widest['above_chance']:.0f} and {widest['largest library']:.0f} at width {widest.name}"
    # by the budget held equal, epochs or steps, capacity by batch size
    batches = table(records, "batch").pivot(index="batch_size", columns="equal", values="best").sort_index()
    rising = {equal: "rises" if batches[equal].is_monotonic_increasing else "does not rise" for equal in batches}
    budgets = " and ".join(f"{word} at equal {equal}" for equal, word in rising.items())
    # log2 of sequences per trained weight, widest model over narrowest, by length and heads
    wide = table(records, "sweep").pivot(index="width", columns=["length", "n_heads"], values="memories_per_parameter")
    economy = np.log2(wide.iloc[-1] / wide.iloc[0]).tolist()
    guesses = stats.binom(2048, 1 / 128)  # right ones, equation 7; 0.96 is printed for fewer than 25
    below = {right: bool(abs(guesses.cdf(right - 1) - 0.96) < 0.005) for right in (24, 25)}
    corrected = below[24] and math.isclose(guesses.sf(39), 2.8e-7, rel_tol=0.03)
    # the larger of two branches is nowhere below saturation, and figure 13 is
    table_2 = laws.of_table_2(1)
    reached = all(laws.saturation(table_2, n_heads) <= read for n_heads, read in laws.READ_OFF.items())
    saturated = (
        f"by table 2 at least {laws.saturation(table_2, 2):,.0f} with two heads, where figure 13 has "
        f"{laws.READ_OFF[2]:,.0f}; its minimum would do, and of ours both explain alike (R² "
        f"{fitted.loc['min', 'r2']:.3f} and {fitted.loc['max', 'r2']:.3f})"
    )
    return [
        Check("CT-chance", below[25], tier, corrected, "0.96 is P(r < 24); P(r < 25) is 0.978", records=ids),
        Check("CT-one-layer", same_with_one_layer(records), tier, records=one, remark=ONE_FUNCTION),
        Check("CT-ecm", reached, tier, records=ids, remark=saturated),
        observe("CT-cubic", "sweep", "one sweep, far from where capacity ends", left_out),
        Measurement("CT-heads", at_equal_parameters(records), tier, ids),
        Measurement("CT-economy", economy, tier, ids),
        negative_binomial(records, tier),
        observe("CT-mls", "largest", "no wide model", f"{largest}, {sweep[0].config.params['runs']} runs each"),
        observe("CT-batch", "batch", "neither separates the batch from how much is trained", budgets),
    ]


TITLE = "Capacity of compact Transformers for random sequences"
CAPACITY = Experiment(NAME, 1, TITLE, NOTEBOOK, plan, measure, tiers=TIERS)


# How much the training decides: the loss at every position, as in the paper's autoregressive task, or at the last token
# alone; heads of width 128, as in the paper, or 16. Its design stands in docs/journal/compact.md.
SCORED = ("every", "last")
TRAININGS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        library=64, symbols=8, runs=2, widths=(6, 8), heads=(1, 2), lengths=(4, 8), head_widths=(4,),
        schedule=SMOKE, ablated=(6, 8), ablated_schedule=SMOKE,
    ),
    "overnight": dict(
        library=2048, symbols=64, runs=5, widths=(16, 24), heads=(1, 2), lengths=(8, 16, 32), head_widths=(128, 16),
        schedule=SCHEDULE, ablated=(8, 16, 24), ablated_schedule={**SCHEDULE, "epochs": 300},
    ),
}  # fmt: skip


def plan_trainings(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Recall by length, and with a trained feed-forward layer and an identity, for each head width and loss."""
    t, found = TRAININGS[tier], []
    runs = seeds or t["runs"]

    def add(part: str, library: int, schedule: dict[str, Any], shape: dict[str, Any], **labels: Any) -> None:
        model = dict(symbols=t["symbols"], **shape)
        params = dict(model=model, schedule=schedule, library=library, runs=runs)
        found.append(planned_study(TRAININGS_NAME, tier, "compact_capacity", params, part=part, **labels))

    for scored, head_width in itertools.product(SCORED, t["head_widths"]):
        training = dict(scored=scored, head_width=head_width)
        for width, n_heads, length in itertools.product(t["widths"], t["heads"], t["lengths"]):
            shape = dict(width=width, n_heads=n_heads, length=length, **training)
            add("length", t["library"], t["schedule"], shape, **shape)
        for width, way in itertools.product(t["ablated"], ("trained", "identity")):
            shape = dict(width=width, n_heads=2, length=t["lengths"][0], n_layers=2, feed_forward=way, **training)
            add("feed_forward", t["library"] // 2, t["ablated_schedule"], shape, way=way, width=width, **training)
    return found


def capacities(records: Sequence[Record], part: str) -> pd.DataFrame:
    """A row for each study of a part and run: the study's labels, ``run``, and the sequences that it recalls."""
    rows = [
        {**record.labels, "run": run, "capacity": capacity}
        for record in select(records, part=part)
        for run, capacity in enumerate(record.metrics["capacity"])
    ]
    return pd.DataFrame(rows)


def slopes_by_length(table: pd.DataFrame) -> pd.Series:
    """Slope of ln capacity over ln length by run, mean over shapes."""

    def slope(part: pd.DataFrame) -> float:
        return float(np.polyfit(np.log(part["length"]), np.log(part["capacity"]), 1)[0])

    by_shape = table.groupby(["run", "width", "n_heads"])[["length", "capacity"]].apply(slope)
    return by_shape.groupby("run").mean()


def gains_of_feed_forward(table: pd.DataFrame) -> pd.DataFrame:
    """log2 of capacity with a trained feed-forward layer over that with an identity: runs by widths."""
    wide = table.pivot(index=["run", "width"], columns="way", values="capacity")
    return np.log2(wide["trained"] / wide["identity"]).unstack("width")


def measure_trainings(records: Sequence[Record]) -> list[Measurement]:
    """CT-length and CT-feed-forward in the paper's training: the loss at every position, the widest heads."""
    found, tier = [], records[0].config.tier
    widest = max(record.labels["head_width"] for record in records)
    for claim, part, values_of in (
        ("CT-length", "length", slopes_by_length),
        ("CT-feed-forward", "feed_forward", lambda table: gains_of_feed_forward(table).mean(axis=1)),
    ):
        used = select(records, part=part, scored="every", head_width=widest)
        values = values_of(capacities(used, part))
        found.append(Measurement(claim, values.tolist(), tier, names_of(used)))
    return found


TITLE = "Capacity by how the models are trained: the loss and the width of a head"
CAPACITY_TRAININGS = Experiment(TRAININGS_NAME, 1, TITLE, NOTEBOOK, plan_trainings, measure_trainings, tiers=TRAININGS)
