"""The ledger as pictures: verdicts on claims, and what full attention buys."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from entp_lib.experiments.figures import PALETTE, panels

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
EQUAL_STEPS, EQUAL_MULTIPLY_ADDS = "equal steps", "equal multiply-adds"


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


def bought(table: pd.DataFrame) -> Figure:
    """Draw ENTP's lead over a decoder: a row per task, equal steps beside equal multiply-adds, coloured by answer.

    ``table``: columns drawn_as, budget, value, low, high (shares of the way from guessing to a perfect score), answer;
    of what was run. Rows without ``drawn_as`` are left out. A hollow mark is at equal token-forwards, which stand where
    no decoder had ENTP's multiply-adds.
    """
    table = table[table["drawn_as"] != ""]
    places = {task: row for row, task in enumerate(dict.fromkeys(table["drawn_as"]))}
    fig, axes = panels(2, width=3.6, height=0.9 + 0.27 * len(places), sharey=True, sharex=True)
    for row in table.itertuples():
        ax, at, colour = axes[int(row.budget != EQUAL_STEPS)], places[row.drawn_as], ANSWER_COLOURS[row.answer]
        if pd.notna(row.low):
            ax.plot([row.low, row.high], [at, at], color=colour, lw=2)
        full = colour if row.budget != "equal token-forwards" else "white"
        ax.plot([row.value], [at], "o", ms=6, color=colour, mfc=full)
    for ax, title in zip(axes, (EQUAL_STEPS, EQUAL_MULTIPLY_ADDS), strict=True):
        ax.axvline(0, color="grey", lw=0.8)
        ax.set_title(title)
    axes[0].set_yticks(range(len(places)), [name[:1].upper() + name[1:] for name in places])
    axes[0].set_ylim(max(len(places), 1) - 0.5, -0.5)
    fig.supxlabel("← decoder ahead    (share of the way from guessing to a perfect score)    ENTP ahead →", fontsize=9)
    seen = set(table["answer"])
    handles = [Line2D([], [], color=c, marker="o", lw=2, label=a) for a, c in ANSWER_COLOURS.items() if a in seen]
    if "equal token-forwards" in set(table["budget"]):
        handles.append(Line2D([], [], color="k", marker="o", mfc="white", lw=0, label="hollow: equal token-forwards"))
    fig.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return fig
