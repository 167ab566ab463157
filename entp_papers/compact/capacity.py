"""Capacity for random sequences (§3.1): the runs of every tier, their tables and claims."""

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.configs import Json
from entp_lab.experiment import Closed, Experiment, PlannedRun, PlannedRuns, planned_study
from entp_lab.frames import select
from entp_lab.measurements import (
    Check,
    Findings,
    Measurement,
    Observation,
    checked,
    measured,
    observed,
)
from entp_lab.statistics import TOLERANCE, exceeds
from entp_lab.store import RecordError, Records
from entp_lab.studies import flat
from entp_papers.compact import laws

NAME = "compact_capacity"
NOTEBOOK = "12b_compact_details"
PARTS = {"sweep", "one_layer", "feed_forward", "entp", "batch", "largest", "shatter"}
SHAPES_TO_FIT = 24  # a cubic polynomial in three variables has 20 terms


def growing_sizes(starts: dict[int, int], count: int) -> dict[int, list[int]]:
    """Return, by width, library sizes that grow by a quarter each."""
    return {
        width: [int(start * 1.25**power) for power in range(count)]
        for width, start in starts.items()
    }


# By tier: the library, its symbols and runs; the parameters that are swept; their schedule.
TIERS = {
    "smoke": dict(
        library=64,
        symbols=8,
        runs=1,
        widths=(4, 6, 8, 12),
        heads=(1, 2),
        lengths=(4, 6, 8),
        head_width=4,
        schedule=dict(epochs=4, batch_size=32, rate=1e-2, count_every=2),
        ablated=(8,),
        sizes={8: [4, 8, 64, 72]},
        steps=60,
        batches=(16, 64),
        batch_epochs=2,
        batch_steps=6,
        shatter=dict(library=6, runs=60, epochs=80),
    ),
    "quick": dict(
        library=2048,
        symbols=64,
        runs=2,
        widths=(8, 12, 16, 24),
        heads=(1, 2, 4),
        lengths=(8, 16, 32),
        head_width=16,
        schedule=dict(epochs=100, batch_size=256, rate=1e-2, count_every=10),
        ablated=(8, 12, 16, 20, 24),
        steps=1500,
        sizes=growing_sizes({8: 10, 16: 60, 24: 180}, 12),
        batches=(16, 64, 256, 1024),
        batch_epochs=30,
        batch_steps=300,
        shatter=dict(library=16, runs=200, epochs=800),
    ),
    "paper": dict(
        library=16_000,
        symbols=128,
        runs=5,
        widths=(32, 64, 128, 256, 512),
        heads=(1, 2, 4, 8),
        lengths=(8, 16, 32, 64, 128),
        head_width=128,
        schedule=dict(epochs=1000, batch_size=512, rate=1e-3, count_every=5, patience=5),
        ablated=(32, 128, 512),
        steps=20_000,
        sizes=growing_sizes(dict.fromkeys((32, 128, 512), 100), 24),
        batches=(32, 128, 512, 2048),
        batch_epochs=500,
        batch_steps=10_000,
        shatter=dict(library=16, runs=1000, epochs=5000),
    ),
}
# Figure 8, by kind of model: the divisor of the epochs, and the shape.
SHATTERED = {
    "attention": (1, dict(head_width=8, feed_forward="none")),
    # trained queries and keys alone never recall the whole library
    "query_key": (4, dict(head_width=16, feed_forward="none", attention_weights="query_key")),
    "whole": (1, dict(head_width=16)),
}


def plan(tier: str, seeds: int = 0) -> PlannedRuns:
    """Plan all studies of a tier; ``seeds`` sets the runs per study, except for figure 8."""
    setting = TIERS[tier]
    runs = seeds or setting["runs"]
    schedule = setting["schedule"]
    model = partial(dict, symbols=setting["symbols"], head_width=setting["head_width"])
    short = partial(model, n_heads=2, length=setting["lengths"][0])

    def capacity(
        part: str, model: Json, divisor: int, schedule: Json = schedule, **labels: Any
    ) -> PlannedRun:
        library = setting["library"] // divisor
        params = dict(model=model, schedule=schedule, library=library, runs=runs)
        return planned_study(NAME, tier, NAME, params, part=part, **labels)

    for width, n_heads, length in itertools.product(
        setting["widths"], setting["heads"], setting["lengths"]
    ):
        shape = dict(width=width, n_heads=n_heads, length=length)
        yield capacity("sweep", model(**shape), 1, **shape)
    for architecture in ("decoder", "entp"):
        shape = short(width=setting["ablated"][0], architecture=architecture)
        yield capacity("one_layer", shape, 4, architecture=architecture)
    for width in setting["ablated"]:
        for way in ("trained", "identity", "none"):
            shape = short(width=width, n_layers=2, feed_forward=way)
            yield capacity("feed_forward", shape, 2, width=width, way=way)
        shape = short(width=width, n_layers=2, architecture="entp")
        yield capacity("entp", shape, 2, width=width, way="entp")
    for batch, equal in itertools.product(setting["batches"], ("epochs", "steps")):
        shape = model(width=setting["widths"][-2], n_heads=1, length=setting["lengths"][1])
        budget = schedule | {"batch_size": batch, equal: setting[f"batch_{equal}"]}
        yield capacity("batch", shape, 2, budget, batch_size=batch, equal=equal)
    for width, sizes in setting["sizes"].items():
        params = dict(
            model=short(width=width),
            schedule=schedule | dict(steps=setting["steps"]),
            sizes=sizes,
            runs=runs,
        )
        study = "compact_largest_library"
        yield planned_study(NAME, tier, study, params, part="largest", width=width)
    shatter = setting["shatter"]
    for way, (divisor, changes) in SHATTERED.items():
        params = dict(
            model=dict(symbols=32, length=8, width=16, **changes),
            schedule=dict(epochs=shatter["epochs"] // divisor, batch_size=16, rate=1e-2),
            library=shatter["library"],
            runs=shatter["runs"],
        )
        yield planned_study(NAME, tier, "compact_shatter", params, part="shatter", way=way)


def table(records: Records, part: str) -> pd.DataFrame:
    """Return a row per study of a part: its labels and plain metrics.

    RecordError if a time limit left no record.
    """
    chosen = select(records, part=part)
    if not chosen:
        raise RecordError(
            f"no record of the part {part!r} is complete: a longer time limit, or none, leaves some"
        )
    return flat(chosen, "study", "part", "tier")


def points(records: Records) -> np.ndarray:
    """Return the sweep for the capacity model: width, heads, length, best run's capacity."""
    return table(records, "sweep")[["width", "n_heads", "length", "best"]].to_numpy(float)


def forms(records: Records) -> pd.DataFrame:
    """Fit both forms of the capacity model to the sweep; return their parameters and fits."""
    measured = points(records)
    rows = {}
    for form in laws.FORMS:
        law = laws.fit(measured, form)
        predicted = laws.capacity(law, *measured[:, :3].T, form)
        rows[form] = law._asdict() | laws.quality(measured[:, 3], predicted)
    return pd.DataFrame(rows).T


def two_measures(records: Records) -> pd.DataFrame:
    """Return by width (two heads) capacity, capacity less chance, and largest recalled library."""
    rows = table(records, "sweep").query("n_heads == 2 and length == length.min()")
    largest = table(records, "largest").set_index("width")["best"].rename("largest library")
    return rows.set_index("width")[["best", "above_chance"]].join(largest, how="inner")


def same_with_one_layer(records: Records) -> bool | None:
    """Compare all counts and losses of a decoder and ENTP of one layer; None without both."""
    both = [record.metrics | record.curves for record in select(records, part="one_layer")]
    if len(both) < 2:
        return None
    first, second = both
    return all(np.allclose(first[name], second[name], rtol=0, atol=TOLERANCE) for name in first)


# --- The claims -----------------------------------------------------------------------------------


def chance(sweep: Records) -> Check:
    """Check the printed probabilities of right guesses, a binomial distribution (equation 7)."""
    from scipy.special import bdtr, bdtrc

    draws, share = 2048, 1 / 128
    as_printed = abs(bdtr(24, draws, share) - 0.96) < 0.005
    one_fewer = abs(bdtr(23, draws, share) - 0.96) < 0.005
    many = math.isclose(bdtrc(39, draws, share), 2.8e-7, rel_tol=0.03)
    return checked(
        "CT-chance",
        bool(as_printed),
        sweep,
        corrected=bool(one_fewer and many),
        correction="0.96 is P(r < 24); P(r < 25) is 0.978",
    )


def one_layer(records: Records) -> Check:
    """Check that one layer of a decoder and of ENTP recall the same."""
    return checked(
        "CT-one-layer",
        same_with_one_layer(records),
        select(records, part="one_layer"),
        remark="one function by construction: at the last token neither mask hides anything",
    )


def printed_law(sweep: Records) -> Check:
    """Check the printed maximum of two branches, by which no capacity is below the saturation.

    The capacities that figure 13 shows are below it.
    """
    law = laws.of_table_2(1)
    above = [laws.saturation(law, n_heads) <= read for n_heads, read in laws.READ_OFF.items()]
    r2 = forms(sweep)["r2"]
    remark = (
        f"by table 2 at least {laws.saturation(law, 2):,.0f} with two heads, where figure 13 has "
        f"{laws.READ_OFF[2]:,.0f}; its minimum would do, and of ours both explain alike "
        f"(R² {r2['min']:.3f} and {r2['max']:.3f})"
    )
    return checked("CT-ecm", all(above), sweep, remark=remark)


def law_or_cubic(sweep: Records) -> Observation:
    """Compare the capacity model with a cubic polynomial on points left out of the fit."""
    measured = points(sweep)
    predicted = laws.left_out(measured)
    r2 = {name: laws.quality(measured[:, 3], values)["r2"] for name, values in predicted.items()}
    seen = f"left out of the fit: R² {r2['capacity_model']:.1f}, of the cubic {r2['cubic']:.1f}"
    return observed(
        "CT-cubic", "inconclusive", sweep, "one sweep, far from where capacity ends", seen
    )


def heads(sweep: Records) -> Measurement:
    """Measure log2 of the capacity ratio of four heads to two, by run: a mean over lengths.

    Capacities are interpolated to equal parameters.
    """

    def ratio(part: pd.DataFrame) -> float:
        curves = [
            part[part["n_heads"] == count].set_index("parameters")["capacity"].sort_index()
            for count in (2, 4)
        ]
        # NaN, which is not below anything, where a tier lacks four heads
        low = np.max([curve.index.min() for curve in curves])
        high = np.min([curve.index.max() for curve in curves])
        if not low < high:
            return np.nan
        at = np.geomspace(low, high, 3)
        of_two, of_four = (np.interp(at, curve.index, curve) for curve in curves)
        return np.log2(of_four / of_two).mean()

    columns = ["n_heads", "parameters", "capacity"]
    ratios = capacities(sweep, "sweep").groupby(["run", "length"])[columns].apply(ratio)
    return measured("CT-heads", ratios.groupby("run").mean().dropna(), sweep)


def economy(sweep: Records) -> Measurement:
    """Measure log2 of the widest model's sequences per trained weight over the narrowest's.

    There is a value for each run, a mean over lengths and numbers of heads.
    """
    rows = capacities(sweep, "sweep")
    rows["economy"] = np.log2(rows["capacity"] / rows["parameters"])
    wide = rows.pivot(index=["run", "length", "n_heads"], columns="width", values="economy")
    gains = wide.iloc[:, -1] - wide.iloc[:, 0]
    return measured("CT-economy", gains.groupby("run").mean(), sweep)


def negative_binomial(records: Records) -> Observation:
    """Test whether a negative binomial describes the epochs of attention alone (512 weights).

    All runs count; those that did not recall the library in time count as later than the last
    epoch. The fit is rejected if p is below 0.01.
    """
    shattered = select(records, part="shatter")
    found = {record.labels["way"]: record for record in shattered if record.metrics["fit"]}
    of_all = None
    if "attention" in found:
        alone = found["attention"].metrics
        epochs = found["attention"].curves["epochs"]
        of_all = laws.fit_epochs(epochs, alone["unfinished"], alone["limit"])
    if of_all is None:
        return observed(
            "CT-negative-binomial", "uninformative", shattered, "too few runs got there"
        )
    seen = (
        f"attention alone: p = {of_all['p_value']:.1g}, and {alone['fit']['p_value']:.2g} without "
        f"the {alone['unfinished']} of {alone['runs']} runs that did not get there in time"
    )
    if "whole" in found:
        whole = found["whole"].metrics
        seen += (
            f"; the whole layer: {whole['fit']['p_value']:.1g} without its {whole['unfinished']}"
        )
    verdict = "not reproduced" if exceeds(0.01, of_all["p_value"]) else "same direction"
    return observed("CT-negative-binomial", verdict, shattered, seen=seen, runs=alone["runs"])


def largest_library(records: Records) -> Observation:
    """Compare the two measures of capacity at the widest model."""
    widest = two_measures(records).iloc[-1]
    largest = select(records, part="largest")
    runs = largest[0].config.params["runs"]
    counts = f"{widest['above_chance']:.0f} and {widest['largest library']:.0f}"
    seen = f"{counts} at width {widest.name}, {runs} runs each"
    return observed("CT-mls", "inconclusive", largest, "no wide model", seen)


def batches(records: Records) -> Observation:
    """Ask whether capacity rises with the batch size, at equal epochs and at equal steps."""
    seen = []
    for equal, part in table(records, "batch").sort_values("batch_size").groupby("equal"):
        verb = "rises" if part["best"].is_monotonic_increasing else "does not rise"
        seen.append(f"{verb} at equal {equal}")
    why = "neither separates the batch from how much is trained"
    batch = select(records, part="batch")
    return observed("CT-batch", "inconclusive", batch, why, " and ".join(seen))


def measure(records: Records) -> Findings:
    """Measure every claim of the section; nothing if some parts or too many shapes are missing."""
    sweep = select(records, part="sweep")
    if len(sweep) < SHAPES_TO_FIT or not PARTS <= {record.labels["part"] for record in records}:
        return []
    of_sweep = [claim(sweep) for claim in (chance, printed_law, law_or_cubic, heads, economy)]
    others = [claim(records) for claim in (one_layer, negative_binomial, largest_library, batches)]
    return of_sweep + others


CAPACITY = Experiment(
    NAME,
    1,
    "Capacity of compact Transformers for random sequences",
    NOTEBOOK,
    plan,
    measure,
    tiers=TIERS,
)


# --- How capacity depends on the training ---------------------------------------------------------

# The loss is at every position, as in the paper's autoregressive task, or at the last token only;
# heads have width 128, as in the paper, or 16. The design is in docs/journal/compact.md.


def capacities(records: Records, part: str) -> pd.DataFrame:
    """Return a row per study of a part and run: labels, ``run``, and the sequences recalled."""
    rows = [
        {
            **record.labels,
            "run": run,
            "capacity": capacity,
            "parameters": record.metrics["parameters"],
        }
        for record in select(records, part=part)
        for run, capacity in enumerate(record.metrics["capacity"])
    ]
    return pd.DataFrame(rows)


def measure_trainings(records: Records) -> Findings:
    """Measure both claims in the paper's training: the loss at every position, the widest heads.

    By run: the slope over lengths, a mean over shapes, and log2 of the capacity with a trained
    feed-forward layer over that with an identity, a mean over widths.
    """
    widest = max(record.labels["head_width"] for record in records)
    paper = select(records, scored="every", head_width=widest)
    if lengths := select(paper, part="length"):
        by_shape = capacities(lengths, "length").groupby(["run", "width", "n_heads"])
        slopes = by_shape[["length", "capacity"]].apply(
            lambda part: np.polyfit(np.log(part["length"]), np.log(part["capacity"]), 1)[0]
        )
        yield measured("CT-length", slopes.groupby("run").mean(), lengths)
    if ablated := select(paper, part="feed_forward"):
        rows = capacities(ablated, "feed_forward")
        wide = rows.pivot(index=["run", "width"], columns="way", values="capacity")
        gains = np.log2(wide["trained"] / wide["identity"]).unstack("width")
        yield measured("CT-feed-forward", gains.mean(axis=1), ablated)


CAPACITY_TRAININGS = Experiment(
    "compact_capacity_trainings",
    1,
    "Capacity by how the models are trained: the loss and the width of a head",
    NOTEBOOK,
    Closed("compact_capacity_trainings"),
    measure_trainings,
)
