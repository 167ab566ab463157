"""Language modelling (§7.3, Tables 3, 7 and 8): decoder and ENTP on the same windows of text, at the same positions.

Table 8 has the learning rate fall from 6e-4 to 6e-5. The authors' configuration has the two the other way round, so
that the rate rose over the whole run behind Table 3: both schedules are run. In them twins learn from the same
positions of the same windows. A third arm is a decoder with Table 8's schedule that learns from every position, as it
can at no further cost, for as many token-forwards as ENTP spends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from entp_lib.collection.claims import Level, Measurement
from entp_lib.collection.experiment import (
    Experiment,
    PlannedRun,
    Tier,
    by_seed,
    name_of,
    planned_study,
    select,
    twins,
)
from entp_lib.collection.frames import by_position, curves, gap_table, levels, paired, paired_within
from entp_lib.collection.parameters import NotebookParameters
from entp_lib.config import ModelConfig, RunConfig, StudyConfig, TrainConfig
from entp_lib.papers.entp.language.counts import ORDERS
from entp_lib.runs.records import Record
from entp_lib.strict import require
from entp_lib.tasks import Text

TABLE_8, SWAPPED = SCHEDULES = ("Table 8", "rates swapped")
LONGER = "longer"  # a decoder with Table 8's schedule at ENTP's token-forwards
COUNTS = "counts"  # unigram, bigram and trigram of the training part, no model
# The documentation of the versions in requirements.txt: 2,873 files, 17 million characters.
EMBEDDED = dict(corpus="embedded", checksum="0cd7320f118b0da6")

# quick: five times the paper's rates, which a short run of a small model
# needs, and 8 of 32 positions. gpu: 16 of 128, so that five seeds fit into half an hour (estimated, not measured).
# paper: one run of ENTP sends 4e10 tokens through the stack, some hours on a data-centre GPU (estimated, not measured),
# and a decoder at equal compute would take 64 times the steps, so it has none; the first use downloads 24 GB and
# encodes them in an hour or more.
TIERS = {
    "smoke": Tier(
        dict(corpus="README.md", split="tail", held_out=0.1, context=16, prefixes=4),
        dict(n_layers=2, n_heads=2, width=16),
        TrainConfig(
            steps=12,
            batch_size=16,
            max_lr=3e-3,
            min_lr=3e-4,
            betas=(0.9, 0.95),
            warmup_steps=3,
            eval_every=4,
            eval_sequences=32,
            final_eval_sequences=64,
        ),
        2,
    ),
    "quick": Tier(
        dict(**EMBEDDED, context=32, prefixes=8),
        dict(n_layers=2, n_heads=4, width=64),
        TrainConfig(
            steps=500,
            batch_size=32,
            max_lr=3e-3,
            min_lr=3e-4,
            betas=(0.9, 0.95),
            warmup_steps=50,
            eval_every=25,
            eval_sequences=128,
            final_eval_sequences=1024,
        ),
        5,
    ),
    # Beyond bigrams: quick's model and windows, ten times the steps, Table 8's schedule alone.
    "overnight": Tier(
        dict(**EMBEDDED, context=32, prefixes=8),
        dict(n_layers=2, n_heads=4, width=64),
        TrainConfig(
            steps=5000,
            batch_size=32,
            max_lr=3e-3,
            min_lr=3e-4,
            betas=(0.9, 0.95),
            warmup_steps=500,
            eval_every=50,
            eval_sequences=256,
            final_eval_sequences=4096,
        ),
        5,
    ),
    "gpu": Tier(
        dict(**EMBEDDED, context=128, prefixes=16),
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(
            steps=3000,
            batch_size=32,
            max_lr=6e-4,
            min_lr=6e-5,
            betas=(0.9, 0.95),
            warmup_steps=150,
            eval_every=100,
            eval_sequences=256,
            final_eval_sequences=2048,
            precision="bf16",
        ),
        5,
    ),
    "paper": Tier(
        dict(corpus="openwebtext", tokenizer="gpt2", split="nanogpt", held_out=0.0005, context=128),
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(
            steps=150_000,  # the authors' first export; their schedule was planned for four times that
            decay_steps=600_000,
            batch_size=32,
            max_lr=6e-4,
            min_lr=6e-5,
            betas=(0.9, 0.95),
            warmup_steps=2000,
            eval_every=500,
            eval_sequences=1600,
            final_eval_sequences=4096,
            precision="bf16",
        ),
        2,
    ),
}
COUNTED = ("smoke", "quick", "overnight")  # texts of bytes, whose trigrams fit into a table
LOWEST, LAST = "lowest validation loss", "last validation loss"
NEAR = 0.1  # nats: closer to the unigram loss counts as having learned nothing
# Comparisons of Table 3: a column of ``minima``, the schedule, and the arm that ENTP is compared with.
COMPARISONS = {
    "as published: rates swapped, lowest": (LOWEST, SWAPPED, "decoder"),
    "rates swapped, last": (LAST, SWAPPED, "decoder"),
    "Table 8, lowest": (LOWEST, TABLE_8, "decoder"),
    "Table 8, last": (LAST, TABLE_8, "decoder"),
    "equal compute, last": (LAST, TABLE_8, LONGER),
}
CLAIMS = {
    "T3-loss": "as published: rates swapped, lowest",
    "T3-last": "Table 8, last",
    "T3-fair": "equal compute, last",
}


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """What notebook 09 accepts; ``smoothed``: evaluations in the mean whose minimum is taken."""

    smoothed: int = 1

    def __post_init__(self):
        super().__post_init__()
        require(self.smoothed >= 1, f"smoothed = {self.smoothed}: must be at least 1 (no smoothing)")


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Both architectures under both schedules, and the decoder at equal compute where ENTP learns from few prefixes.

    Labels: ``schedule`` and ``arm``.
    """
    if tier not in TIERS:
        return []
    setting = TIERS[tier]
    task = Text(**setting.task)
    model = ModelConfig("decoder", vocab_size=task.vocab_size, max_length=task.length, **setting.model)
    base = RunConfig("openwebtext", tier, "text", setting.task, model, setting.train)
    swapped = replace(base, train=replace(base.train, max_lr=base.train.min_lr, min_lr=base.train.max_lr))
    seeds = seeds or setting.seeds
    runs = []
    schedules = {TABLE_8: base} if tier == "overnight" else {TABLE_8: base, SWAPPED: swapped}
    for schedule, config in schedules.items():
        runs += twins(config, ("decoder", "entp"), seeds, schedule=schedule)
    if task.prefixes:
        every = {**setting.task, "prefixes": 0}
        longer = replace(base, task_params=every, train=base.train.lengthened(entp_ratio(task)))
        runs += twins(longer, ("decoder",), seeds, schedule=TABLE_8, arm=LONGER)
    if tier in COUNTED:
        for seed in range(seeds):
            params = dict(task=setting.task, sequences=setting.train.final_eval_sequences, seed=seed)
            config = StudyConfig("openwebtext", tier, "text_counts", params, seed, seed)
            runs.append(planned_study(config, arm=COUNTS, schedule=""))
    return by_seed(runs) if tier == "overnight" else runs


def trained(records: Sequence[Record]) -> list[Record]:
    """The records of models, without those of counts."""
    return [r for r in records if isinstance(r.config, RunConfig)]


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


def entp_ratio(task: Text) -> float:
    """Token-forwards of an ENTP step over those of a decoder's, on average over the positions that are drawn."""
    return (task.prefixes or task.context) * (task.context + 1) / 2 / task.context


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


FROM_POSITION = 8  # shorter prefixes leave the models little to differ in; at length 1 they are one function
RANGES = {False: "shorter prefixes", True: "longer prefixes"}


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
        for budget, decoder in (("equal steps", "decoder"), ("equal compute", LONGER)):
            values = paired(losses, "loss", decoder, "entp")
            if not len(values):
                continue
            row = {"decoder": means[decoder], "ENTP": means["entp"]}
            row |= gap_table({0: values}).loc[0].rename({"mean": "decoder − ENTP"}).to_dict()
            row |= {k: counts[f"{k}, {name}"].mean() for k in ("bigram", "trigram") if len(counts)}
            rows[f"{within[0]} to {within[-1]}", budget] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["prefix lengths", "budget"])


def gap_by_position(records: Sequence[Record], decoder: str) -> pd.DataFrame:
    """A decoder's arm − ENTP, Table 8, in final validation loss by prefix length: mean and paired interval."""
    found = paired_within(loss_by_position(select(records, schedule=TABLE_8)), "loss", decoder, "entp", "position")
    return gap_table({position: values.dropna() for position, values in found.items()}).rename_axis("position")


def samples(records: Sequence[Record]) -> list[tuple[str, str, str]]:
    """What the first seed's models wrote: run, prompt and continuation, prompt by prompt."""
    first = [r for r in records if r.config.model_seed == records[0].config.model_seed]
    names = {r.id: f"{r.labels['arm']}, {r.labels['schedule']}" for r in first}
    found = [
        (i, names[r.id], s["prompt"], s["continuation"]) for r in first for i, s in enumerate(r.metrics["samples"])
    ]
    return [row[1:] for row in sorted(found, key=lambda row: row[0])]


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Table 3 as published, with Table 8's schedule and the last weights, and with these at equal compute.

    At long prefixes both arms must be below the bigram's loss, where there are counts, to inform.
    """
    models = trained(records)
    if not models:
        return []
    tier, differences, table = models[0].config.tier, gaps(models), minima(models)
    found = []
    for claim, name in CLAIMS.items():
        _, schedule, decoder = COMPARISONS[name]
        ids = tuple(name_of(r) for r in select(models, schedule=schedule, arm=(decoder, "entp")))
        if len(differences[name]):
            column = COMPARISONS[name][0]
            rows = table[table["schedule"] == schedule]
            floor = rows["unigram loss"].mean()
            stand = levels(rows, column, (decoder, "entp"), floor=floor, ceiling=0.0, distance=NEAR)
            values = differences[name].tolist()
            found.append(Measurement(claim, values, tier, ids, tier == "paper", stand))
    losses, counts = prefix_losses(models), counted_losses(records)
    for claim, decoder in (("T3-long", "decoder"), ("T3-long-fair", LONGER)):
        values = paired(losses, "loss", decoder, "entp").tolist()
        if values:
            ids = tuple(name_of(r) for r in select(models, schedule=TABLE_8, arm=(decoder, "entp")))
            stand = below_bigrams(losses, counts, (decoder, "entp"))
            found.append(Measurement(claim, values, tier, ids, levels=stand))
    return found


def below_bigrams(losses: pd.DataFrame, counts: pd.DataFrame, arms: Sequence[str]) -> tuple[Level, ...]:
    """The arms of a comparison above the bigram's loss at long prefixes, if any, as levels at the floor; else all."""
    if counts.empty:
        return ()
    floor = counts["bigram, longer prefixes"].mean()
    stand = levels(losses, "loss", arms, floor=floor, ceiling=0.0, distance=0.0)
    return tuple(level for level in stand if level.at_floor) or stand


OPENWEBTEXT = Experiment(
    name="openwebtext",
    version=1,
    title="Language modelling on text",
    notebook="09_openwebtext",
    plan=plan,
    measure=measure,
)
