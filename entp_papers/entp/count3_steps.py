"""Count3 on new sequences: steps of a decoder and of ENTP to the same loss.

A first test (the gate) has seven settings and asks in which of them ENTP pulls ahead between two
losses: that of a predictor that sees x_n only, and that of the best predictor that looks at no pair
(the pairless bound). Pairs of runs in one setting then go as far again beyond the bound. Designs,
hypotheses and rules were written before the first runs (docs/journal/deciding_runs.md).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean

import numpy as np
import pandas as pd

from entp_lab.budgets import step_operations
from entp_lab.configs import Json
from entp_lab.experiment import (
    TWINS,
    Experiment,
    PlannedRuns,
    planned,
    with_model,
    with_train,
)
from entp_lab.frames import published, select, summary
from entp_lab.measurements import Findings, measured
from entp_lab.store import Record, Records
from entp_papers.entp import count3
from entp_papers.entp.closed import closed
from entp_papers.entp.pairless import lookup

WAY = (0.5, 0.75, 1.0)  # shares of the way between the two losses at which step ratios are read
PARTS = 1.4  # mean step ratio, decoder over ENTP, above which the two models part


def steps_to_loss(record: Record, loss: float, smoothing: int = 3) -> float | None:
    """Return the interpolated step at which the held-out loss falls to ``loss``, or None if never.

    The loss is smoothed by a running mean over ``smoothing`` evaluations.
    """
    losses = (
        pd.Series(record.curves["loss"])
        .rolling(smoothing, min_periods=1)
        .mean()
        .cummin()
        .to_numpy()
    )
    steps = np.asarray(record.curves["step"], dtype=float)
    if losses[-1] > loss:
        return None
    return float(np.exp(np.interp(-loss, -losses, np.log(steps))))


def steps_to(
    records: Records, start: float, end: float, shares: Sequence[float], smoothing: int = 3
) -> pd.DataFrame:
    """Return both models' steps (columns) to held-out losses between ``start`` and ``end``.

    Rows are shares of the way between the two losses. There is one run per model, labelled by
    ``arm``; NaN if a run is missing or does not get there.
    """
    losses = [start + share * (end - start) for share in shares]
    found = {
        r.labels["arm"]: [steps_to_loss(r, loss, smoothing) for loss in losses] for r in records
    }
    return pd.DataFrame(found, index=list(shares), columns=list(TWINS), dtype=float)


def step_ratios(
    records: Records, start: float, end: float, shares: Sequence[float], smoothing: int = 3
) -> pd.Series:
    """Return a decoder's steps over ENTP's to the same held-out loss, by share (``steps_to``)."""
    steps = steps_to(records, start, end, shares, smoothing)
    return steps["decoder"] / steps["entp"]


def way_of(task: Json) -> tuple[float, float]:
    """Return two losses (nats) on a Count3 task: of knowing x_n only, and of the pairless bound."""
    bounds = lookup("counting", task)[0]
    return bounds["last"]["loss"], bounds["pairless"]["loss"]


def gate_row(runs: Records, start: float, end: float) -> Json:
    """Return both models' steps at the shares ``WAY`` from ``start`` to ``end``, and if they part.

    Losses are in nats. The models part if the geometric mean of the step ratios is above ``PARTS``.
    If ENTP does not get to a share, its last step is used, and the mean is an upper limit. Shares
    that the decoder does not reach are left out, and the answer says so; it is "open" if none is
    left.
    """
    steps = steps_to(runs, start, end, WAY)
    shown = steps.map(lambda count: "–" if math.isnan(count) else f"{count:,.0f}").agg(" · ".join)
    row = {"decoder": shown["decoder"], "ENTP": shown["entp"]}
    compared = steps[steps["decoder"].notna()]
    if compared.empty:
        return row | {"mean ratio": "–", "pulls ahead": "open"}
    last = select(runs, arm="entp")[0].curves["step"][-1]
    ratio = geometric_mean(compared["decoder"] / compared["entp"].fillna(last))
    limit = compared.isna().any(axis=None)
    answer = "no" if ratio <= PARTS else "open" if limit else "yes"
    if len(compared) < len(WAY):
        answer += f", to {compared.index[-1]:.0%} alone"
    return row | {"mean ratio": f"{'at most ' if limit else ''}{ratio:.2f}", "pulls ahead": answer}


# Count3 beyond the pairless bound, in the gate's setting nearest to the paper's whose ENTP ends
# within two hours. Runs go on until the loss is as far again beyond the bound; ``END_LOSS`` (nats)
# is a little further.
END_LOSS = 1.61
# By claim: a share of the way from the loss of x_n alone to the bound, and the cost compared there.
ENDS = {
    "F2-end-half": (0.5, "log_step"),
    "F2-end-speed": (1.0, "log_step"),
    "F2-end-beyond": (2.0, "log_step"),
    "F2-end-cost": (1.0, "log_operations"),
}


def plan_whole(tier: str, seeds: int) -> PlannedRuns:
    """Plan decoder, prefix decoder and ENTP by seed, set as in ``count3_end``, to 60,000 steps.

    The question is whether any of them ever learns even n, and whole sequences.
    """
    for run in select(COUNT3_END.plan(tier, seeds), arm="decoder"):
        base = replace(run.config, experiment="count3_whole")
        longer = with_train(base, steps=60_000, eval_every=200, stop_loss=None)
        for name in ("decoder", "prefix_decoder", "entp"):
            yield planned(with_model(longer, architecture=name))


def authors_log() -> list[Record]:
    """Return the authors' logged training losses on Count3, Medium: a record for each model.

    Each loss is the mean of three logged losses around its step, so that curves need no further
    smoothing.
    """
    log = published("entp", "count3_curves").query("size == 'medium'")
    records = []
    for arm, part in log.groupby("architecture"):
        smooth = part["train_loss"].rolling(3, center=True, min_periods=1).mean()
        curves = {"step": part["step"].tolist(), "loss": smooth.tolist()}
        records.append(Record("authors", 1, None, {}, curves, {}, labels={"arm": arm, "seed": 0}))
    return records


def authors_ratios(shares: Sequence[float]) -> pd.Series:
    """Return ``step_ratios`` of the authors' log, between the same two predictors on their task."""
    return step_ratios(authors_log(), *way_of(count3.PAPER_TASK), shares, smoothing=1)


LAST_EVALUATIONS = 3  # evaluations whose mean is the score at a step


def score_at(record: Record, metric: str, step: float) -> float:
    """Return the mean of the last ``LAST_EVALUATIONS`` values of a curve up to a step."""
    known = pd.Series(record.curves[metric], record.curves["step"]).loc[:step]
    return float(known.tail(LAST_EVALUATIONS).mean())


def leads_at_equal_budgets(records: Records, metric: str) -> pd.DataFrame:
    """Return ENTP − decoder in a score, by seed, after equal steps and after equal multiply-adds.

    The learning rate is constant, so that each point of a curve is a finished run. Equal steps are
    those of the shortest run; equal multiply-adds are what the decoder has spent by then.
    """
    steps = min(record.curves["step"][-1] for record in records)
    rows = {}
    for seed in sorted({record.labels["seed"] for record in records}):
        decoder, entp = (select(records, arm=arm, seed=seed)[0] for arm in TWINS)
        affordable = steps * step_operations(decoder.config) / step_operations(entp.config)
        base = score_at(decoder, metric, steps)
        rows[seed] = {
            "equal steps": score_at(entp, metric, steps) - base,
            "equal multiply-adds": score_at(entp, metric, affordable) - base,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def measure_end(records: Records) -> Findings:
    """Measure decoder − ENTP in the log cost to the losses of ``ENDS``, and ENTP's lead in tokens.

    A run that does not reach a loss counts with its last step; pairs in which neither run does are
    dropped. The lead is in token accuracy at equal budgets.
    """
    start, bound = way_of(records[0].config.task_params)
    for claim, (share, cost) in ENDS.items():
        loss = start + share * (bound - start)
        steps = [steps_to_loss(run, loss) for run in records]
        values = count3.lead(count3.arrivals_at(records, steps), cost=cost)
        if len(values):
            yield measured(claim, values, records)
    leads = leads_at_equal_budgets(records, "token_accuracy")
    levels = count3.above_mode(summary(records), TWINS)
    yield measured("F2-end-tokens", leads["equal steps"], records, levels=levels)
    yield measured("F2-end-tokens-operations", leads["equal multiply-adds"], records, levels=levels)


COUNT3_GATE = closed(
    "count3_gate",
    "Count3: where ENTP might part from the decoder",
    "03_count3",
    paper_runs_of="count3",
    seeded=False,
)
COUNT3_END = closed(
    "count3_end",
    "Count3 beyond the pairless bound: who needs fewer steps",
    "03_count3",
    measure_end,
    paper_runs_of="count3",
)
COUNT3_WHOLE = Experiment(
    "count3_whole",
    1,
    "Count3 of length 16 to its end: even n and whole sequences",
    "03_count3",
    plan_whole,
    paper_runs_of="count3",
)
