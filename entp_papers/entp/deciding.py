"""Runs that decide questions which earlier runs left open.

They are: text on all positions, Match3′ trained to its end, and addition on the authors' windows.
Designs, with hypotheses and rules, were written before the first runs (docs/journal). Such runs on
Count3 are in ``count3_steps``.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from entp_lab.budgets import EQUAL_OPERATIONS, SAME_PREFIXES
from entp_lab.experiment import TRIAL_SEED
from entp_lab.frames import paired, select, summary
from entp_lab.measurements import Comparisons, Findings, Paired, levels, measured
from entp_lab.store import Record, Records
from entp_papers.entp import count3, match3
from entp_papers.entp.addition.experiment import SCALE, chosen, scores
from entp_papers.entp.closed import closed
from entp_papers.entp.language import experiment as language
from entp_papers.entp.language.tables import LAST, LOWEST, minima

DECODERS = ("decoder", EQUAL_OPERATIONS)  # arms that ENTP is compared with

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

# Decoder − ENTP in the lowest losses at a rising learning rate, as in the paper's Table 3.
MEASURE_RISING = replace(
    MEASURE_TEXT,
    claims=(
        Paired("T3-loss", LOWEST, "decoder", "entp"),
        Paired("T3-train", "lowest training loss", "decoder", "entp"),
    ),
)

WHOLE = 0.95  # share of whole sequences: the first evaluation that has it is timed
# Match3′ half-way, at the 2,000 steps of ``match3``, whose ENTP has the learning rate of its own
# trial run. The decoder is tried at lower rates: its rate is the one with the most whole sequences,
# or the lowest of several such.
PAIRED_RATES = (3e-4, 1e-3)  # learning rates at which the decoders have five pairs


def rates_by_sequences(records: Records) -> dict[str, float]:
    """Return each decoder's learning rate: in its trial runs, the one with most whole sequences.

    Of rates within 0.005 of the most, the lowest is chosen. An arm without trial runs has no entry.
    """
    found = {}
    for arm in DECODERS:
        if pilot := select(records, arm=arm, seed=TRIAL_SEED):
            scores = summary(pilot).set_index("rate")["sequence_accuracy"]
            found[arm] = float(min(scores[scores >= scores.max() - 0.005].index))
    return found


def measure_own_rates(records: Records) -> Findings:
    """Measure ENTP − decoder in whole sequences, the decoder at the rate nearest to its trial's."""
    entp = select(records, arm="entp")
    claims = {"decoder": "T2-sequences", EQUAL_OPERATIONS: "T2-operations-sequences"}
    for arm, rate in rates_by_sequences(records).items():
        nearest = min(PAIRED_RATES, key=lambda tried: abs(math.log(tried / rate)))
        decoders = select(records, arm=arm, rate=nearest)
        decoders = [run for run in decoders if run.labels["seed"] != TRIAL_SEED]
        row = Paired(claims[arm], "sequence_accuracy", "entp", arm)
        judge = Comparisons((row,), near=match3.NEAR, excluded=match3.excluded)
        pairs = [*decoders, *entp]
        yield from judge(pairs)
        if arm == "decoder":
            yield measured("T2-half-area", area_leads(pairs, arm), pairs)


AREA_TO = 5000  # ENTP's steps over which the area is taken


def area_leads(records: Records, other: str) -> pd.Series:
    """Return ENTP's mean lead in whole sequences over its first ``AREA_TO`` steps, by seed.

    That is the area between its curve and another arm's. If the other arm's schedule has more
    steps, its curve is compressed to ENTP's length.
    """
    found = {}
    others = {run.labels["seed"]: run for run in select(records, arm=other)}
    for entp in select(records, arm="entp", seed=tuple(others)):
        seed = entp.labels["seed"]
        decoder = others[seed]
        steps = np.asarray(entp.curves["step"], dtype=float)
        steps = steps[steps <= AREA_TO]
        stretch = decoder.config.train.steps / entp.config.train.steps
        lead = whole_sequences_at(entp, steps) - whole_sequences_at(decoder, steps * stretch)
        found[seed] = float(lead.mean())
    return pd.Series(found, dtype=float)


def whole_sequences_at(record: Record, steps: np.ndarray) -> np.ndarray:
    """Return the interpolated share of whole sequences at given steps."""
    return np.interp(steps, record.curves["step"], record.curves["sequence_accuracy"])


def measure_ways(records: Records) -> Findings:
    """Measure which model gets there first and which leads on the way, at equal steps and compute.

    The first is decoder − ENTP in the log cost of ``WHOLE`` of the sequences, without pairs in
    which neither run gets there; the second is ENTP's mean lead in whole sequences. Each model has
    its own learning rate.
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


@dataclass(frozen=True)
class MeasureInOrder:
    """Measure ENTP's mean lead in whole sequences over the run, of numbers in an order."""

    claim: str

    def __call__(self, records: Records) -> Findings:
        pairs = [run for run in records if run.labels["seed"] != TRIAL_SEED]
        leads = area_leads(pairs, "decoder")
        if len(leads):
            yield measured(self.claim, leads, pairs)


MEASURE_MATCH3 = Comparisons(
    (
        Paired("T2-end", "sequence_accuracy", "entp", "decoder"),
        Paired("T2-end-operations", "sequence_accuracy", "entp", EQUAL_OPERATIONS),
    ),
    near=match3.NEAR,
    others=(measure_ways, match3.printed),
)


def measure_windows(records: Records) -> Findings:
    """Measure decoder − ENTP in test error by the authors' checkpoint rule.

    One decoder is trained on all characters, the other on those that ENTP is trained on.
    """
    scored = scores(records)
    for claim, decoder in (("F5-windows", "decoder"), ("F5-windows-drawn", SAME_PREFIXES)):
        arms = (decoder, "entp")
        kept = chosen(scored, "lowest_text_loss")
        values = paired(kept, "error", *arms)
        if len(values):
            sides = levels(kept, "error", arms, **SCALE)
            yield measured(claim, values, select(records, arm=arms), levels=sides)


TEXT_POSITIONS = closed(
    "openwebtext_positions",
    "Language modelling on all positions",
    "09_openwebtext",
    MEASURE_TEXT,
    paper_runs_of="openwebtext",
)
# The falling rate is 3e-3 for each model, as ``openwebtext_positions`` has it.
TEXT_FALLING = closed(
    "text_falling_rates",
    "Language modelling on all positions: which falling rate suits which arm",
    "09_openwebtext",
    paper_runs_of="openwebtext",
    seeded=False,
)
TEXT_RISING_RATE = closed(
    "text_rising_rate",
    "Language modelling on all positions, the learning rate rising as in the authors' file",
    "09_openwebtext",
    MEASURE_RISING,
    paper_runs_of="openwebtext",
)
MATCH3_RATES = closed(
    "match3_rates",
    "Match3′ to its end: which rate suits which arm",
    "06_match3",
    paper_runs_of="match3",
    seeded=False,
)
MATCH3_OWN_RATES = closed(
    "match3_own_rates",
    "Match3′ half-way, the decoder at its own rate",
    "06_match3",
    measure_own_rates,
    paper_runs_of="match3",
)
MATCH3_ASCENDING = closed(
    "match3_ascending",
    "Match3′ with its numbers in ascending order, each model at its own rate",
    "06_match3",
    MeasureInOrder("T2-ascending"),
    paper_runs_of="match3",
)
MATCH3_EITHER_WAY = closed(
    "match3_either_way",
    "Match3′ with its numbers in ascending or descending order, each model at its own rate",
    "06_match3",
    MeasureInOrder("T2-either-way"),
    paper_runs_of="match3",
)
MATCH3_END = closed(
    "match3_end",
    "Match3′ to its end, each arm at its own rate",
    "06_match3",
    MEASURE_MATCH3,
    paper_runs_of="match3",
)
ADDITION_WINDOWS = closed(
    "addition_windows",
    "Addition on the authors' windows, by checkpoint rule",
    "07_addition",
    measure_windows,
    paper_runs_of="addition",
)
