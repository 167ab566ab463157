"""Tables of language modelling: losses by arm, schedule and prefix length, beside counted n-grams."""

import math
from collections.abc import Sequence

import pandas as pd

from entp_lib.config import RunConfig
from entp_lib.experiments.budgets import EQUAL_FORWARDS
from entp_lib.experiments.frames import by_position, curves, gap_table, paired, select
from entp_lib.records.store import Record
from entp_lib.statistics import reaches, to_figures
from entp_lib.tasks import Text
from entp_papers.entp.language.counts import ORDERS

TABLE_8, SWAPPED = SCHEDULES = ("Table 8", "rates swapped")
COUNTS = "counts"  # unigram, bigram and trigram of the training part, no model
LOWEST, LAST = "lowest validation loss", "last validation loss"
LOWEST_TRAINING = "lowest training loss"
# Comparisons of Table 3: a column of ``minima``, the schedule, and the arm that ENTP is compared with.
COMPARISONS = {
    "as published: rates swapped, lowest": (LOWEST, SWAPPED, "decoder"),
    "as published, in training": (LOWEST_TRAINING, SWAPPED, "decoder"),
    "rates swapped, last": (LAST, SWAPPED, "decoder"),
    "Table 8, lowest": (LOWEST, TABLE_8, "decoder"),
    "Table 8, last": (LAST, TABLE_8, "decoder"),
    "equal token-forwards, last": (LAST, TABLE_8, EQUAL_FORWARDS),
}
CLAIMS = {
    "T3-loss": "as published: rates swapped, lowest",
    "T3-train": "as published, in training",
    "T3-last": "Table 8, last",
}
FROM_POSITION = 8  # shorter prefixes leave the models little to differ in; at length 1 they are one function
RANGES = {False: "shorter prefixes", True: "longer prefixes"}


def trained(records: Sequence[Record]) -> list[Record]:
    """The records of models, without those of counts."""
    return [r for r in records if isinstance(r.config, RunConfig)]


def trained_positions(records: Sequence[Record]) -> str:
    """Remark on the positions of a window that decoder and ENTP learn from; empty where both learn from all."""
    tasks = {r.config.model.architecture: Text(**r.config.task_params) for r in records}
    drawn = {name: task.prefixes or task.context for name, task in tasks.items()}
    if len(drawn) < 2 or all(drawn[name] == task.context for name, task in tasks.items()):
        return ""
    entp = f"{drawn['entp']} of {tasks['entp'].context} positions"
    if drawn["decoder"] == drawn["entp"]:
        return f"both trained on {entp}"
    return f"ENTP trained on {entp}, the decoder on {drawn['decoder']}"


def counted_losses(records: Sequence[Record]) -> pd.DataFrame:
    """Loss of unigram, bigram and trigram, one column each, over all prefix lengths, and over shorter and longer ones.

    A row per seed; longer ones are those from ``FROM_POSITION`` tokens on, each length counting alike.
    """
    rows = []
    for r in select(records, arm=COUNTS):
        row = {"seed": r.labels["seed"]}
        for name in ORDERS:
            found = pd.DataFrame({k: r.metrics[name][k] for k in ("position", "loss_by_position")})
            means = found.groupby(found["position"] >= FROM_POSITION)["loss_by_position"].mean()
            row |= {name: r.metrics[name]["loss"]}
            row |= {f"{name}, {RANGES[late]}": means.get(late, math.nan) for late in RANGES}
        rows.append(row)
    return pd.DataFrame(rows)


def minima(records: Sequence[Record], smoothed: int = 1) -> pd.DataFrame:
    """One row per run: lowest and last losses in training and validation, in nats a token, and their perplexities.

    The lowest of many noisy losses is biased downwards; ``smoothed`` takes it of rolling means over so many
    evaluations. The authors' tables match 50. The last validation loss is that of more windows, the same for every arm.
    """
    rows = []
    for r in records:
        row = dict(r.labels)
        for name, key in (("training", "train_loss"), ("validation", "loss")):
            curve = pd.Series(r.curves[key])
            row[f"lowest {name} loss"] = curve.rolling(min(smoothed, len(curve))).mean().min()
            row[f"last {name} loss"] = curve.iloc[-1] if name == "training" else r.metrics["loss"]
        row |= {k.replace("loss", "perplexity"): math.exp(v) for k, v in row.items() if k.endswith(" loss")}
        rows.append(row | {"unigram loss": r.metrics["baseline"]["loss"]})
    return pd.DataFrame(rows)


def unit(records: Sequence[Record]) -> str:
    """The unit of their losses: nats for each of what their tokenizer makes of a text."""
    names = {Text(**r.config.task_params).tokenizer for r in records}
    made = {"bytes": "byte", "characters": "character"}
    return "nats per " + "/".join(sorted({made.get(name, "token") for name in names}))


def courses(records: Sequence[Record]) -> pd.DataFrame:
    """``curves`` with tokens of text seen (each step's windows) and perplexity."""
    course, train = curves(records), records[0].config.train
    tokens = course["step"] * train.batch_size * records[0].config.task_params["context"]
    return course.assign(tokens=tokens, perplexity=course["loss"].map(math.exp))


def loss_by_position(records: Sequence[Record]) -> pd.DataFrame:
    """Final validation loss by prefix length, long: a row for each run and position."""
    return by_position(records, {"loss": "loss_by_position"})


def gaps(records: Sequence[Record], smoothed: int = 1) -> dict[str, pd.Series]:
    """Decoder − ENTP in nats, by seed, for each of ``COMPARISONS``."""
    table = minima(records, smoothed)
    return {
        name: paired(table[table["schedule"] == schedule], column, decoder, "entp")
        for name, (column, schedule, decoder) in COMPARISONS.items()
    }


def prefix_losses(records: Sequence[Record], longer: bool = True) -> pd.DataFrame:
    """Final validation loss by run, mean over prefix lengths from ``FROM_POSITION`` on, or below; each counts alike."""
    found = loss_by_position(select(records, schedule=TABLE_8))
    found = found[(found["position"] >= FROM_POSITION) == longer]
    return found.groupby(["arm", "seed"], sort=False, as_index=False)["loss"].mean()


def losses_by_range(records: Sequence[Record]) -> pd.DataFrame:
    """Table 8's schedule at shorter and at longer prefixes: a row for each range and arm that ENTP is compared with.

    Mean final loss of that decoder's arm and of ENTP, decoder − ENTP with its paired 95 % interval, and what bigrams
    and trigrams have there, if they were counted. ``records``: with those of counts.
    """
    models, counts, rows = trained(records), counted_losses(records), {}
    lengths = sorted(set(loss_by_position(select(models, schedule=TABLE_8))["position"]))
    for longer, name in RANGES.items():
        within = [n for n in lengths if (n >= FROM_POSITION) == longer]
        losses = prefix_losses(models, longer)
        means = losses.groupby("arm")["loss"].mean()
        for budget, decoder in (("equal steps", "decoder"), ("equal token-forwards", EQUAL_FORWARDS)):
            values = paired(losses, "loss", decoder, "entp")
            if not len(values):
                continue
            row = {"decoder": means[decoder], "ENTP": means["entp"]}
            row |= gap_table({0: values}).loc[0].rename({"mean": "decoder − ENTP"}).to_dict()
            row |= {k: counts[f"{k}, {name}"].mean() for k in ("bigram", "trigram") if len(counts)}
            rows[f"{within[0]} to {within[-1]}", budget] = row
    return (
        pd.DataFrame.from_dict(rows, orient="index")
        .rename_axis(["prefix lengths", "budget"])
        .map(to_figures, decimals=4)
    )


def samples(records: Sequence[Record]) -> list[tuple[str, str, str]]:
    """Texts that the first seed's models wrote: run, prompt and continuation, prompt by prompt."""
    first = [r for r in records if r.config.model_seed == records[0].config.model_seed]
    names = {r.id: f"{r.labels['arm']}, {r.labels['schedule']}" for r in first}
    found = [
        (i, names[r.id], s["prompt"], s["continuation"]) for r in first for i, s in enumerate(r.metrics["samples"])
    ]
    return [row[1:] for row in sorted(found, key=lambda row: row[0])]


def above_bigrams(
    losses: pd.DataFrame, counts: pd.DataFrame, arms: Sequence[str], column: str = "bigram, longer prefixes"
) -> str:
    """Which arms are above the bigram's loss (``column`` of ``counts``), as a bar; empty if none, or without counts."""
    if counts.empty:
        return ""
    means = losses[losses["arm"].isin(arms)].groupby("arm")["loss"].mean()
    above = means.index[reaches(means, counts[column].mean())]
    return f"above the bigram's loss: {', '.join(above)}" if len(above) else ""
