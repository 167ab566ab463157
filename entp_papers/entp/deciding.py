"""Runs that decide what earlier ones left open.

Text on all positions, Match3′ to its end, and addition on the authors' windows. Their designs, with
hypotheses and rules, were written before their first runs (docs/journal). Those on Count3 are in
``count3_steps``.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from entp_lab.budgets import EQUAL_OPERATIONS, SAME_PREFIXES, equal_operations
from entp_lab.experiment import Experiment, no_claims
from entp_lab.frames import paired, select, summary
from entp_lab.measurements import Comparisons, Measurement, Paired, levels, measured
from entp_lab.plans import TWINS, Arm, PlannedRun, Tier, planned, with_train
from entp_lab.statistics import to_figures
from entp_lab.store import Record
from entp_papers.entp import count3, match3
from entp_papers.entp.addition import experiment as addition
from entp_papers.entp.addition.experiment import BEST_ANSWERS, NEAR, chosen, scores
from entp_papers.entp.language import experiment as language
from entp_papers.entp.language.tables import LAST, TABLE_8, minima
from entp_papers.entp.pilot_runs import SEED

# that of a decoder on a quarter of the positions, with ENTP's multiply-adds there
QUARTER = "quarter, more steps"
ARMS = {
    "decoder": Arm("decoder"),
    "entp": Arm("entp"),
    EQUAL_OPERATIONS: Arm("decoder", equal_operations),
}


def plan_text(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """By seed: decoder and ENTP on all positions, the decoder with that ENTP's multiply-adds, and
    one on a quarter.

    The last has the steps at which it has the multiply-adds of ENTP on a quarter, so that more
    steps and more answers are told apart.
    """
    runs = []
    for run in select(language.OPENWEBTEXT.plan(tier, seeds), schedule=TABLE_8, arm="entp"):
        few = replace(run.config, experiment="openwebtext_positions")
        every = replace(few, task_params={**few.task_params, "prefixes": 0})
        runs += [planned(arm.run(every, every.model_seed), arm=name) for name, arm in ARMS.items()]
        runs.append(planned(ARMS[EQUAL_OPERATIONS].run(few, few.model_seed), arm=QUARTER))
    return runs


# Decoder − ENTP in the last validation loss, both on all positions, at equal steps and at equal
# multiply-adds.
CLAIMS = (
    Paired("T3-all", LAST, "decoder", "entp"),
    Paired("T3-all-operations", LAST, EQUAL_OPERATIONS, "entp"),
)
MEASURE_TEXT = Comparisons(
    CLAIMS, ceiling=0.0, floor="unigram loss", near=language.NEAR, frame=minima
)

RATES = (1e-3, 3e-3, 6e-3)  # that the pilot of Match3′ tries for every arm
# By the pilot's records: most sequences right at the end, of equals within 0.005 the lowest rate.
CHOSEN = {"decoder": 1e-3, "entp": 3e-3, EQUAL_OPERATIONS: 1e-3}
WHOLE = 0.95  # of the sequences: the first evaluation that has so many right is timed
# By tier: steps of the pilot and of the comparison, and their evaluations.
MATCH3_STEPS = {"smoke": (10, 20), "overnight": (4000, 10_000)}


def match3_arms(
    experiment: str, tier: str, steps: int, rates: dict[str, float], seed: int
) -> list[PlannedRun]:
    """Plan decoder, ENTP, and a decoder with ENTP's multiply-adds on Match3′, each at its own rate,
    for one random seed.
    """
    plain = replace(
        select(match3.MATCH3.plan(tier, 1), arm="entp")[0].config, experiment=experiment
    )
    found = []
    for name, arm in ARMS.items():
        rate = rates[name]
        schedule = dict(
            max_lr=rate, min_lr=rate / 10, steps=steps, eval_every=steps // min(steps, 200)
        )
        found.append(planned(arm.run(with_train(plain, **schedule), seed), arm=name, rate=rate))
    return found


def plan_match3_rates(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the pilot: every arm at every rate, on a seed that no comparison uses."""
    steps = MATCH3_STEPS[tier][0]
    return [
        r
        for rate in RATES
        for r in match3_arms("match3_rates", tier, steps, dict.fromkeys(CHOSEN, rate), SEED)
    ]


def plan_match3_end(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Match3′ to its end: the three arms, each at the rate that the pilot chose for it, paired by
    random seed.
    """
    every = range(seeds or (2 if tier == "smoke" else 5))
    return [
        r
        for seed in every
        for r in match3_arms("match3_end", tier, MATCH3_STEPS[tier][1], CHOSEN, seed)
    ]


# Match3′ half-way, at the 2,000 steps of ``match3``, whose ENTP has the rate of its own pilot: the
# decoder at rates below it. Of the pilot's rates the one with the most whole sequences is the
# decoder's, of equals the lowest.
OWN_RATES = {"pilot": (1e-4, 3e-4, 1e-3, 3e-3), "pairs": (3e-4, 1e-3)}


def own_rate_decoders(tier: str, rates: Sequence[float], seed: int) -> list[PlannedRun]:
    """Plan decoders on Match3′ at several rates, each with ENTP's steps and with ENTP's
    multiply-adds.
    """
    plain = replace(
        select(match3.MATCH3.plan(tier, 1), arm="entp")[0].config, experiment="match3_own_rates"
    )
    found = []
    for rate in rates:
        base = with_train(plain, max_lr=rate, min_lr=rate / 10)
        for name in ("decoder", EQUAL_OPERATIONS):
            found.append(planned(ARMS[name].run(base, seed), arm=name, rate=rate))
    return found


def plan_match3_own_rates(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the pilot's decoders, and by random seed the ENTP of ``match3`` with decoders at their
    own rates.
    """
    runs = own_rate_decoders(tier, OWN_RATES["pilot"], SEED)
    for seed in range(seeds or (2 if tier == "smoke" else 5)):
        entp = select(match3.MATCH3.plan(tier, seed + 1), arm="entp", seed=seed, variant="match3")[
            0
        ]
        rate = entp.config.train.max_lr
        runs += [
            replace(entp, labels={**entp.labels, "rate": rate}),
            *own_rate_decoders(tier, OWN_RATES["pairs"], seed),
        ]
    return runs


def chosen_rates(records: Sequence[Record]) -> dict[str, float]:
    """Return the rate that the pilot chooses for each decoder: most whole sequences, of equals
    within 0.005 the lowest.

    Without the pilot's runs it is the lowest rate of the pairs that are there.
    """
    found = {}
    for arm in ("decoder", EQUAL_OPERATIONS):
        runs = select(records, arm=arm)
        if pilot := select(runs, seed=SEED):
            scores = summary(pilot).set_index("rate")["sequence_accuracy"]
            found[arm] = float(min(scores[scores >= scores.max() - 0.005].index))
        elif runs:
            found[arm] = min(run.labels["rate"] for run in runs)
    return found


def measure_own_rates(records: Sequence[Record]) -> list[Measurement]:
    """T2-sequences, T2-operations-sequences: ENTP less the decoder with the rate of its pilot, in
    whole sequences.
    """
    rates, entp, found = chosen_rates(records), select(records, arm="entp"), []
    claims = {"decoder": "T2-sequences", EQUAL_OPERATIONS: "T2-operations-sequences"}
    for arm, rate in rates.items():
        nearest = min(OWN_RATES["pairs"], key=lambda tried, rate=rate: abs(math.log(tried / rate)))
        decoders = [
            run for run in select(records, arm=arm, rate=nearest) if run.labels["seed"] != SEED
        ]
        row = Paired(claims[arm], "sequence_accuracy", "entp", arm)
        found += Comparisons((row,), near=match3.NEAR, excluded=match3.excluded)([*decoders, *entp])
    return found


def costs_to(records: Sequence[Record]) -> pd.DataFrame:
    """By arm: runs that have ``WHOLE`` of the sequences, and steps and multiply-adds to it
    (geometric means).
    """
    rows = {}
    for arm, part in count3.arrivals(records, WHOLE, "sequence_accuracy").groupby(
        "arm", sort=False
    ):
        rows[arm] = {
            f"runs that reach {WHOLE}": f"{int(part['reached'].sum())} of {len(part)}",
            "steps to it": to_figures(math.exp(part["log_step"].mean()), 2),
            "multiply-adds to it": f"{math.exp(part['log_operations'].mean()):.1e}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def measure_speed(records: Sequence[Record]) -> list[Measurement]:
    """ln of what ``WHOLE`` of the sequences cost, decoder − ENTP; pairs of which neither run
    reaches it are dropped.

    In steps against the decoder of equal steps, in multiply-adds against the one of equal
    multiply-adds.
    """
    times, found = count3.arrivals(records, WHOLE, "sequence_accuracy"), []
    for claim, other, cost in (
        ("T2-end-speed", "decoder", "log_step"),
        ("T2-end-cost", EQUAL_OPERATIONS, "log_operations"),
    ):
        faster = count3.lead(times, other, cost)
        if len(faster):
            found.append(measured(claim, faster, select(records, arm=(other, "entp"))))
    return found


AREA_TO = {
    "smoke": 20,
    "overnight": 5000,
}  # ENTP's steps over which the area between two curves is taken


def area_leads(records: Sequence[Record], other: str) -> pd.Series:
    """Mean lead of ENTP in whole sequences over its first ``AREA_TO`` steps, by random seed.

    That is the area between its curve and another arm's, whose own curve is stretched to the same
    length where its schedule has more steps.
    """
    found = {}
    others = {run.labels["seed"]: run for run in select(records, arm=other)}
    for entp in (run for run in select(records, arm="entp") if run.labels["seed"] in others):
        decoder = others[entp.labels["seed"]]
        steps = [step for step in entp.curves["step"] if step <= AREA_TO[entp.config.tier]]
        stretch = decoder.config.train.steps / entp.config.train.steps
        own, decoders = (
            np.interp(
                [step * by for step in steps], run.curves["step"], run.curves["sequence_accuracy"]
            )
            for run, by in ((entp, 1.0), (decoder, stretch))
        )
        found[entp.labels["seed"]] = float((own - decoders).mean())
    return pd.Series(found, dtype=float)


def measure_areas(records: Sequence[Record]) -> list[Measurement]:
    """T2-area, T2-area-operations: who has more whole sequences right on the way, each at its own
    learning rate.
    """
    found = []
    for claim, other in (("T2-area", "decoder"), ("T2-area-operations", EQUAL_OPERATIONS)):
        leads = area_leads(records, other)
        if len(leads):
            found.append(measured(claim, leads, select(records, arm=(other, "entp"))))
    return found


CLAIMS = (
    Paired("T2-end", "sequence_accuracy", "entp", "decoder"),
    Paired("T2-end-operations", "sequence_accuracy", "entp", EQUAL_OPERATIONS),
)
MEASURE_MATCH3 = Comparisons(
    CLAIMS, near=match3.NEAR, others=(measure_speed, measure_areas, match3.printed)
)


DRAWN = {"smoke": 2, "overnight": 8}  # by tier: how many characters of a window ENTP is scored on
WINDOWED = addition.REVERSED | addition.WINDOWS
PAPER = replace(
    addition.PAPER, steps=5000, eval_sequences=500, final_eval_sequences=10_000
)  # to the decay's end
WINDOWS = {
    "smoke": (Tier(WINDOWED | addition.TO_99, addition.TINY, addition.SMOKE, 2, TWINS, (200,)),),
    "overnight": (Tier(WINDOWED, addition.SMALL, PAPER, 5, TWINS, (2500,)),),
}


def plan_windows(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Plan decoder and ENTP on the authors' windows, every checkpoint rule on the same runs, by
    random seed.

    ENTP is scored on drawn characters, and so is a further decoder, so that fewer answers are told
    from attention.
    """
    runs = []
    for run in addition.runs_of("addition_windows", "addition", WINDOWS, tier, seeds):
        drawn = replace(run.config, task_params={**run.config.task_params, "drawn": DRAWN[tier]})
        if run.labels["arm"] == "entp":
            runs.append(replace(run, config=drawn))
        else:
            runs += [run, replace(run, config=drawn, labels={**run.labels, "arm": SAME_PREFIXES})]
    return runs


def measure_windows(records: Sequence[Record]) -> list[Measurement]:
    """Measure decoder − ENTP in test error by the authors' checkpoint rule, for a decoder on all
    and on ENTP's characters.
    """
    scored, found = scores(records), []
    for claim, decoder in (("F5-windows", "decoder"), ("F5-windows-drawn", SAME_PREFIXES)):
        arms = (decoder, "entp")
        values = paired(chosen(scored, "lowest_text_loss"), "error", *arms)
        if len(values):
            sides = levels(
                chosen(scored, BEST_ANSWERS), "error", arms, floor=1.0, ceiling=0.0, distance=NEAR
            )
            found.append(measured(claim, values, select(records, arm=arms), levels=sides))
    return found


TITLE = "Language modelling on all positions"
TEXT_POSITIONS = Experiment(
    "openwebtext_positions",
    1,
    TITLE,
    "09_openwebtext",
    plan_text,
    MEASURE_TEXT,
    tiers=("smoke", "overnight"),
)
HOW, TITLE = dict(tiers=MATCH3_STEPS), "Match3′ to its end: which rate suits which arm"
MATCH3_RATES = Experiment(
    "match3_rates", 1, TITLE, "06_match3", plan_match3_rates, no_claims, seeded=False, **HOW
)
TITLE = "Match3′ half-way, the decoder at its own rate"
MATCH3_OWN_RATES = Experiment(
    "match3_own_rates", 1, TITLE, "06_match3", plan_match3_own_rates, measure_own_rates, **HOW
)
TITLE = "Match3′ to its end, each arm at its own rate"
MATCH3_END = Experiment("match3_end", 1, TITLE, "06_match3", plan_match3_end, MEASURE_MATCH3, **HOW)
TITLE = "Addition on the authors' windows, by checkpoint rule"
ADDITION_WINDOWS = Experiment(
    "addition_windows", 1, TITLE, "07_addition", plan_windows, measure_windows
)
