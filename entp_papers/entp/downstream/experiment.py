"""Downstream of language modelling (§7.3, Table 4): CLUTRR after fine-tuning, pronouns without any.

Both start from finished runs on text, Table 8's schedule, one of each architecture and seed, which
is also theirs. Unlike the authors' fine-tuning, this one starts with a fresh optimiser. The two
protocols differ in the training rows; each record has the numbers of both: the best evaluation on
the validation set, as the authors report it, and the test set at a checkpoint that the validation
set chose.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from entp_lab.configs import RunConfig, config_id
from entp_lab.experiment import Experiment
from entp_lab.frames import paired, published, select
from entp_lab.measurements import Comparisons, Paired
from entp_lab.parameters import NotebookParameters
from entp_lab.plans import TWINS, PlannedRun, planned, planned_study
from entp_lab.statistics import mean_interval
from entp_lab.store import Record, Store
from entp_lib.config import TrainConfig
from entp_papers.entp.downstream.clutrr import Clutrr
from entp_papers.entp.language.experiment import OPENWEBTEXT
from entp_papers.entp.language.tables import TABLE_8

PROTOCOLS = {"authors": "authors' protocol", "fair": "fair protocol"}
NEAR = 0.02  # of error: closer to that of the most frequent answer counts as having learned nothing
NEAR_CHANCE = 0.05  # of error on pronouns, which have two answers and few items
FAIR_RULE = "highest_accuracy"
# The columns of ``errors`` that the authors report, and that should be reported.
PUBLISHED, FAIR = "best of evaluations", "test, chosen on validation"

# By tier: parameters of the CLUTRR task and the schedule; the models are those of the runs on text.
# smoke and quick: brief stories, of two relations in training. A small model of bytes learns to
# answer them in 400 to 800 small batches; full ones, twice as long, it did not in a minute. paper:
# the authors' settings, every evaluation on the whole validation set.
BATCHES = dict(betas=(0.9, 0.95), warmup_steps=50, eval_every=50)
BRIEF = dict(max_lr=3e-3, min_lr=3e-4, **BATCHES, eval_sequences=240, final_eval_sequences=960)
GPU = dict(
    max_lr=1e-4,
    min_lr=1e-5,
    **BATCHES,
    eval_sequences=2000,
    final_eval_sequences=2000,
    precision="bf16",
)
PAPER = dict(
    max_lr=1e-5,
    min_lr=1e-6,
    **BATCHES,
    eval_sequences=3019,
    final_eval_sequences=3019,
    precision="bf16",
)
SMOKE = TrainConfig(6, 8, warmup_steps=2, eval_every=3, eval_sequences=32, final_eval_sequences=64)
BRIEF_STORIES, STORIES = (
    dict(longest_train=2, brief=True),
    dict(n_train=10_000, longest_train=4, longest_test=10),
)
TIERS: dict[str, tuple[dict[str, Any], TrainConfig]] = {
    "smoke": (dict(n_train=40, longest_test=3, max_tokens=128, **BRIEF_STORIES), SMOKE),
    "quick": (
        dict(n_train=10_000, longest_test=4, max_tokens=160, **BRIEF_STORIES),
        TrainConfig(800, 16, **BRIEF),
    ),
    "gpu": (dict(**STORIES, max_tokens=512), TrainConfig(5000, 64, **GPU)),
    "paper": (dict(source="hub", **STORIES, max_tokens=128), TrainConfig(10_000, 64, **PAPER)),
}


def language_models(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the runs on text that a tier starts from."""
    return select(OPENWEBTEXT.plan(tier, seeds), schedule=TABLE_8, arm=TWINS)


def record_name(config: RunConfig) -> str:
    """Name of the record of a run on text in other configurations."""
    return f"{config.experiment}/{config_id(config, OPENWEBTEXT.version)}"


def fine_tuning(pretraining: RunConfig, protocol: str) -> RunConfig:
    """Fine-tuning on CLUTRR from weights of a run on text; answers and positions beyond its own
    start fresh.
    """
    tier, seeds = pretraining.tier, (pretraining.model_seed, pretraining.data_seed)
    params, train = TIERS[tier]
    params = {**params, "protocol": protocol, "text": pretraining.task_params}
    if protocol == "fair":
        params["subset_seed"] = pretraining.model_seed
    task = Clutrr(**params)
    length = max(pretraining.model.max_length, task.length)
    model, start = (
        replace(pretraining.model, vocab_size=task.vocab_size, max_length=length),
        record_name(pretraining),
    )
    return RunConfig("downstream", tier, "clutrr", params, model, train, *seeds, start_from=start)


def plan_clutrr(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Both protocols after each run on text."""
    models = language_models(tier, seeds)
    return [planned(fine_tuning(run.config, p), protocol=p) for p in PROTOCOLS for run in models]


def plan_pronouns(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the pronouns by each run on text."""
    found = []
    for run in language_models(tier, seeds):
        params = {
            "weights": record_name(run.config),
            "source": "hub" if tier == "paper" else "embedded",
        }
        found.append(
            planned_study(
                "pronouns", tier, "pronouns", params, run.labels["seed"], arm=run.labels["arm"]
            )
        )
    return found


def train_missing(parameters: NotebookParameters, store: Store | None = None) -> None:
    """Train the language models that missing records start from, where their weights are not there.

    Records are kept in git and weights are not: where all records are whole, nothing happens, and
    where the record of a language model has lost its weights, both are made again, if a missing
    record starts from it.
    """
    for experiment in (DOWNSTREAM, PRONOUNS):
        where, runs = experiment.runs_for(parameters, store)
        if where.read_only:
            continue
        tier = runs[0].config.tier
        missing = [
            run.config for run in runs if parameters.fresh or not experiment.found(where, [run])
        ]
        names = {c.start_from if isinstance(c, RunConfig) else c.params["weights"] for c in missing}
        texts, _ = OPENWEBTEXT.runs_for(replace(parameters, tier=tier), store)
        places = [place for place in (texts, texts.committed) if place]
        lost: dict[bool, list[PlannedRun]] = {False: [], True: []}
        for run in language_models(tier, parameters.seeds):
            name = record_name(run.config)
            if name in names and not any(
                place.weights_path(*name.split("/")).exists() for place in places
            ):
                lost[bool(OPENWEBTEXT.found(texts, [run]))].append(run)
        for again, runs in lost.items():
            if runs:
                OPENWEBTEXT.compute(runs, parameters, texts, fresh=again)


def errors(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: errors on the validation set at its best and at its last evaluation, and on
    the test set at the checkpoint that ``FAIR_RULE`` chose, all of it and chains of the trained
    lengths alone.
    """
    rows = []
    for r in records:
        accuracies, test = r.curves["sequence_accuracy"], r.metrics["test"][FAIR_RULE]
        trained = [
            g
            for name, g in test["groups"].items()
            if chain_of(name) <= r.config.task_params["longest_train"]
        ]
        right, count = (sum(g[key] for g in trained) for key in ("right", "sequences"))
        row = {**r.labels, PUBLISHED: 1 - max(accuracies), "last evaluation": 1 - accuracies[-1]}
        row[FAIR] = 1 - test["sequence_accuracy"]
        row[f"{FAIR}, trained lengths"] = 1 - right / count if count else float("nan")
        rows.append(row | {"most frequent answer": 1 - r.metrics["baseline"]["sequence_accuracy"]})
    return pd.DataFrame(rows)


def chain_of(group: str) -> int:
    """Return the number in "chain of 4"."""
    return int(group.removeprefix("chain of "))


def gaps(table: pd.DataFrame, protocol: str, column: str) -> pd.Series:
    """Return decoder − ENTP in a column of ``errors``, paired by seed."""
    return paired(table[table["protocol"] == protocol], column, *TWINS)


def authors_tests() -> pd.DataFrame:
    """Return the authors' logged CLUTRR errors by size and rule, decoder − ENTP; their seeds are of
    the fine-tuning alone.
    """
    rows = {}
    logged = published("entp", "downstream").dropna(subset="seed").astype({"n_train": int})
    for key, part in logged.groupby(["n_train", "rule"]):
        values = paired(part, "error", *TWINS, by="architecture")
        means = part.groupby("architecture")["error"].mean()
        mean, low, high = mean_interval(values)
        rows[key] = {name: means[name] for name in TWINS}
        rows[key] |= {"decoder − ENTP": mean, "low": low, "high": high, "pairs": len(values)}
    return pd.DataFrame.from_dict(rows, orient="index")


def pronoun_errors(records: Sequence[Record]) -> pd.DataFrame:
    """One row per language model: error over the items, with the interval that so few
    items leave.
    """
    columns = ("architecture", "seed", "wrong", "items", "error", "low", "high")
    return pd.DataFrame([{name: r.metrics[name] for name in columns} for r in records])


# Table 4's CLUTRR as the authors measure it, and from training rows drawn at random to the test
# set.
CLUTRR = dict(ceiling=0.0, floor="most frequent answer", near=NEAR, frame=errors)
FAIR_CLAIMS = [Paired("T4-clutrr-fair", FAIR, *TWINS, dict(protocol="fair"))]
CLAIMS = [Paired("T4-clutrr", PUBLISHED, *TWINS, dict(protocol="authors"))]
MEASURE_CLUTRR = Comparisons(
    CLAIMS, paper=True, others=(Comparisons(FAIR_CLAIMS, **CLUTRR),), **CLUTRR
)
# Table 4's pronouns, where two answers make half of them right; the noise of the items is in
# ``pronoun_tests``.
CLAIMS = [Paired("T4-winogrande", "error", *TWINS)]
PRONOUN_ERRORS = dict(ceiling=0.0, floor=0.5, near=NEAR_CHANCE, paper=True)
MEASURE_PRONOUNS = Comparisons(
    CLAIMS,
    frame=lambda records: pronoun_errors(records).rename(columns={"architecture": "arm"}),
    **PRONOUN_ERRORS,
)
TITLE = "CLUTRR after language modelling"
DOWNSTREAM = Experiment(
    "downstream", 1, TITLE, "10_downstream", plan_clutrr, MEASURE_CLUTRR, tiers=TIERS
)
TITLE = "Pronouns after language modelling"
PRONOUNS = Experiment(
    "pronouns", 1, TITLE, "10_downstream", plan_pronouns, MEASURE_PRONOUNS, tiers=TIERS
)
