"""Pictures of notebook 07: errors by training-set size beside the authors' logs, and by digits and carries."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from entp_lib.experiments import figures
from entp_lib.experiments.frames import interval_table
from entp_lib.records.store import Record
from entp_papers.entp.addition.experiment import to_999
from entp_papers.entp.addition.tables import authors_means, authors_seen_runs

LABELS = dict(xlabel="training examples", ylabel="test error")


def beside_authors(table: pd.DataFrame, form: str, records: Sequence[Record]) -> Figure:
    """Test error by training examples, ours and the authors' Small: on the same axes where task and model are theirs.

    ``table``: ``scores`` of ``records`` by one checkpoint rule, of one ``form``; ours are means over seeds with a 95 %
    t interval, theirs logged means and standard deviations. Sums of another size are another task, and have a panel of
    their own.
    """
    means, theirs = interval_table(table, "error", ("arm", "n_train")), authors_means("small", form)
    same = len(to_999(records)) == len(records) and set(table["model"]) == {"small"}
    fig, axes = figures.panels(1 if same else 2, width=4.6 if same else 3.3, squeeze=False)
    ax, other = axes[0, 0], axes[0, -1]
    figures.arm_curves(ax, means, "n_train", **LABELS, within=(0, 1))
    figures.tell_apart(ax, stagger=False)
    title = f"{form.capitalize()} sums, {figures.tier_note(records)}"
    if same:
        for line in ax.get_lines():
            line.set_label(f"ours, {line.get_label()}")
        draw_authors(ax, theirs)
        ax.set_title(f"{title}\nours: 95 % interval; authors': standard deviation")
    else:
        figures.arm_curves(other, theirs, "n_train", **LABELS, within=(0, 1))
        figures.tell_apart(other, stagger=False)
        ax.set_title(f"{title}\nband: 95 % interval")
        other.set_title("Authors, Small, sums to 999\nband: standard deviation")
    for axis, sizes in ((ax, {*means["n_train"], *(theirs["n_train"] if same else ())}), (other, theirs["n_train"])):
        axis.set(xscale="log", ylim=(0, 1))
        figures.plain_ticks(axis.xaxis, set(sizes) - {3750, 15_000})  # their labels would run into their neighbours'
    figures.legend_beside(other)
    return fig


def draw_authors(ax: Axes, theirs: pd.DataFrame) -> None:
    """The authors' means as thin dotted lines with hollow markers and a bar of a standard deviation to each side."""
    for arm, part in theirs.groupby("arm", sort=False):
        look, part = figures.ARMS[arm], part.sort_values("n_train")
        low, high = (part[name].clip(0, 1) for name in ("low", "high"))
        ax.errorbar(
            part["n_train"],
            part["mean"],
            [part["mean"] - low, high - part["mean"]],
            color=look.colour,
            ls=":",
            lw=1,
            elinewidth=0.6,
            marker=figures.APART[arm][0],
            mfc="white",
            ms=4,
            label=f"authors, {look.label}",
        )


def seen_and_unseen(table: pd.DataFrame, form: str, records: Sequence[Record]) -> Figure:
    """Error on the test and on the examples trained on, by training examples: the authors' Small left, ours right.

    ``table``: ``scores`` of ``records`` by the last weights, of one ``form``; means over runs, of the authors' those
    whose training accuracy was logged.
    """
    logged = authors_seen_runs().query("format == @form")
    ours = table.rename(columns={"error": "test_error"})
    fig, axes = figures.panels(2, width=3.3, sharey=True)
    for ax, runs in zip(axes, (logged, ours), strict=True):
        means = runs.groupby(["arm", "n_train"], sort=False)[["test_error", "seen_error"]].mean().reset_index()
        for arm, part in means.groupby("arm", sort=False):
            look, part = figures.ARMS[arm], part.sort_values("n_train")
            line = dict(color=look.colour, marker=figures.APART[arm][0], ms=4)
            ax.plot(part["n_train"], part["test_error"], **line, label=f"{look.label}, test")
            line |= dict(mfc="white", ls=":", label=f"{look.label}, sums trained on")
            ax.plot(part["n_train"], part["seen_error"], **line)
        ax.set(xscale="log", xlabel="training examples")
        figures.plain_ticks(ax.xaxis, set(means["n_train"]) - {3750})
    axes[0].set(ylabel="error", ylim=(-0.03, 1), title="Authors' logs, Small,\nweights of lowest text loss")
    axes[1].set_title(f"Ours, {figures.tier_note(records)},\nlast weights")
    figures.legend_beside(axes[1])
    return fig


def by_cells(cells: pd.DataFrame) -> Figure:
    """Test error by digits and carries at the smallest and the largest training set: means and 95 % t intervals.

    ``cells``: ``by_group`` of one rule and format, with groups like "3 digits, 2 carries".
    """
    ends = sorted({cells["n_train"].min(), cells["n_train"].max()})
    fig, axes = figures.panels(len(ends), sharey=True, squeeze=False)
    groups = sorted(cells["group"].unique())
    short = ["\n".join(word.split()[0] for word in group.split(", ")) for group in groups]
    for ax, size in zip(axes[0], ends, strict=True):
        means = interval_table(cells[cells["n_train"] == size], "error", ("arm", "group"))
        arms = means.groupby("arm", sort=False)
        for shift, (arm, part) in zip(0.2 * (np.arange(len(arms)) - (len(arms) - 1) / 2), arms, strict=True):
            look = figures.ARMS[arm]
            x = np.array([groups.index(group) for group in part["group"]]) + shift
            ax.vlines(x, part["low"].clip(0), part["high"].clip(upper=1), color=look.colour, ls=look.style)
            fill = look.colour if look.style == "-" else "white"
            ax.plot(x, part["mean"], "o", color=look.colour, mfc=fill, label=look.label)
        ax.set_xticks(range(len(groups)), short)
        ax.set(xlabel="digits (above) and carries (below)", title=f"{size:,} training examples")
    axes[0, 0].set(ylabel="test error", ylim=(0, None))
    figures.legend_beside(axes[0, -1], handles=axes[0, 0].get_legend_handles_labels()[0])
    return fig
