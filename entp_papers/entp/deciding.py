"""Runs that decide what earlier ones left open: text on all positions, Match3′ to its end, and a gate for Count3.

Their designs, with hypotheses and rules, were written before their first runs (docs/journal).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.budgets import EQUAL_OPERATIONS, equal_operations, on_budget
from entp_lib.experiments.experiment import Experiment, PlannedRun, name_of, no_claims, planned, select
from entp_lib.experiments.frames import levels, paired, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.statistics import first_at
from entp_lib.tasks import Counting
from entp_papers.entp import count3, match3
from entp_papers.entp.addition.experiment import BEST_ANSWERS, NEAR, chosen, scores
from entp_papers.entp.addition.tiers import PAPER, SMOKE, Block, runs_of, sizes
from entp_papers.entp.language import experiment as language
from entp_papers.entp.language.tables import LAST, TABLE_8, minima

PILOT = 100  # pilots and gates have seeds from here on, comparisons those from 0
QUARTER = "quarter, more steps"  # that of a decoder on a quarter of the positions, with ENTP's multiply-adds there


def with_operations_of(other: RunConfig, config: RunConfig) -> RunConfig:
    """``config`` on a schedule stretched until its training has the multiply-adds of ``other``'s."""
    return on_budget(equal_operations, other, config)


def plan_text(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """By seed: decoder and ENTP on all positions, the decoder with that ENTP's multiply-adds, and one on a quarter.

    The last has the steps at which it has the multiply-adds of ENTP on a quarter, so that more steps and more answers
    are told apart.
    """
    if tier not in ("smoke", "overnight"):
        return []
    runs = []
    for run in language.OPENWEBTEXT.plan(tier, seeds):
        if run.labels["schedule"] != TABLE_8 or run.labels["arm"] != "entp":
            continue
        few = replace(run.config, experiment="openwebtext_positions")
        every = replace(few, task_params={**few.task_params, "prefixes": 0})
        decoder = [replace(c, model=replace(c.model, architecture="decoder")) for c in (few, every)]
        runs += [
            planned(decoder[1]),
            planned(every),
            planned(with_operations_of(every, decoder[1]), arm=EQUAL_OPERATIONS),
            planned(with_operations_of(few, decoder[0]), arm=QUARTER),
        ]
    return runs


def measure_text(records: Sequence[Record]) -> list[Measurement]:
    """Decoder − ENTP in the last validation loss, both on all positions, at equal steps and equal multiply-adds."""
    if not records:
        return []
    table, tier, found = minima(records), records[0].config.tier, []
    for claim, other in (("T3-all", "decoder"), ("T3-all-operations", EQUAL_OPERATIONS)):
        used = tuple(name_of(r) for r in select(records, arm=(other, "entp")))
        floor = table["unigram loss"].mean()
        stand = levels(table, LAST, (other, "entp"), floor=floor, ceiling=0.0, distance=language.NEAR)
        found.append(Measurement(claim, paired(table, LAST, other, "entp").tolist(), tier, used, levels=stand))
    return found


RATES = (1e-3, 3e-3, 6e-3)  # that the pilot of Match3′ tries for every arm
# By the pilot's records: most sequences right at the end, of equals within 0.005 the lowest rate.
CHOSEN = {"decoder": 1e-3, "entp": 3e-3, EQUAL_OPERATIONS: 1e-3}
WHOLE = 0.95  # of the sequences: the first evaluation that has so many right is timed
# By tier: steps of the pilot and of the comparison, and their evaluations.
MATCH3_STEPS = {"smoke": (10, 20), "overnight": (4000, 10_000)}


def match3_arms(name: str, tier: str, steps: int, rates: dict[str, float], seed: int) -> list[PlannedRun]:
    """Decoder, ENTP, and a decoder with ENTP's multiply-adds on Match3′, each at its own rate, for one random seed."""
    base = next(run.config for run in match3.MATCH3.plan(tier, 1) if run.labels["arm"] == "entp")
    found = []
    for arm in ("decoder", "entp", EQUAL_OPERATIONS):
        rate = rates[arm]
        train = replace(base.train, steps=steps, max_lr=rate, min_lr=rate / 10, eval_every=steps // min(steps, 200))
        entp = replace(base, experiment=name, train=train, model_seed=seed, data_seed=seed)
        decoder = replace(entp, model=replace(entp.model, architecture="decoder"))
        config = {"decoder": decoder, "entp": entp, EQUAL_OPERATIONS: with_operations_of(entp, decoder)}[arm]
        found.append(planned(config, arm=arm, rate=rate))
    return found


def plan_match3_rates(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The pilot: every arm at every rate, on a seed that no comparison uses."""
    if tier not in MATCH3_STEPS:
        return []
    steps = MATCH3_STEPS[tier][0]
    arms = ("decoder", "entp", EQUAL_OPERATIONS)
    return [r for rate in RATES for r in match3_arms("match3_rates", tier, steps, dict.fromkeys(arms, rate), PILOT)]


def plan_match3_end(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Match3′ to its end: the three arms, each at the rate that the pilot chose for it, paired by random seed."""
    if tier not in MATCH3_STEPS:
        return []
    wanted = range(seeds or (2 if tier == "smoke" else 5))
    return [r for seed in wanted for r in match3_arms("match3_end", tier, MATCH3_STEPS[tier][1], CHOSEN, seed)]


def times_to(records: Sequence[Record], accuracy: float = WHOLE) -> pd.DataFrame:
    """A row per run: ``log_steps`` and ``log_operations`` (multiply-adds) where so many sequences are first right.

    ``reached`` is False where no evaluation has it; such a run counts with its last one.
    """
    rows = []
    for r in records:
        at = first_at(r.curves, "sequence_accuracy", accuracy, "step")
        steps = r.curves["step"][-1] if at is None else at
        operations = training_operations(r.config) * steps / r.config.train.steps
        logs = {"log_steps": math.log(steps), "log_operations": math.log(operations)}
        rows.append({**r.labels, "reached": at is not None, **logs})
    return pd.DataFrame(rows)


def measure_match3(records: Sequence[Record]) -> list[Measurement]:
    """ENTP's lead in right sequences at the end, and ln of what ``WHOLE`` of them costs, decoder − ENTP.

    In steps against the decoder of equal steps, in multiply-adds against the one of equal multiply-adds. Pairs of which
    neither run reaches it are dropped.
    """
    if not records:
        return []
    table, times, tier, found = summary(records), times_to(records), records[0].config.tier, []
    floor = table["baseline_sequence_accuracy"].mean()
    for other, end, fast, axis in (
        ("decoder", "T2-end", "T2-end-speed", "log_steps"),
        (EQUAL_OPERATIONS, "T2-end-operations", "T2-end-cost", "log_operations"),
    ):
        arms = (other, "entp")
        used = tuple(name_of(r) for r in select(records, arm=arms))
        stand = levels(table, "sequence_accuracy", arms, floor=floor, ceiling=1.0, distance=match3.NEAR)
        ahead = paired(table, "sequence_accuracy", "entp", other)
        found.append(Measurement(end, ahead.tolist(), tier, used, levels=stand))
        somebody = times[times["arm"].isin(arms)].groupby("seed")["reached"].any()
        faster = paired(times, axis, other, "entp")
        found.append(Measurement(fast, faster[somebody.reindex(faster.index)].tolist(), tier, used))
    return found


def costs_to(records: Sequence[Record], accuracy: float = WHOLE) -> pd.DataFrame:
    """By arm: how many runs have ``accuracy`` of the sequences, and steps and multiply-adds to it (geometric means)."""
    rows = {}
    for arm, part in times_to(records, accuracy).groupby("arm", sort=False):
        rows[arm] = {
            f"runs that reach {accuracy}": f"{int(part['reached'].sum())} of {len(part)}",
            "steps to it": round(math.exp(part["log_steps"].mean())),
            "multiply-adds to it": f"{math.exp(part['log_operations'].mean()):.2g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


SIZES = {  # the reduced models of the gate
    "smoke": dict(n_layers=2, n_heads=2, width=16),
    "overnight": dict(n_layers=3, n_heads=6, width=192),
}
# What differs from a task of 16 tokens, prompts of 8, 24 symbols, 3 layers of width 192 and a rate of 1e-3. ``bound``:
# the loss of the best predictor that looks at no pair, in nats.
GATES = {
    "rate 5e-4": dict(rate=5e-4),
    "6 layers": dict(layers=6),
    "64 symbols": dict(symbols=64, bound=1.97),
    "base": {},
    "rate 3e-4": dict(rate=3e-4),
    "length 24": dict(length=24, bound=2.21),
}
BEYOND = 0.03  # nats below the bound at which a run of the gate ends
GATE_STEPS = 12_000


def gate_run(tier: str, name: str, arm: str) -> PlannedRun:
    """One run of Count3's gate: constant rate after a warm-up, all prefixes, until it is beyond the pairless bound."""
    setting = {"length": 16, "symbols": 24, "rate": 1e-3, "layers": 3, "bound": 1.98} | GATES[name]
    if tier == "smoke":
        params, train = dict(count3.TIERS["smoke"].task), count3.TIERS["smoke"].train
        shape = {**SIZES[tier], "n_layers": 2 if setting["layers"] == 3 else 3}
        train = replace(train, max_lr=setting["rate"], min_lr=setting["rate"])
        params["symbols"] = setting["symbols"]
        params["length"] = setting["length"] // 2
    else:
        params = dict(length=setting["length"], seed_length=8, symbols=setting["symbols"])
        shape = {**SIZES[tier], "n_layers": setting["layers"]}
        train = TrainConfig(
            steps=GATE_STEPS,
            max_lr=setting["rate"],
            min_lr=setting["rate"],
            warmup_steps=200,
            eval_every=60,
            eval_sequences=512,
            stop_loss=round(setting["bound"] - BEYOND, 4),
        )
    task = Counting(**params)
    model = ModelConfig(arm, vocab_size=task.vocab_size, max_length=task.length, **shape)
    config = RunConfig("count3_gate", tier, "counting", params, model, train, PILOT, PILOT)
    return planned(config, setting=name, bound=setting["bound"])


def plan_gate(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoder and ENTP in every setting of the gate, on a seed that no comparison uses."""
    settings = GATES if tier in SIZES else {}
    return [gate_run(tier, name, arm) for name in settings for arm in ("decoder", "entp")]


def steps_to_loss(record: Record, loss: float) -> float | None:
    """Steps until the held-out loss, a running mean of three evaluations, is at ``loss`` or below, interpolated."""
    losses = pd.Series(record.curves["loss"]).rolling(3, min_periods=1).mean().cummin().to_numpy()
    steps = np.asarray(record.curves["step"], dtype=float)
    if losses[-1] > loss:
        return None
    return float(np.exp(np.interp(-loss, -losses, np.log(steps))))


def step_ratios(records: Sequence[Record], start: float, end: float, shares: Sequence[float]) -> pd.Series:
    """Steps of a decoder over ENTP's to the same held-out loss, by share of the way from ``start`` to ``end`` nats.

    One run each, labelled by ``arm``; NaN where one of the two does not come so far.
    """
    runs = {r.labels["arm"]: r for r in records}
    ratios = {}
    for share in shares:
        at = [steps_to_loss(runs[arm], start + share * (end - start)) for arm in ("decoder", "entp") if arm in runs]
        ratios[share] = at[0] / at[1] if len(at) == 2 and None not in at else math.nan
    return pd.Series(ratios)


WINDOWS = {  # by tier: how many characters of a window ENTP is scored on, and the runs
    "smoke": (2, Block(sizes((200,), True, largest=99, view="windows"), ("decoder", "entp"), "2/2/16", SMOKE, 2)),
    "overnight": (
        8,
        Block(
            sizes((2500,), True, view="windows"),
            ("decoder", "entp"),
            "small",
            replace(PAPER, precision="fp32", eval_sequences=500, final_eval_sequences=10_000),
        ),
    ),
}


def plan_windows(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoder and ENTP on the authors' windows, every checkpoint rule on the same runs; ENTP on drawn characters."""
    if tier not in WINDOWS:
        return []
    drawn, block = WINDOWS[tier]
    runs = runs_of("addition_windows", tier, "addition", (block,), seeds)
    few = {"entp": {"drawn": drawn}}
    return [
        replace(run, config=replace(run.config, task_params=run.config.task_params | few.get(run.labels["arm"], {})))
        for run in runs
    ]


def measure_windows(records: Sequence[Record]) -> list[Measurement]:
    """Decoder − ENTP in test error by the authors' checkpoint rule, and what best answers would add to that lead."""
    if not records:
        return []
    table, tier, used = scores(records), records[0].config.tier, tuple(map(name_of, records))
    leads = {rule: paired(chosen(table, rule), "error", "decoder", "entp") for rule in table["rule"].unique()}
    published, best = leads["lowest_text_loss"], leads[BEST_ANSWERS]
    stand = levels(chosen(table, BEST_ANSWERS), "error", ("decoder", "entp"), floor=1.0, ceiling=0.0, distance=NEAR)
    return [
        Measurement("F5-windows", published.tolist(), tier, used, levels=stand),
        Measurement("F5-rule", (published - best).tolist(), tier, used, levels=stand),
    ]


TEXT_POSITIONS = Experiment(
    "openwebtext_positions",
    1,
    "Language modelling on all positions",
    "09_openwebtext",
    plan_text,
    measure_text,
    changeable=False,
)
MATCH3_RATES = Experiment(
    "match3_rates",
    1,
    "Match3′ to its end: which rate suits which arm",
    "06_match3",
    plan_match3_rates,
    no_claims,
    changeable=False,
    seeded=False,
)
MATCH3_END = Experiment(
    "match3_end",
    1,
    "Match3′ to its end, each arm at its own rate",
    "06_match3",
    plan_match3_end,
    measure_match3,
    changeable=False,
)
COUNT3_GATE = Experiment(
    "count3_gate",
    1,
    "Count3: where ENTP might part from the decoder",
    "03_count3",
    plan_gate,
    no_claims,
    changeable=False,
    seeded=False,
)
ADDITION_WINDOWS = Experiment(
    "addition_windows",
    1,
    "Addition on the authors' windows, by checkpoint rule",
    "07_addition",
    plan_windows,
    measure_windows,
    changeable=False,
)
DECIDING = (TEXT_POSITIONS, MATCH3_RATES, MATCH3_END, COUNT3_GATE, ADDITION_WINDOWS)
