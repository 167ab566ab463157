"""The ledger as pictures: verdicts on claims, and what full attention buys."""

import re
import textwrap
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from entp_lab.figures import PALETTE, bars, panels

# No architecture's colours: orange and blue say who is ahead, and nothing else.
VERDICT_COLOURS = {
    "reproduced": "#117733",
    "same direction": "#44AA99",
    "not reproduced": "#882255",
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
EQUAL_STEPS = "equal steps"


def short(statement: str, width: int = 52, lines: int = 2) -> str:
    """Return a claim's statement without what stands in brackets, on at most ``lines`` of ``width`` characters."""
    plain = re.sub(r"\s*(\([^()]*\)|\[[^\]]*\])", "", statement)
    return textwrap.fill(plain, width, max_lines=lines, placeholder=" …")


def by_task(ledger: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return measured rows by task and unit, which alone share an axis, in the order of notebooks."""
    ledger = ledger.sort_values("notebook", kind="stable")
    task = ledger["notebook"].str.partition("_")[2].str.replace("_", " ") + " (" + ledger["unit"].fillna("share") + ")"
    return dict(list(ledger.groupby(task, sort=False)))


def forest(ledger: pd.DataFrame) -> Figure:
    """Draw the ledger's rows with a value, by task: mean and interval coloured by verdict, a cross for the paper's."""
    tasks = by_task(ledger)
    heights = [len(part) + 1.2 for part in tasks.values()]
    fig, axes = panels(1, max(len(tasks), 1), width=8.5, height=0.36 * max(sum(heights), 3) / max(len(tasks), 1),
                       squeeze=False, gridspec_kw={"height_ratios": heights or [1]})  # fmt: skip
    for ax, (task, part) in zip(axes[:, 0], tasks.items(), strict=False):
        for row, claim in enumerate(part.itertuples()):
            colour = VERDICT_COLOURS[claim.verdict]
            bars(ax, [claim.our_value], [row], claim.low, claim.high, across=True, fmt="o", color=colour)
            if pd.notna(claim.paper_value):
                ax.plot([claim.paper_value], [row], "x", ms=6, color=PALETTE["paper"])
        ax.axvline(0, color="grey", lw=0.8)
        ax.set_yticks(range(len(part)), map(short, part["statement"]), fontsize=7)
        ax.set(title=task, ylim=(len(part) - 0.5, -0.5))
    handles = [Line2D([], [], color=c, marker="o", lw=1.4, label=v) for v, c in VERDICT_COLOURS.items()]
    handles.append(Line2D([], [], color="black", marker="x", lw=0, label="the paper's value"))
    fig.legend(handles=handles, loc="outside upper center", ncols=3)
    return fig


def bought(table: pd.DataFrame) -> Figure:
    """Draw ENTP's lead over a decoder: a row per task, equal steps beside equal compute, coloured by answer.

    ``table``: columns drawn_as, budget, unit, value, low, high, answer, of what was run. Shares of the way to a perfect
    score are drawn above, nats of text below on an axis of their own. Rows without ``drawn_as`` are left out; a
    comparison that was not run says so.
    """
    table = table[(table["drawn_as"] != "") & table["value"].notna()]
    parts = {unit: part for unit, part in table.groupby("unit", sort=False)}
    heights = [part["drawn_as"].nunique() for part in parts.values()]
    fig, axes = panels(
        2, len(parts) or 1, width=3.6, height=(1.4 + 0.3 * sum(heights)) / max(len(parts), 1), squeeze=False,
        gridspec_kw={"height_ratios": [count + 0.8 for count in heights] or [1]},
    )  # fmt: skip
    for (unit, part), pair in zip(parts.items(), axes, strict=False):
        draw_leads(pair, part)
        ends = [end for ax in pair for end in ax.get_xlim()]
        for ax in pair:
            ax.set_xlim(min(ends), max(ends))
            ax.set_xlabel({"share": "share of the way to a perfect score", "nats": "nats a byte"}[unit], fontsize=8)
    for ax, title in zip(axes[0], ("equal steps", "equal compute"), strict=True):
        ax.set_title(f"{title}\n← decoder ahead    ENTP ahead →", fontsize=9)
    seen = set(table["answer"])
    plain = {"equal within the margin": "no difference", "open": "undecided", "uninformative": "could not tell"}
    handles = [
        Line2D([], [], color=colour, marker="o", lw=2, label=plain.get(answer, answer))
        for answer, colour in ANSWER_COLOURS.items()
        if answer in seen
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return fig


def draw_leads(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw one unit's leads on two axes, at equal steps and at equal compute, a line a task."""
    places = {task: row for row, task in enumerate(dict.fromkeys(table["drawn_as"]))}
    for row in table.itertuples():
        ax, colour = axes[int(row.budget != EQUAL_STEPS)], ANSWER_COLOURS[row.answer]
        bars(
            ax, [row.value], [places[row.drawn_as]], row.low, row.high, across=True, fmt="o", color=colour, elinewidth=2
        )
    found = set(zip(table["budget"] != EQUAL_STEPS, table["drawn_as"], strict=True))
    for i, ax in enumerate(axes):
        ax.axvline(0, color="grey", lw=0.8)
        ax.set_ylim(max(len(places), 1) - 0.5, -0.5)
        for task, at in places.items():
            if (bool(i), task) not in found:
                ax.text(0, at, "not run", color="grey", fontsize=8, ha="center", va="center", backgroundcolor="white")
    axes[0].set_yticks(range(len(places)), [name[:1].upper() + name[1:] for name in places])
    axes[1].set_yticks(range(len(places)), [""] * len(places))
