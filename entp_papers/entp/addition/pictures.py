"""Pictures of notebook 07: errors by training examples, checkpoint rule, digits and carries, and the authors' logs.

``table`` is ``scores`` of our runs, of one model where the picture is of one.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from entp_lab import figures
from entp_lab.frames import published, seconds_name
from entp_lab.store import Record
from entp_papers.entp.addition.experiment import BEST_ANSWERS, chosen, paper_model, scores, to_999
from entp_papers.entp.addition.lengths import by_digits
from entp_papers.entp.addition.tables import authors_seen_runs, curves_of

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
    theirs = published("entp", "addition").query("model == 'small' and format == @form")
    same = len(to_999(records)) == len(records) and set(table["model"]) == {"small"}
    fig, axes = figures.panels(1 if same else 2, width=4.6 if same else 3.3, squeeze=False)
    ax, other = axes[0, 0], axes[0, -1]
    figures.lines(ax, table, "n_train", "error", looks=OURS, errorbar=figures.interval(0, 1), **LABELS)
    for arm, part in theirs.sort_values("n_train").groupby("architecture", sort=False):
        low, high = ((part["error"] + sign * part["error_sd"]).clip(0, 1) for sign in (-1, 1))
        figures.bars(other, part["n_train"], part["error"], low, high, **AUTHORS[arm].style() | {"elinewidth": 0.6})
    figures.title(fig, f"{form.capitalize()} sums, {figures.tier_note(records)}")
    ax.set_title("ours: 95 % interval" + "; authors': standard deviation" * same)
    if not same:
        other.set(**LABELS, title="Authors, Small, sums to 999: standard deviation")
    for axis, runs in ((other, theirs), (ax, pd.concat([table, theirs]) if same else table)):
        axis.set_ylim(0, 1.03)
        figures.plain_ticks(axis.xaxis, set(runs["n_train"]) - {3750, 15_000})  # their labels would run into others'
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
    """Test error by digits and carries (``by_group``) at the smallest and the largest training set."""
    ends = sorted({cells["n_train"].min(), cells["n_train"].max()})
    arms, order = list(dict.fromkeys(cells["arm"])), sorted(cells["group"].unique())
    looks = {figures.ARMS[arm].label: figures.ARMS[arm] for arm in arms}
    named = cells.assign(model=cells["arm"].map({arm: figures.ARMS[arm].label for arm in arms}))
    shown = dict(palette={name: look.colour for name, look in looks.items()}, linestyle="none", dodge=0.45)
    shown |= dict(markers=[look.marker for look in looks.values()], markersize=4, err_kws={"linewidth": 1.4})
    shown |= dict(order=order, hue="model", hue_order=list(looks), errorbar=figures.interval(0, 1))
    fig, axes = figures.panels(len(ends), width=4.2, height=0.6 + 0.38 * len(order), sharey=True, squeeze=False)
    for ax, size in zip(axes[0], ends, strict=True):
        legend = "full" if ax is axes[0, -1] else False
        sns.pointplot(named[named["n_train"] == size], x="error", y="group", legend=legend, ax=ax, **shown)
        ax.set(xlabel="test error", ylabel="", xlim=(0, 1), title=f"{size:,} training examples")
    sns.move_legend(axes[0, -1], "upper left", bbox_to_anchor=(1, 1), title=None)
    return fig


def by_rule(table: pd.DataFrame, rules: Sequence[str], records: Sequence[Record]) -> Figure:
    """Test error on reversed sums by training examples, a column a checkpoint rule; decoders' less ENTP's below."""
    fig, axes = figures.panels(len(rules), 2, width=2.7, height=2.1, sharex=True, sharey="row", squeeze=False)
    for (ax, gap), name in zip(axes.T, rules, strict=True):
        by_size = chosen(table, name, format="reversed")
        labels = dict(xlabel="training examples", xscale="log")
        figures.lines(ax, by_size, "n_train", "error", errorbar=None, ylabel="test error", **labels)
        figures.differences(gap, by_size, "n_train", "error", sign=-1, ylabel="difference in error", **labels)
        figures.plain_ticks(gap.xaxis, sorted(set(by_size["n_train"])))
        ax.set_title(name.replace("_", " "))
    axes[0, 0].set_ylim(bottom=0)
    figures.title(fig, f"Reversed addition by the rule that picks the checkpoint, {figures.tier_note(records)}")
    figures.legend(fig)
    return fig


def both_sizes(table: pd.DataFrame) -> Figure:
    """The authors' logged errors of Small and Medium with standard errors, a panel a format; our Medium's as points."""
    fig, axes = figures.panels(2, width=3.9, height=2.7, sharey=True)
    logged, ours = published("entp", "addition"), table[table["model"] == "medium"]
    for ax, form in zip(axes, ("reversed", "plain"), strict=True):
        for (size, name), part in logged[logged["format"] == form].groupby(["model", "architecture"], sort=False):
            label = f"authors, {size} {figures.NAMES[name]}"
            spread = part["error_sd"] / (part["seeds"] - 1) ** 0.5  # population SD
            line = dict(ls={"small": ":", "medium": "-"}[size], color=figures.PALETTE[name], label=label, lw=1)
            figures.bars(ax, part["n_train"], part["error"], part["error"] - spread, part["error"] + spread, **line)
        for name, part in ours[ours["format"] == form].groupby("arm"):
            mean = part.groupby("n_train")["error"].mean()
            ax.plot(mean.index, mean, "o", color=figures.PALETTE[name], label=f"ours, medium {figures.NAMES[name]}")
        ax.set(xscale="log", yscale="log", xlabel="training examples", ylabel="test error", title=f"{form} addition")
        figures.plain_ticks(ax.xaxis, (1250, 2500, 5000, 10_000, 20_000))
    figures.title(fig, "The authors' logged means, bars one standard error")
    figures.legend(fig)
    return fig


def by_compute(table: pd.DataFrame, records: Sequence[Record]) -> Figure:
    """Validation error on reversed sums by compute and by seconds, at the middle size. ``table``: ``scores``."""
    sizes = sorted(chosen(table, "last", format="reversed")["n_train"].unique())
    size = sizes[len(sizes) // 2]
    course = paper_model(curves_of(records)).query("format == 'reversed' and n_train == @size")
    fig, axes = figures.panels(2, width=3.4, height=2.5, sharey=True)
    names = {"multiply_adds": figures.COMPUTE, "seconds": seconds_name(records)}
    for ax, (axis, label) in zip(axes, names.items(), strict=True):
        figures.lines(ax, course, axis, "error", errorbar=None, xlabel=label, ylabel="validation error", xscale="log")
    figures.plain_ticks(axes[1].xaxis, (1, 3, 10, 30, 100, 300, 1000, 3000))
    axes[0].set_ylim(bottom=0)
    figures.title(fig, f"Reversed addition, {size:,} training examples, {figures.tier_note(records)}")
    figures.legend(fig)
    return fig


def longer_numbers(records: Sequence[Record]) -> Figure:
    """Test error by digits of the longer operand: ours by rule where any sum is right, and the authors' logged means.

    Prints of each rule whether it is drawn.
    """
    found = {name: by_digits(records, name) for name in ("last", BEST_ANSWERS)}
    shown = {name: errors for name, errors in found.items() if errors["error"].min() < 0.99}
    for name, errors in found.items():
        best = f"{1 - errors['error'].min():.2%} right at best (one run, sums of one length): nothing to draw"
        print(f"ours, {name.replace('_', ' ')}:", "drawn" if name in shown else best)
    fig, axes = figures.panels(len(shown) + 1, width=3.4 if shown else 4.6, height=2.6, sharey=True, squeeze=False)
    labels = dict(xlabel="digits of the longer operand", ylabel="test error")
    for ax, (name, errors) in zip(axes[0], shown.items(), strict=False):
        figures.lines(ax, errors, "digits", "error", errorbar=figures.interval(0, 1), **labels)
        ax.set(title=f"ours, {name.replace('_', ' ')}", xticks=sorted(errors["digits"].unique()))
    last = axes[0, -1]
    logged = published("entp", "addition_lengths")
    for (checkpoint, name), part in logged.groupby(["checkpoint", "architecture"], sort=False):
        style = {"l": "-", "s": "--", "b": ":"}[checkpoint[0]]
        label = f"{figures.NAMES[name]}, {checkpoint.split(' of ')[0]}"
        last.plot(part["digits"], part["error"], style, color=figures.PALETTE[name], label=label)
    last.set(title="authors' logs, trained to 10 digits", **labels)
    last.xaxis.get_major_locator().set_params(integer=True)
    figures.legend(fig)
    return fig


def at_trained_lengths(records: Sequence[Record]) -> Figure:
    """Validation error of ``addition_lengths`` at the trained lengths, by steps and by compute."""
    course = curves_of(records)
    fig, axes = figures.panels(2, width=3.3, height=2.4, sharey=True)
    for ax, axis in zip(axes, ("step", "multiply_adds"), strict=True):
        figures.lines(ax, course, axis, "error", ylabel="error at trained lengths", xscale="log", ylim=(0, 1.03))
    figures.title(fig, f"Sums to two digits, {figures.tier_note(records)}")
    figures.legend(fig)
    return fig


def on_windows(records: Sequence[Record]) -> Figure:
    """Validation loss of the whole text, which picks the authors' weights, and error of whole sums, by steps.

    Vertical lines: each arm's mean step of the lowest text loss.
    """
    course, picked = curves_of(records), chosen(scores(records), "lowest_text_loss").groupby("arm")["step"].mean()
    fig, axes = figures.panels(2, width=3.4, height=2.5)
    shown = {"text_loss": "loss of all text (nats)", "error": "error of sums"}
    for ax, (y, label) in zip(axes, shown.items(), strict=True):
        figures.lines(ax, course, "step", y, ylabel=label)
        for arm, step in picked.items():
            ax.axvline(step, color=figures.ARMS[arm].colour, ls=figures.ARMS[arm].dashes, lw=0.8)
    axes[1].set_ylim(0, 1.03)
    figures.title(fig, f"Addition on windows of 64 characters, {figures.tier_note(records)}")
    figures.legend(fig)
    return fig
