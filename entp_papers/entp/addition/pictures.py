"""Pictures of notebook 07: errors by training-set size beside the authors' logs, and by digits and carries."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from entp_lib.experiments import figures
from entp_lib.records.store import Record
from entp_papers.entp.addition.experiment import to_999
from entp_papers.entp.addition.tables import authors_means, authors_seen_runs

LABELS = dict(xlabel="training examples", ylabel="test error", xscale="log")
OURS = {arm: replace(look, label=f"ours, {look.label}") for arm, look in figures.ARMS.items()}
AUTHORS = {
    arm: replace(look, label=f"authors, {look.label}", dashes=":", width=1.2) for arm, look in figures.ARMS.items()
}
TEST = {arm: replace(look, label=f"{look.label}, new sums") for arm, look in figures.ARMS.items()}
SEEN = {arm: replace(look, label=f"{look.label}, trained sums", dashes=":") for arm, look in figures.ARMS.items()}


def beside_authors(table: pd.DataFrame, form: str, records: Sequence[Record]) -> Figure:
    """Test error by training examples, ours and the authors' Small: on the same axes where task and model are theirs.

    ``table``: ``scores`` of ``records`` by one checkpoint rule, of one ``form``; ours are means over seeds with a 95 %
    t interval, theirs logged means and standard deviations. Sums of another size are another task, and have a panel of
    their own.
    """
    theirs = authors_means("small", form)
    same = len(to_999(records)) == len(records) and set(table["model"]) == {"small"}
    fig, axes = figures.panels(1 if same else 2, width=4.6 if same else 3.3, squeeze=False)
    ax, other = axes[0, 0], axes[0, -1]
    figures.lines(ax, table, "n_train", "error", looks=OURS, errorbar=figures.interval(0, 1), **LABELS)
    for arm, part in theirs.sort_values("n_train").groupby("arm", sort=False):
        low, high = (part[name].clip(0, 1) for name in ("low", "high"))
        figures.bars(other, part["n_train"], part["mean"], low, high, **AUTHORS[arm].style() | {"elinewidth": 0.6})
    figures.title(fig, f"{form.capitalize()} sums, {figures.tier_note(records)}")
    ax.set_title("ours: 95 % interval" + "; authors': standard deviation" * same)
    if not same:
        other.set(**LABELS, title="Authors, Small, sums to 999: standard deviation")
    for axis, sizes in ((ax, {*table["n_train"], *(theirs["n_train"] if same else ())}), (other, theirs["n_train"])):
        axis.set_ylim(0, 1)
        if axis is ax or not same:
            figures.plain_ticks(axis.xaxis, set(sizes) - {3750, 15_000})  # their labels would run into others'
    figures.legend(fig)
    return fig


def seen_and_unseen(table: pd.DataFrame, form: str, records: Sequence[Record]) -> Figure:
    """Error on the test and on the examples trained on, by training examples: the authors' Small left, ours right.

    ``table``: ``scores`` of ``records`` by the last weights, of one ``form``; means over runs, of the authors' those
    whose training accuracy was logged.
    """
    logged = authors_seen_runs().query("format == @form")
    ours = table.rename(columns={"error": "test_error"})
    fig, axes = figures.panels(2, width=3.3, sharey=True)
    for ax, runs in zip(axes, (logged, ours), strict=True):
        for column, looks in (("test_error", TEST), ("seen_error", SEEN)):
            figures.lines(ax, runs, "n_train", column, looks=looks, errorbar=None, **LABELS | {"ylabel": "error"})
        figures.plain_ticks(ax.xaxis, set(runs["n_train"]) - {3750})
    axes[0].set(ylim=(-0.03, 1), title="authors' logs, Small,\nweights of lowest text loss")
    axes[1].set_title(f"ours, {figures.tier_note(records)},\nlast weights")
    figures.legend(fig)
    return fig


def by_cells(cells: pd.DataFrame) -> Figure:
    """Test error by digits and carries at the smallest and the largest training set: means and 95 % t intervals.

    ``cells``: ``by_group`` of one rule and format, with groups like "3 digits, 2 carries".
    """
    ends = sorted({cells["n_train"].min(), cells["n_train"].max()})
    arms, order = list(dict.fromkeys(cells["arm"])), sorted(cells["group"].unique())
    looks = {figures.ARMS[arm].label: figures.ARMS[arm] for arm in arms}
    named = cells.assign(model=cells["arm"].map({arm: figures.ARMS[arm].label for arm in arms}))
    fig, axes = figures.panels(len(ends), width=4.2, height=0.6 + 0.38 * len(order), sharey=True, squeeze=False)
    for ax, size in zip(axes[0], ends, strict=True):
        sns.pointplot(
            named[named["n_train"] == size],
            x="error",
            y="group",
            hue="model",
            order=order,
            hue_order=list(looks),
            palette={name: look.colour for name, look in looks.items()},
            markers=[look.marker for look in looks.values()],
            markersize=4,
            linestyle="none",
            dodge=0.45,
            errorbar=figures.interval(0, 1),
            err_kws={"linewidth": 1.4},
            legend="full" if ax is axes[0, -1] else False,
            ax=ax,
        )
        ax.set(xlabel="test error", ylabel="", xlim=(0, 1), title=f"{size:,} training examples")
    sns.move_legend(axes[0, -1], "upper left", bbox_to_anchor=(1, 1), title=None)
    return fig
