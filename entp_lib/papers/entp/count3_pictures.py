"""Pictures of notebook 03: a comparison over training, per token-forward and by prefix length."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from entp_lib.collection import figures
from entp_lib.collection.frames import curves
from entp_lib.papers.entp.count3 import positions
from entp_lib.papers.entp.logged import ARMS, spent
from entp_lib.runs.records import Record

ALT = "Token accuracy against steps, against token-forwards, and at the end by prefix length, by arm."


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
    guess = by_n.groupby("position")["baseline"].mean()
    axes[2].plot(guess.index, guess, ls="--", color=figures.PALETTE["baseline"], label="mode baseline")
    axes[2].set_xticks(guess.index[:: 1 + len(guess) // 8])
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
