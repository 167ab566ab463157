"""Figures of notebook 12, all from records."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from entp_lab import figures
from entp_lab.figures import OTHERS, PALETTE
from entp_lab.frames import published
from entp_lab.store import Record
from entp_papers.compact import abstraction, capacity, graph, knowledge, laws, lengths

# schemes that tell where a token is, then those that tell how far two tokens are apart
DRAWN = ("learned", "sinusoidal", "randomised", "coupled", "none", "t5", "alibi", "kerple", "fire", "rope")
ByTier = Mapping[str, Sequence[Record]]


def share_by_length(tiers: ByTier) -> Figure:
    """Share of right answer tokens by operand length and scheme of positions: a row per tier, a panel a model."""
    fig, axes = figures.panels(2, len(tiers), width=2.9, height=3.1, squeeze=False)
    ticks = dict(xticklabels=True, yticklabels=True)
    for row, part in zip(axes, tiers.values(), strict=True):
        grid = lengths.table(part)
        for ax, architecture in zip(row, lengths.ARCHITECTURES, strict=True):
            arm = grid[(grid["format"] == "padded") & (grid["architecture"] == architecture)]
            right = arm.pivot_table(index="positions", columns="digits", values="token_accuracy").reindex(DRAWN)
            figures.heat(ax, right, cmap="Greys", annot=True, fmt=".2f", square=False, **ticks)
            ax.set(xlabel="digits of the operands", ylabel="")
            ax.set_title(f"{figures.NAMES[architecture]}, {lengths.heading(part)}", fontsize=9)
    figures.title(fig, "Share of answer tokens right; the first column is the longest trained on")
    return fig


def round_ticks(values: pd.Series, count: int) -> list[float]:
    """``count`` ticks of one figure each, evenly over the logarithms of ``values``."""
    return [float(f"{tick:.1g}") for tick in np.geomspace(values.min(), values.max(), count)]


def capacity_by_size(records: Sequence[Record]) -> Figure:
    """Sequences recalled against trained parameters, by number of heads and sequence length."""
    sweep = capacity.table(records, "sweep")
    fig, axes = figures.panels(sweep["length"].nunique(), width=2.8, sharey=True)
    for ax, (length, part) in zip(axes, sweep.groupby("length"), strict=True):
        for (heads, row), colour, marker in zip(part.groupby("n_heads"), OTHERS, "osD", strict=False):
            label = f"{heads} head{'s' * (heads > 1)}"
            ax.plot(row["parameters"], row["best"], "-", marker=marker, ms=4, color=colour, label=label)
        ax.axhline(row["offset"].iloc[0], color=PALETTE["baseline"], ls="--", lw=1, label="chance")
        ax.set(xscale="log", yscale="log", xlabel="trained parameters", title=f"sequences of {length}")
        figures.plain_ticks(ax.xaxis, round_ticks(part["parameters"], 3))
    figures.plain_ticks(axes[0].yaxis, round_ticks(sweep["best"], 4))
    axes[0].set_ylabel("sequences recalled")
    figures.legend(fig)
    config = records[0].config
    figures.title(fig, f"Capacity, tier {config.tier}, best of {config.params['runs']} runs")
    return fig


def capacity_model(records: Sequence[Record], fitted: pd.DataFrame) -> tuple[Figure, dict[str, float]]:
    """Predicted against measured capacity: the ``fitted`` model, and model and cubic on points left out of the fit.

    With the figure, R² on the points left out.
    """
    points = capacity.points(records)
    left_out = laws.left_out(points)
    widths, heads, long, measured = points.T
    fig, axes = figures.panels(3, width=2.9)
    law = laws.Parameters(*fitted.loc["min", list(laws.Parameters._fields)])
    inside = laws.capacity(law, widths, heads, long, "min")
    r2 = {name: laws.quality(measured, values)["r2"] for name, values in left_out.items()}
    drawn = (
        (f"fitted, min and max alike:\nR² {fitted.loc['min', 'r2']:.2f} and {fitted.loc['max', 'r2']:.2f}", inside),
        (f"capacity model, points left out:\nR² {r2['capacity_model']:.1f}", left_out["capacity_model"]),
        (f"cubic, points left out:\nR² {r2['cubic']:.1f}", left_out["cubic"]),
    )
    for ax, (title, predicted) in zip(axes, drawn, strict=True):
        for width, colour in zip(np.unique(widths), OTHERS, strict=False):
            at = widths == width
            whole = np.maximum(predicted[at], 1).round()  # the last digits of a fit are the machine's
            ax.plot(measured[at], whole, "o", ms=4, color=colour, alpha=0.7, label=f"width {width:g}")
        ax.plot([50, 2000], [50, 2000], color="grey", lw=0.8)
        ax.set(xscale="log", yscale="log", xlabel="measured", title=title, ylim=(30, 3000))
    axes[0].set_ylabel("predicted")
    figures.legend(fig)
    return fig, r2


def epochs_needed(shatter: Mapping[str, Record]) -> Figure:
    """Histograms of the epochs needed to recall a library, with the fitted negative binomial, by ``way``."""
    from scipy import stats  # takes a second to import

    fig, axes = figures.panels(2, width=3.6)
    for ax, (way, name) in zip(axes, (("attention", "attention alone"), ("whole", "the whole layer")), strict=True):
        epochs, metrics = shatter[way].curves["epochs"], shatter[way].metrics
        sns.histplot(x=epochs, bins=30, stat="density", color="#56B4E9", alpha=1, edgecolor="none", ax=ax)
        note = "no fit"
        if fit := metrics["fit"]:
            k = np.arange(max(epochs) + 1)
            ax.plot(k, stats.nbinom.pmf(k, fit["r"], fit["p"]), color="black", lw=1)
            rejects = f"{fit['p_value']:.2f}" if fit["p_value"] >= 0.01 else f"{fit['p_value']:.1e}"
            note = f"r = {fit['r']:.1f}, p = {fit['p']:.2g}; χ² test: p-value {rejects}"
        title = f"{name}: {len(epochs)} of {metrics['runs']} runs\n{note}"
        ax.set(xlabel="epochs", ylabel="share of runs per epoch", title=title)
    return fig


def wirings(triplets: pd.DataFrame, mean: pd.DataFrame) -> Figure:
    """Share of triplets recalled by wiring and size, with the ceiling; table 3 and the law of a hidden relation.

    ``triplets``: ``knowledge.table`` of the wirings; ``mean``: its means by wiring and size.
    """
    fig, axes = figures.panels(2, width=3.4, sharey=False)
    ceiling = mean["concept_ceiling"].groupby("size").mean()
    axes[0].plot(ceiling, color="#C8C8C8", lw=7, label="ceiling without the relation", solid_capstyle="butt")
    words = ("concept and relation, as in the text", "as in the public scripts", "concept alone")
    lines = zip(knowledge.WIRINGS, OTHERS[1:], words, ("-", "--", ":"), "Ds^", (2.2, 1.6, 1.6), strict=False)
    looks = {wiring: figures.Look(*look) for wiring, *look in lines}
    figures.lines(axes[0], triplets, "size", "accuracy", by="wiring", looks=looks, errorbar=None)
    axes[0].set(xlabel="triplets", ylabel="share recalled", title="ours: by what the model is shown")
    sizes, recalled = published("compact", "triplets")[["triplets", "recalled"]].to_numpy().T
    concepts = graph.fitted_concepts()
    law = graph.expected_ceiling(concepts, sizes)
    paper = dict(color=PALETTE["paper"], ls="none")
    axes[1].plot(sizes, recalled / sizes, marker="x", label="the paper, table 3", **paper)
    some = [(n, k / n) for n, k in graph.ONE_LAYER.items()]
    axes[1].plot(*zip(*some, strict=True), marker="+", ms=8, label="the paper, §3.2.3", **paper)
    axes[1].plot(sizes, law, ls="--", color="grey", label=f"ceiling, {concepts:,.0f} concepts")
    axes[1].set(xlabel="triplets", ylabel="share recalled", title="the paper's graph", xticks=sizes[::2])
    axes[1].xaxis.set_major_formatter("{x:,.0f}")
    figures.legend(fig)
    return fig


def above_floor(tiers: ByTier) -> Figure:
    """Loss above the least possible, by prefix length: one to three layers, decoder and ENTP; a row per tier."""
    lines = {1: (":", "o"), 2: ("-", "s"), 3: ("--", "D")}
    looks = {}
    for name, (n, line) in itertools.product(("decoder", "entp"), lines.items()):
        label, width = f"{figures.NAMES[name]}, {n} layer{'s' * (n > 1)}", 2.6 if (name, n) == ("decoder", 2) else 1.3
        looks[f"{name}{n}"] = figures.Look(PALETTE[name], label, *line, width)
    fig, axes = figures.panels(2, len(tiers), width=3.4, height=2.2, squeeze=False, sharey=True)
    for row, part in zip(axes, tiers.values(), strict=True):
        positions = abstraction.by_position(part)
        positions["above"] = positions["loss"] - positions["floor"]
        positions["arm"] = positions["architecture"] + positions["n_layers"].astype(str)
        sampled = positions["scored"] == "sampled"
        for ax, drawn in zip(row, (positions[~sampled], positions[sampled]), strict=True):
            figures.lines(ax, drawn, "position", "above", looks=looks, errorbar=None, marks=12)
            ax.set(xlabel="prefix length", ylabel="loss above the floor (nats)")
            ax.set_visible(len(drawn) > 0)
        row[0].set_title(f"trained on all positions,\n{figures.tier_note(part)}")
        row[1].set_title("trained on sampled positions")
    figures.legend(fig)
    return fig
