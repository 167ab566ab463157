"""Each model at its own constant learning rate: text, linear functions, and sets of numbers never
seen together.

The learning rate stays where the warm-up ends, so that every point of a curve is a finished run of
that many steps: one decoder, with the multiply-adds of ENTP, gives the comparison at equal steps,
too. A trial run of each model and rate (random seed 100) chooses the rates of the five pairs, by a
rule written before it (docs/journal/deciding_runs.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from entp_lab.budgets import EQUAL_OPERATIONS, equal_operations, step_operations
from entp_lab.configs import RunConfig
from entp_lab.experiment import (
    TRIAL_SEED,
    Arm,
    Closed,
    Experiment,
    PlannedRun,
    PlannedRuns,
    planned,
    with_train,
)
from entp_lab.frames import select
from entp_lab.measurements import Level, Measurement, measured
from entp_lab.store import Record
from entp_papers.entp import count3, deciding
from entp_papers.entp.count3_steps import LAST_EVALUATIONS, score_at
from entp_papers.entp.in_context.experiment import LEARNED, task_of

AS_GOOD = 0.01  # of the lowest loss: of rates that come so near to it the lowest is chosen
ARMS = {
    "entp": Arm("entp"),
    EQUAL_OPERATIONS: Arm("decoder", equal_operations),
    "decoder": Arm("decoder"),
}


# Of text, by model: the rates that its trial runs have, one more where the choice is an end of
# those, and the rate of the five pairs. The rate of a decoder with ENTP's steps is what the same
# rule chooses at that point of the decoders' trial.
RATES = (6e-4, 1e-3, 3e-3)
BEYOND = {EQUAL_OPERATIONS: 2e-4}
CHOSEN = {"entp": 1e-3, EQUAL_OPERATIONS: 6e-4, "decoder": 1e-3}


def plan_text(tier: str, seeds: int) -> PlannedRuns:
    """Plan text on all positions by rate and random seed: ENTP, and a decoder with ENTP's
    multiply-adds.
    """
    for few in select(deciding.TEXT_POSITIONS.plan(tier, seeds or 5), arm="entp"):
        base = replace(few.config, experiment="text_own_rates")
        seed = few.labels["seed"]
        trial = [(name, rate) for rate in RATES for name in ("entp", EQUAL_OPERATIONS)] + list(
            BEYOND.items()
        )
        if not seed:
            yield from [own_rate_run(base, *each, TRIAL_SEED) for each in trial]
        yield from [own_rate_run(base, *each, seed) for each in CHOSEN.items()]


def own_rate_run(base: RunConfig, name: str, rate: float, seed: int) -> PlannedRun:
    """Plan one model at one rate, which is constant after the warm-up."""
    config = ARMS[name].run(with_train(base, max_lr=rate, min_lr=rate), seed)
    if name == EQUAL_OPERATIONS:
        config = with_train(config, eval_every=200)
    return planned(config, arm=name, rate=rate)


def chosen_rates(records: Sequence[Record]) -> dict[str, float]:
    """Return for each model the rate that its trial runs choose.

    That is the lowest whose loss, the mean of the last three evaluations, is within 1 % of the
    best. A model without trial runs has no entry.
    """
    found = {}
    for name in ARMS:
        trials = select(records, arm=name, seed=TRIAL_SEED)
        losses = {run.labels["rate"]: score_at(run, "loss", math.inf) for run in trials}
        if losses:
            near = min(losses.values()) * (1 + AS_GOOD)
            found[name] = min(rate for rate, loss in losses.items() if loss <= near)
    return found


def steps_to_equal_loss(decoder: Record, entp: Record) -> tuple[int, bool]:
    """Return the decoder's steps to the loss that ENTP has at its end, and whether it comes so far.

    Losses are means of three evaluations. A decoder that does not come so far counts with its last
    step.
    """
    end = score_at(entp, "loss", math.inf)
    means = pd.Series(decoder.curves["loss"]).rolling(LAST_EVALUATIONS).mean()
    steps = pd.Series(decoder.curves["step"])
    arrived = steps[means <= end]
    return (int(steps.iloc[-1]), False) if arrived.empty else (int(arrived.iloc[0]), True)


def compared(
    records: Sequence[Record],
    metric: str = "loss",
    rate: float | None = None,
    arm: str = EQUAL_OPERATIONS,
) -> pd.DataFrame:
    """Return a row for each random seed with a pair, trial runs left out.

    ``rate``: the decoder's; None where its pairs have one rate alone. ``arm``: which decoder.

    ``steps`` and ``multiply-adds`` are what the decoder spends to the loss of ENTP's end, over what
    ENTP spends; ``reached`` says whether it comes there. ``equal steps`` and ``equal
    multiply-adds`` are ENTP's lead in ``metric``, ``ENTP's end`` is its score.
    """
    rows = {}
    decoders = select(records, **({} if rate is None else {"rate": rate}))
    sign = 1 if metric == "loss" else -1
    for entp in select(records, arm="entp"):
        seed = entp.labels["seed"]
        twin = select(decoders, arm=arm, seed=seed)
        if seed == TRIAL_SEED or not twin:
            continue
        decoder = twin[0]
        end = entp.curves["step"][-1]
        steps, reached = steps_to_equal_loss(decoder, entp)
        price = step_operations(decoder.config) / step_operations(entp.config)
        score = score_at(entp, metric, end)
        rows[seed] = {
            "steps": steps / end,
            "multiply-adds": steps / end * price,
            "reached": reached,
            "equal steps": sign * (score_at(decoder, metric, end) - score),
            "equal multiply-adds": sign * (score_at(decoder, metric, math.inf) - score),
            "ENTP's end": score,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


@dataclass(frozen=True)
class Measure:
    """Measure who needs fewer steps and fewer multiply-adds, and who is ahead at equal ones.

    ``claim``: what the names of the four claims begin with. ``metric``: in what one is ahead; with
    ``normalised`` it is divided by E[y²]. ``level``: floor, ceiling and distance of a ``Level``,
    where the lead is drawn as a share of the way from guessing to the best there is; without a
    floor that of the records' baseline.
    """

    claim: str
    metric: str = "loss"
    normalised: bool = False
    level: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, records: Sequence[Record]) -> list[Measurement]:
        table = compared(records, self.metric, chosen_rates(records).get(EQUAL_OPERATIONS))
        if table.empty:
            return []
        pairs = [run for run in records if run.labels["seed"] in table.index]
        unit = task_of(pairs[0]).normaliser if self.normalised else 1.0
        values = {
            "speed": table["steps"].map(math.log),
            "cost": table["multiply-adds"].map(math.log),
        }
        found = [measured(f"{self.claim}-{name}", each, pairs) for name, each in values.items()]
        for name, column in (("steps", "equal steps"), ("operations", "equal multiply-adds")):
            lead = table[column] / unit
            entp = table["ENTP's end"].mean() / unit
            decoder = entp + (lead.mean() if self.metric == "loss" else -lead.mean())
            ends = []
            if self.level:
                floors = [run.metrics["baseline"].get(self.metric) for run in pairs]
                level = {"floor": pd.Series(floors).mean(), **self.level}
                ends = [Level(score, **level) for score in (decoder, entp)]
            found.append(measured(f"{self.claim}-{name}", lead, pairs, levels=tuple(ends)))
        short = compared(
            records, self.metric, arm="decoder"
        )  # their rate is chosen for ENTP's steps
        if not short.empty:
            pairs = select(records, arm=("entp", "decoder"), seed=tuple(short.index))
            found.append(measured(f"{self.claim}-equal", short["equal steps"] / unit, pairs))
        return found


TEXT_OWN_RATES = Experiment(
    "text_own_rates",
    1,
    "Language modelling on all positions, each model at its own constant learning rate",
    "09_openwebtext",
    plan_text,
    Measure("T3-own"),
    paper_runs_of="openwebtext_positions",
)
LINEAR_OWN_RATES = Experiment(
    "linear_own_rates",
    1,
    "Linear functions in three dimensions, each model at its own constant learning rate",
    "08_in_context_learning",
    Closed("linear_own_rates"),
    Measure("F7-own", normalised=True, level=dict(floor=1.0, ceiling=0.0, distance=LEARNED)),
    paper_runs_of="in_context",
)
SETS_OWN_RATES = Experiment(
    "sets_own_rates",
    1,
    "Count3 on numbers never seen together, each model at its own constant learning rate",
    "03_count3",
    Closed("sets_own_rates"),
    Measure("F2-sets-own", "token_accuracy", level=dict(ceiling=1.0, distance=count3.NEAR)),
    paper_runs_of="count3_unseen_sets",
)
