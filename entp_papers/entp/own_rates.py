"""Each model at its own constant learning rate: text, linear functions, and sets of numbers never
seen together.

The learning rate is constant after the warm-up, so that every point of a curve is a finished run of
that many steps. Trial runs of each model and rate (random seed 100) choose the rates of the five
pairs, by a rule written beforehand (docs/journal/deciding_runs.md). The decoder's rate is chosen at
the end of a run with ENTP's multiply-adds. After as many steps as ENTP's, the same trial may choose
another rate; for text and linear functions, decoders with that rate give a separate comparison at
equal steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from entp_lab.budgets import EQUAL_OPERATIONS, step_operations
from entp_lab.configs import Json
from entp_lab.experiment import TRIAL_SEED
from entp_lab.frames import select
from entp_lab.measurements import Findings, Level, measured
from entp_lab.store import Record, Records
from entp_papers.entp import count3
from entp_papers.entp.closed import closed
from entp_papers.entp.count3_steps import LAST_EVALUATIONS, score_at
from entp_papers.entp.in_context.experiment import LEARNED, task_of

AS_GOOD = 0.01  # relative to the lowest loss: of the rates this close to it, the lowest is chosen
DECODERS = {"arm": EQUAL_OPERATIONS}  # labels of the decoders that ENTP is compared with by default


def chosen_rates(records: Records) -> dict[str, float]:
    """Return for each model the learning rate that its trial runs choose.

    It is the lowest rate whose loss, the mean of the last three evaluations, is within 1 % of the
    best loss. A model without trial runs has no entry.
    """
    found = {}
    for name in ("entp", EQUAL_OPERATIONS):
        trials = select(records, arm=name, seed=TRIAL_SEED)
        losses = {run.labels["rate"]: score_at(run, "loss", math.inf) for run in trials}
        if losses:
            near = min(losses.values()) * (1 + AS_GOOD)
            found[name] = min(rate for rate, loss in losses.items() if loss <= near)
    return found


def steps_to(loss: float, run: Record) -> tuple[int, bool]:
    """Return a run's steps to a loss, and whether it gets there; if not, its last step.

    Losses are means of three evaluations.
    """
    means = pd.Series(run.curves["loss"]).rolling(LAST_EVALUATIONS).mean()
    steps = pd.Series(run.curves["step"])
    arrived = steps[means <= loss * (1 + 1e-12)]  # sums differ in the last bit
    return (int(steps.iloc[-1]), False) if arrived.empty else (int(arrived.iloc[0]), True)


def mean_until(record: Record, metric: str, last: int, window: int) -> float:
    """Return the mean of a curve's points in the ``window`` steps up to ``last``, both ends in."""
    curve = pd.Series(record.curves[metric], index=record.curves["step"])
    return float(curve.loc[last - window : last].mean())


def compared(records: Records, metric: str = "loss", **decoder: Any) -> pd.DataFrame:
    """Return a row for each random seed with a pair, trial runs left out.

    ``decoder``: labels of the decoders, with ``rate`` if their pairs have several rates; by default
    they have ENTP's multiply-adds.

    ``steps`` and ``multiply-adds`` are what the decoder spends until it first has ENTP's final
    loss, divided by what ENTP spends until it first has it; ``reached`` says whether the decoder
    gets there. ``equal steps`` and ``equal multiply-adds`` are ENTP's lead in ``metric``; ``ENTP's
    end`` is its final score. These are means over as many steps of both models, which hold the last
    three evaluations of the model that has fewer.
    """
    rows = {}
    decoders = select(records, **(DECODERS | decoder))
    sign = 1 if metric == "loss" else -1
    for entp in select(records, arm="entp"):
        seed = entp.labels["seed"]
        twin = select(decoders, seed=seed)
        if seed == TRIAL_SEED or not twin:
            continue
        decoder = twin[0]
        end = entp.curves["step"][-1]
        loss = score_at(entp, "loss", math.inf)
        steps, reached = steps_to(loss, decoder)
        own, _ = steps_to(loss, entp)
        price = step_operations(decoder.config) / step_operations(entp.config)
        spacings = [run.curves["step"][1] - run.curves["step"][0] for run in (decoder, entp)]
        window = (LAST_EVALUATIONS - 1) * max(spacings)
        score = mean_until(entp, metric, end, window)
        equal_steps = mean_until(decoder, metric, end, window)
        equal_compute = mean_until(decoder, metric, decoder.curves["step"][-1], window)
        rows[seed] = {
            "steps": steps / own,
            "multiply-adds": steps / own * price,
            "reached": reached,
            "equal steps": sign * (equal_steps - score),
            "equal multiply-adds": sign * (equal_compute - score),
            "ENTP's end": score,
        }
    columns = [*SHOWN, "reached", "ENTP's end"]
    return pd.DataFrame(list(rows.values()), list(rows), columns)


SHOWN = {
    "steps": "decoder's steps to ENTP's final loss (ENTP: 1)",
    "multiply-adds": "decoder's compute to that loss (ENTP: 1)",
    "equal steps": "decoder's loss − ENTP's, equal steps",
    "equal multiply-adds": "decoder's loss − ENTP's, equal compute",
}


def spread(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the columns' mean, lowest and highest values as text, for tables of ``compared``."""

    def shown(values: pd.Series) -> str:
        if values.isna().all():
            return "not run"
        return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"

    columns = {name: table[list(SHOWN)].agg(shown) for name, table in tables.items()}
    return pd.DataFrame(columns).rename(SHOWN)


@dataclass(frozen=True)
class Measure:
    """Measure which model needs fewer steps and multiply-adds, and which leads at equal numbers.

    ``claim``: what the names of the claims begin with. ``metric``: the score of the lead, divided
    by E[y²] if ``normalised``. ``level``: floor, ceiling and distance of a ``Level``, if the lead
    is drawn as a share of the way from guessing to the best possible; the default floor is the
    records' baseline. ``early``: labels of the decoders whose rate the trial chooses after as many
    steps as ENTP's.
    """

    claim: str
    metric: str = "loss"
    normalised: bool = False
    level: Json = field(default_factory=dict)
    early: Json = field(default_factory=dict)

    def __call__(self, records: Records) -> Findings:
        rates = chosen_rates(records)
        late = DECODERS | ({"rate": rates[EQUAL_OPERATIONS]} if EQUAL_OPERATIONS in rates else {})
        table = compared(records, self.metric, **late)
        if table.empty:
            return
        pairs = with_entp(records, table, late)
        unit = task_of(pairs[0]).normaliser if self.normalised else 1.0
        early = sum(~table["reached"])
        remark = f"{early} of {len(table)} decoders end before they have it" if early else ""
        for name, column in (("speed", "steps"), ("cost", "multiply-adds")):
            values = table[column].map(math.log)
            yield measured(f"{self.claim}-{name}", values, pairs, cut=early > 0, remark=remark)
        leads = [("steps", "equal steps", late), ("operations", "equal multiply-adds", late)]
        if self.early:
            leads.append(("equal", "equal steps", DECODERS | self.early))
        for name, column, decoder in leads:
            table = compared(records, self.metric, **decoder)
            if not table.empty:
                pairs = with_entp(records, table, decoder)
                lead = table[column] / unit
                levels = self.levels(pairs, table["ENTP's end"] / unit, lead)
                yield measured(f"{self.claim}-{name}", lead, pairs, levels=levels)

    def levels(self, pairs: Records, entp: pd.Series, lead: pd.Series) -> tuple[Level, ...]:
        """Return both models' mean scores, the decoder's first; none if ``level`` is empty."""
        if not self.level:
            return ()
        floors = pd.Series([run.metrics["baseline"].get(self.metric) for run in pairs])
        decoder = entp + lead if self.metric == "loss" else entp - lead
        level = {"floor": floors.mean(), **self.level}
        return Level(decoder.mean(), **level), Level(entp.mean(), **level)


def with_entp(records: Records, table: pd.DataFrame, decoder: Json) -> list[Record]:
    """Return the runs that a table of ``compared`` rests on."""
    arms = (dict(arm="entp"), decoder)
    seeds = tuple(table.index)
    return [run for arm in arms for run in select(records, seed=seeds, **arm)]


TEXT_OWN_RATES = closed(
    "text_own_rates",
    "Language modelling on all positions, each model at its own constant learning rate",
    "09_openwebtext",
    Measure("T3-own", early=dict(arm="decoder")),
    paper_runs_of="openwebtext_positions",
)
LINEAR_OWN_RATES = closed(
    "linear_own_rates",
    "Linear functions in three dimensions, each model at its own constant learning rate",
    "08_in_context_learning",
    Measure(
        "F7-own",
        normalised=True,
        level=dict(floor=1.0, ceiling=1 / 3, distance=LEARNED),  # least squares leaves a third
        early=dict(rate=1e-3),
    ),
    paper_runs_of="in_context",
)
SETS_OWN_RATES = closed(
    "sets_own_rates",
    "Count3 on numbers never seen together, each model at its own constant learning rate",
    "03_count3",
    Measure("F2-sets-own", "token_accuracy", level=dict(ceiling=1.0, distance=count3.NEAR)),
    paper_runs_of="count3_unseen_sets",
)
