"""ENTP minus decoder, task by task, at equal steps, multiply-adds and token-forwards, on one scale.

Equal multiply-adds are the budget that counts; token-forwards are used where no decoder had as many multiply-adds.

Differences come in accuracies, errors, squared errors and nats. Divided by the distance from what guessing gets to a
perfect score (the ``scale`` of a ledger's row; a loss of 0, too, which on text nobody can have) they are shares of one
way, and positive means that ENTP is ahead.
Which claim or question answers for which task is ``results/reference/<paper>/comparisons.csv``.
"""

import pandas as pd

from entp_lib import paths
from entp_lib.experiments.claims import OPEN, UNINFORMATIVE, answer, reference_claims
from entp_lib.experiments.measurements import MIN_PAIRS
from entp_lib.files import read_table
from entp_lib.statistics import exceeds, holm, p_value

BUDGETS = {
    "equal_steps": "equal steps",
    "equal_multiply_adds": "equal multiply-adds",
    "equal_token_forwards": "equal token-forwards",
}
AHEAD, BEHIND, NOT_RUN = "ENTP ahead", "decoder ahead", "not run yet"


def tasks() -> pd.DataFrame:
    """Every task with its claims at equal steps and, where there are any, at the other budgets, of all papers."""
    found = [
        read_table(path, ["task", *BUDGETS, "drawn_as"], needed=("task", "equal_steps"))
        for path in sorted(paths.reference().glob("*/comparisons.csv"), key=lambda p: (p.parent.name != "entp", p))
    ]
    return pd.concat(found, ignore_index=True)


def comparisons(ledger: pd.DataFrame) -> pd.DataFrame:
    """A row for each task and budget: value, low, high and margin in shares, answer, tier, seeds, claim and records.

    ``ledger`` is that of ``entp_lib.reports.ledger``, of one moment. KeyError for a claim that it does not have.
    """
    rows, margins = ledger.set_index("id"), reference_claims().set_index("id")["margin"]
    found = []
    for task in tasks().to_dict("records"):
        for column, budget in BUDGETS.items():
            if pd.isna(task[column]):
                continue
            row = rows.loc[task[column]]
            found.append(
                {
                    "task": task["task"],
                    "drawn_as": "" if pd.isna(task["drawn_as"]) else task["drawn_as"],
                    "budget": budget,
                    **{k: row[name] / row["scale"] for k, name in SHARES.items()},
                    "margin": margins[task[column]] / row["scale"],
                    "answer": who_is_ahead(row, margins[task[column]]),
                    **{name: row[name] for name in ("tier", "seeds", "records")},
                    "claim": task[column],
                }
            )
    return pd.DataFrame(found)


SHARES = {"value": "our_value", "low": "low", "high": "high"}


def who_is_ahead(row: pd.Series, margin: float) -> str:
    """Who is ahead, by the rule of our own questions, whether a paper claims it or not; open where its verdict is."""
    undecided = {"not attempted": NOT_RUN, "inconclusive": OPEN, OPEN: OPEN, UNINFORMATIVE: UNINFORMATIVE}
    if row["verdict"] in undecided:
        return undecided[row["verdict"]]
    words = dict(positive=AHEAD, negative=BEHIND)
    return answer(row["low"], row["high"], pairs=int(row["seeds"]), margin=margin, **words)


def together(table: pd.DataFrame) -> str:
    """Correct ``comparisons`` for the number of intervals by Holm's method; the result as a sentence.

    Rows that are uninformative compare nothing and are left out.
    """
    measured = table[table["low"].notna() & (table["seeds"] >= MIN_PAIRS) & (table["answer"] != UNINFORMATIVE)]
    p_values = [p_value(row.value, row.low, row.high, int(row.seeds)) for row in measured.itertuples()]
    alone = exceeds(measured["low"], 0) | exceeds(0, measured["high"])
    kept = measured[holm(p_values)]
    names = [f"{task} ({', '.join(part['budget'])})" for task, part in kept.groupby("task", sort=False)]
    return (
        f"{len(measured)} intervals, {alone.sum()} of which exclude zero; by Holm's correction for all of them "
        f"{len(kept)} remain: {'; '.join(names) or 'none'}"
    )
