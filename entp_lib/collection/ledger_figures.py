"""The ledger as pictures: verdicts on claims, and what full attention buys."""

import pandas as pd
from matplotlib.lines import Line2D

from entp_lib.collection.figures import PALETTE

VERDICT_COLOURS = {
    "reproduced": "#009E73",
    "same direction": "#56B4E9",
    "not reproduced": "#D55E00",
    "inconclusive": "#7F7F7F",
    "uninformative": "#C8C8C8",
}
ANSWER_COLOURS = {
    "ENTP ahead": PALETTE["entp"],
    "decoder ahead": PALETTE["decoder"],
    "equal within the margin": "#000000",
    "open": "#7F7F7F",
    "uninformative": "#C8C8C8",
}
BUDGET_MARKERS = {"equal steps": ("o", -0.2), "equal multiply-adds": ("s", 0.0), "equal token-forwards": ("D", 0.2)}


def forest(ax, ledger: pd.DataFrame) -> None:
    """The ledger as a picture: our mean and interval coloured by verdict, the paper's value as a cross.

    ``ledger``: rows with a value.
    """
    for row, claim in enumerate(ledger.itertuples()):
        colour = VERDICT_COLOURS[claim.verdict]
        ax.plot([claim.low, claim.high], [row, row], color=colour, lw=2)
        ax.plot([claim.our_value], [row], "o", ms=5, color=colour)
        if pd.notna(claim.paper_value):
            ax.plot([claim.paper_value], [row], "x", ms=6, color=PALETTE["paper"])
    ax.axvline(0, color="grey", lw=0.8)
    names = [f"{c.id} ({c.tier}, {c.seeds})" for c in ledger.itertuples()]
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="difference that the claim is about, in its unit", ylim=(max(len(names), 1) - 0.5, -0.5))
    handles = [Line2D([], [], color=c, marker="o", lw=2, label=v) for v, c in VERDICT_COLOURS.items()]
    handles.append(Line2D([], [], color="black", marker="x", lw=0, label="the paper's value"))
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))


def bought(ax, table: pd.DataFrame) -> None:
    """What full attention buys: a row per task, a mark for each budget, coloured by answer.

    ``table``: columns task, budget, value, low, high, margin (shares of the way from guessing to the best), answer,
    tier; of what was run. Below its margin, drawn as two grey ticks, a difference counts as none.
    """
    places = {task: row for row, task in enumerate(dict.fromkeys(table["task"]))}
    for row in table.itertuples():
        marker, shift = BUDGET_MARKERS[row.budget]
        at, colour = places[row.task] + shift, ANSWER_COLOURS[row.answer]
        if pd.notna(row.low):
            ax.plot([row.low, row.high], [at, at], color=colour, lw=1.8)
        ax.plot([-row.margin, row.margin], [at, at], "|", color="#9A9A9A", ms=7, mew=1.2, zorder=1)
        ax.plot([row.value], [at], marker, ms=5, color=colour)
    ax.axvline(0, color="grey", lw=0.8)
    tiers = table.groupby("task", sort=False)["tier"].agg(lambda found: ", ".join(dict.fromkeys(found)))
    ax.set_yticks(range(len(places)), [f"{task} ({tiers[task]})" for task in places])
    ax.set(xlabel="← decoder ahead      share of the way from guessing to a perfect score      ENTP ahead →")
    ax.set_ylim(max(len(places), 1) - 0.4, -0.6)
    handles = [Line2D([], [], color=c, lw=3, label=answer) for answer, c in ANSWER_COLOURS.items()]
    handles.append(Line2D([], [], color="#9A9A9A", marker="|", ls="none", ms=7, label="± margin"))
    budgets = {b: m for b, (m, _) in BUDGET_MARKERS.items() if b in set(table["budget"])}
    handles += [Line2D([], [], color="k", marker=m, lw=0, ms=5, label=b) for b, m in budgets.items()]
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))
