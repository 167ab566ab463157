"""Pictures of notebook 03: a comparison over training, per token-forward and by prefix length."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from entp_lib.experiments import figures
from entp_lib.experiments.frames import curves
from entp_lib.records.store import Record
from entp_papers.entp.count3 import positions
from entp_papers.entp.logged import ARMS, spent
from entp_papers.entp.pairless import lookup

ALT = "Token accuracy against steps, against token-forwards, and at the end by prefix length, by arm."
MODE = dict(color=figures.PALETTE["baseline"], ls="--", label="mode baseline")
PAIRLESS = dict(color=figures.PALETTE["baseline"], ls="-.", label="no pair looked at")


def guesses(ax, params: Mapping[str, Any], score: str = "token_accuracy", task: str = "counting") -> None:
    """Draw across ``ax`` what the commonest answer at each position scores, and what whoever looks at no pair does."""
    found = lookup(task, params)[0]
    for name, look in (("mode", MODE), ("pairless", PAIRLESS)):
        ax.axhline(found[name][score], **look)


def guesses_by_length(ax, by_n: pd.DataFrame) -> None:
    """Draw both against the prefix length: columns ``baseline`` and ``pairless`` of ``positions``."""
    means = by_n.groupby("position")[["baseline", "pairless"]].mean()
    for name, look in (("baseline", MODE), ("pairless", PAIRLESS)):
        ax.plot(means.index, means[name], **look)
    ax.set_xticks(means.index[:: 1 + len(means) // 8])


def courses(records: Sequence[Record], title: str, beyond: Sequence[str] = ()) -> Figure:
    """Token accuracy of every arm against steps and against token-forwards, and at the end by prefix length.

    ``beyond``: arms that the first panel leaves out, since their steps go far beyond the others'.
    """
    course, by_n = curves(records), positions(records)
    course["thousands"] = course["step"] / 1000
    fig, axes = figures.panels(3, height=2.6)
    panels = (
        (course[~course["arm"].isin(beyond)], "thousands", "step (thousands)"),
        (course, "token_forwards", "token-forwards"),
        (by_n, "position", "prefix length n"),
    )
    for ax, (table, x, label) in zip(axes, panels, strict=True):
        at = "step" if x == "token_forwards" else ""
        figures.seed_curves(ax, table, x, "token_accuracy", xlabel=label, ylabel="token accuracy", at=at)
        figures.tell_apart(ax)
    axes[1].set_xscale("log")
    for ax in axes[:2]:
        guesses(ax, records[0].config.task_params)
    guesses_by_length(axes[2], by_n)
    figures.legend_beside(axes[2])
    axes[0].set_title(f"{title}, {figures.tier_note(records)}")
    return fig


def steps_and_compute(record: Record) -> Figure:
    """Steps (left) and multiply-adds (right) to a share of the tokens, decoder and ENTP of a logged pair."""
    found = spent(record)
    fig, axes = figures.panels(2)
    for ax, (kind, unit, label) in zip(
        axes,
        (("steps", 1e3, "steps to it (thousands)"), ("multiply-adds", 1e15, "multiply-adds to it (10¹⁵)")),
        strict=True,
    ):
        for arm in ARMS:
            values = found[kind, arm] / unit
            figures.draw_arm(ax, arm, values.index, values, values, values, marker="o", ms=4)
        ax.set(xlabel="token accuracy", ylabel=label, ylim=0)
    axes[0].legend()
    axes[0].set_title("ENTP needs fewer steps,")
    axes[1].set_title("not less compute")
    return fig
