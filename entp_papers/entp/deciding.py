"""Runs that decide what earlier ones left open.

Text on all positions, Match3′ to its end, and addition on the authors' windows. Their designs, with
hypotheses and rules, were written before their first runs (docs/journal). Those on Count3 are in
``count3_steps``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from entp_lab.budgets import EQUAL_OPERATIONS, SAME_PREFIXES, equal_operations
from entp_lab.experiment import (
    TWINS,
    Arm,
    Experiment,
    PlannedRun,
    PlannedRuns,
    Tier,
    planned,
    with_train,
)
from entp_lab.frames import paired, select, summary
from entp_lab.measurements import Comparisons, Findings, Paired, levels, measured
from entp_lab.store import Record, Records
from entp_papers.entp import count3, match3
from entp_papers.entp.addition import experiment as addition
from entp_papers.entp.addition.experiment import BEST_ANSWERS, SCALE, chosen, scores
from entp_papers.entp.language import experiment as language
from entp_papers.entp.language.tables import LAST, TABLE_8, minima
from entp_papers.entp.pilot_runs import SEED, seeds_of_pairs

# a decoder on a quarter of the positions, with ENTP's multiply-adds there
QUARTER = "quarter, more steps"
ARMS = {
    "decoder": Arm("decoder"),
    "entp": Arm("entp"),
    EQUAL_OPERATIONS: Arm("decoder", equal_operations),
}
DECODERS = ("decoder", EQUAL_OPERATIONS)  # that ENTP is compared with


def plan_text(tier: str, seeds: int) -> PlannedRuns:
    """Plan by seed: decoder and ENTP on all positions, and decoders with ENTP's multiply-adds.

    One of these has all positions, and one a quarter, with the steps at which it has the
    multiply-adds of ENTP on a quarter, so that more steps and more answers are told apart.
    """
    for run in select(language.OPENWEBTEXT.plan(tier, seeds), schedule=TABLE_8, arm="entp"):
        few = replace(run.config, experiment="openwebtext_positions")
        every = replace(few, task_params={**few.task_params, "prefixes": 0})
        yield from [
            planned(arm.run(every, every.model_seed), arm=name) for name, arm in ARMS.items()
        ]
        yield planned(ARMS[EQUAL_OPERATIONS].run(few, few.model_seed), arm=QUARTER)


# Decoder − ENTP in the last validation loss, both on all positions, at equal steps and at equal
# multiply-adds.
MEASURE_TEXT = Comparisons(
    (
        Paired("T3-all", LAST, "decoder", "entp"),
        Paired("T3-all-operations", LAST, EQUAL_OPERATIONS, "entp"),
    ),
    ceiling=0.0,
    floor="unigram loss",
    near=language.NEAR,
    frame=minima,
)

RATES = (1e-3, 3e-3, 6e-3)  # that the pilot of Match3′ tries for every arm
# By the pilot's records: most sequences right at the end, of equals within 0.005 the lowest rate.
CHOSEN = {"decoder": 1e-3, "entp": 3e-3, EQUAL_OPERATIONS: 1e-3}
WHOLE = 0.95  # of the sequences: the first evaluation that has so many right is timed
# By tier: steps of the pilot and of the comparison, and their evaluations.
MATCH3_STEPS = {"smoke": (10, 20), "overnight": (4000, 10_000)}


def match3_run(
    experiment: str, tier: str, arm: str, rate: float, seed: int, **schedule: int
) -> PlannedRun:
    """Plan an arm on Match3′ at a rate; all else as ``match3`` has it, but for ``schedule``."""
    entp = select(match3.MATCH3.plan(tier, 1), arm="entp")[0].config
    base = with_train(entp, max_lr=rate, min_lr=rate / 10, **schedule)
    return planned(ARMS[arm].run(replace(base, experiment=experiment), seed), arm=arm, rate=rate)


def to_its_end(
    experiment: str, tier: str, steps: int, rates: Mapping[str, float], seed: int
) -> PlannedRuns:
    """Plan every arm of Match3′ for so many steps, each at its own rate."""
    ends = dict(steps=steps, eval_every=steps // min(steps, 200))
    return [match3_run(experiment, tier, arm, rates[arm], seed, **ends) for arm in ARMS]


def plan_match3_rates(tier: str, seeds: int) -> PlannedRuns:
    """Plan the pilot: every arm at every rate, on a seed that no comparison uses."""
    for rate in RATES:
        alike = dict.fromkeys(ARMS, rate)
        yield from to_its_end("match3_rates", tier, MATCH3_STEPS[tier][0], alike, SEED)


def plan_match3_end(tier: str, seeds: int) -> PlannedRuns:
    """Plan Match3′ to its end: the three arms, each at the rate that its pilot chose."""
    for seed in seeds_of_pairs(tier, seeds):
        yield from to_its_end("match3_end", tier, MATCH3_STEPS[tier][1], CHOSEN, seed)


# Match3′ half-way, at the 2,000 steps of ``match3``, whose ENTP has the rate of its own pilot: the
# decoder at rates below it. Of the pilot's rates the one with the most whole sequences is the
# decoder's, of equals the lowest.
OWN_RATES = {"pilot": (1e-4, 3e-4, 1e-3, 3e-3), "pairs": (3e-4, 1e-3)}


def own_rate_decoders(tier: str, rates: Sequence[float], seed: int) -> PlannedRuns:
    """Plan decoders on Match3′ at several rates, with ENTP's steps and with its multiply-adds."""
    name = "match3_own_rates"
    return [match3_run(name, tier, arm, rate, seed) for rate in rates for arm in DECODERS]


def plan_match3_own_rates(tier: str, seeds: int) -> PlannedRuns:
    """Plan the pilot's decoders, and by seed ``match3``'s ENTP with decoders at their rates.

    Overnight has five pairs by design and five more as its extension.
    """
    runs = own_rate_decoders(tier, OWN_RATES["pilot"], SEED)
    for seed in seeds_of_pairs(tier, seeds or (10 if tier == "overnight" else 0)):
        entp = select(match3.MATCH3.plan(tier, seed + 1), arm="entp", seed=seed, variant="match3")[
            0
        ]
        runs.append(replace(entp, labels={**entp.labels, "rate": entp.config.train.max_lr}))
        runs += own_rate_decoders(tier, OWN_RATES["pairs"], seed)
    return runs


def chosen_rates(records: Records) -> dict[str, float]:
    """Return each decoder's rate by its pilot: most whole sequences, of equals the lowest rate.

    Equals are those within 0.005. Without the pilot's runs it is the lowest rate of the pairs that
    are there.
    """
    found = {}
    for arm in DECODERS:
        runs = select(records, arm=arm)
        if pilot := select(runs, seed=SEED):
            scores = summary(pilot).set_index("rate")["sequence_accuracy"]
            found[arm] = float(min(scores[scores >= scores.max() - 0.005].index))
        elif runs:
            found[arm] = min(run.labels["rate"] for run in runs)
    return found


def measure_own_rates(records: Records) -> Findings:
    """Measure ENTP less the decoder with the rate of its pilot, in whole sequences."""
    entp = select(records, arm="entp")
    claims = {"decoder": "T2-sequences", EQUAL_OPERATIONS: "T2-operations-sequences"}
    for arm, rate in chosen_rates(records).items():
        off = {tried: abs(math.log(tried / rate)) for tried in OWN_RATES["pairs"]}
        decoders = select(records, arm=arm, rate=min(off, key=off.get))
        decoders = [run for run in decoders if run.labels["seed"] != SEED]
        row = Paired(claims[arm], "sequence_accuracy", "entp", arm)
        judge = Comparisons((row,), near=match3.NEAR, excluded=match3.excluded)
        yield from judge([*decoders, *entp])


AREA_TO = {"smoke": 20, "overnight": 5000}  # ENTP's steps over which the area is taken


def area_leads(records: Records, other: str) -> pd.Series:
    """Return ENTP's mean lead in whole sequences over its first ``AREA_TO`` steps, by seed.

    That is the area between its curve and another arm's, whose own curve is stretched to the same
    length where its schedule has more steps.
    """
    found = {}
    others = {run.labels["seed"]: run for run in select(records, arm=other)}
    for entp in select(records, arm="entp", seed=tuple(others)):
        decoder = others[entp.labels["seed"]]
        steps = np.asarray(entp.curves["step"], dtype=float)
        steps = steps[steps <= AREA_TO[entp.config.tier]]
        stretch = decoder.config.train.steps / entp.config.train.steps
        lead = whole_sequences_at(entp, steps) - whole_sequences_at(decoder, steps * stretch)
        found[entp.labels["seed"]] = float(lead.mean())
    return pd.Series(found, dtype=float)


def whole_sequences_at(record: Record, steps: np.ndarray) -> np.ndarray:
    """Return the interpolated share of whole sequences at given steps."""
    return np.interp(steps, record.curves["step"], record.curves["sequence_accuracy"])


def measure_ways(records: Records) -> Findings:
    """Measure who is earlier and who is ahead on the way, at equal steps and equal multiply-adds.

    ln of what ``WHOLE`` of the sequences cost, decoder − ENTP, without pairs of which neither run
    reaches it; and ENTP's lead in whole sequences. Each at its own learning rate.
    """
    times = count3.arrivals(records, WHOLE, "sequence_accuracy")
    for claim, arm, values in (
        ("T2-end-speed", "decoder", count3.lead(times, "decoder", "log_step")),
        ("T2-end-cost", EQUAL_OPERATIONS, count3.lead(times, EQUAL_OPERATIONS, "log_operations")),
        ("T2-area", "decoder", area_leads(records, "decoder")),
        ("T2-area-operations", EQUAL_OPERATIONS, area_leads(records, EQUAL_OPERATIONS)),
    ):
        if len(values):
            yield measured(claim, values, select(records, arm=(arm, "entp")))


MEASURE_MATCH3 = Comparisons(
    (
        Paired("T2-end", "sequence_accuracy", "entp", "decoder"),
        Paired("T2-end-operations", "sequence_accuracy", "entp", EQUAL_OPERATIONS),
    ),
    near=match3.NEAR,
    others=(measure_ways, match3.printed),
)


# by tier: how many characters of a window ENTP is scored on
DRAWN = {"smoke": 2, "overnight": 8}
WINDOWED = addition.REVERSED | addition.WINDOWS
PAPER = replace(
    addition.PAPER, steps=5000, eval_sequences=500, final_eval_sequences=10_000
)  # to the decay's end
WINDOWS = {
    "smoke": (Tier(WINDOWED | addition.TO_99, addition.TINY, addition.SMOKE, 2, TWINS, (200,)),),
    "overnight": (Tier(WINDOWED, addition.SMALL, PAPER, 5, TWINS, (2500,)),),
}


def plan_windows(tier: str, seeds: int) -> PlannedRuns:
    """Plan decoder and ENTP on the authors' windows, every checkpoint rule on the same runs.

    ENTP is scored on drawn characters, and so is a further decoder, so that fewer answers are told
    from attention.
    """
    for run in addition.runs_of("addition_windows", "addition", WINDOWS, tier, seeds):
        drawn = replace(run.config, task_params={**run.config.task_params, "drawn": DRAWN[tier]})
        if run.labels["arm"] == "entp":
            yield replace(run, config=drawn)
        else:
            yield from [
                run,
                replace(run, config=drawn, labels={**run.labels, "arm": SAME_PREFIXES}),
            ]


def measure_windows(records: Records) -> Findings:
    """Measure decoder − ENTP in test error by the authors' checkpoint rule.

    For a decoder on all characters, and for one on ENTP's.
    """
    scored = scores(records)
    for claim, decoder in (("F5-windows", "decoder"), ("F5-windows-drawn", SAME_PREFIXES)):
        arms = (decoder, "entp")
        values = paired(chosen(scored, "lowest_text_loss"), "error", *arms)
        if len(values):
            sides = levels(chosen(scored, BEST_ANSWERS), "error", arms, **SCALE)
            yield measured(claim, values, select(records, arm=arms), levels=sides)


TEXT_POSITIONS = Experiment(
    "openwebtext_positions",
    1,
    "Language modelling on all positions",
    "09_openwebtext",
    plan_text,
    MEASURE_TEXT,
    tiers=("smoke", "overnight"),
    paper_runs_of="openwebtext",
)
MATCH3_RATES = Experiment(
    "match3_rates",
    1,
    "Match3′ to its end: which rate suits which arm",
    "06_match3",
    plan_match3_rates,
    tiers=MATCH3_STEPS,
    paper_runs_of="match3",
    seeded=False,
)
MATCH3_OWN_RATES = Experiment(
    "match3_own_rates",
    1,
    "Match3′ half-way, the decoder at its own rate",
    "06_match3",
    plan_match3_own_rates,
    measure_own_rates,
    tiers=MATCH3_STEPS,
    paper_runs_of="match3",
)
MATCH3_END = Experiment(
    "match3_end",
    1,
    "Match3′ to its end, each arm at its own rate",
    "06_match3",
    plan_match3_end,
    MEASURE_MATCH3,
    tiers=MATCH3_STEPS,
    paper_runs_of="match3",
)
ADDITION_WINDOWS = Experiment(
    "addition_windows",
    1,
    "Addition on the authors' windows, by checkpoint rule",
    "07_addition",
    plan_windows,
    measure_windows,
    paper_runs_of="addition",
)
