"""Pictures of notebook 14, drawn on axes that are given."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.architectures import ARCHITECTURES
from entp_lib.papers.encoder_decoder.experiment import ARMS, frame, long, table
from entp_lib.runs.records import Record

MASKED = "#CC79A7"  # of Okabe and Ito's colours the one that no architecture has
LOOKS = {
    "masked": (MASKED, "-"),
    "causal": (ARCHITECTURES["decoder"].colour, "-"),
    "ENTP": (ARCHITECTURES["entp"].colour, "-"),
    "ENTP, equal token-forwards": (ARCHITECTURES["entp"].colour, "--"),
}
WAY_LOOKS = {
    "decoder, cache": (ARCHITECTURES["decoder"].colour, "-", "o"),
    "decoder, no cache": (ARCHITECTURES["decoder"].colour, "--", "s"),
    "ENTP": (ARCHITECTURES["entp"].colour, "-", "^"),
}
TITLES = {"printed": "as printed", "corrected": "corrected", "causal": "corrected, causal"}


def draw_influence(axes, influence: dict[str, Sequence[Sequence[float]]]) -> None:
    """Which token's change moves which output: a picture per attention, dark where it does."""
    for ax, (name, title) in zip(axes, TITLES.items(), strict=True):
        ax.imshow([[value > 1e-6 for value in row] for row in influence[name]], cmap="Greys", vmin=0, vmax=1.4)
        ax.set(title=title, xlabel="token changed", xticks=[], yticks=[])
        ax.grid(False)
    axes[0].set_ylabel("output")


def draw_losses(ax, records: Sequence[Record], x: str, y: str, **labels: Any) -> None:
    """Mean over seeds of a loss by arm, with a band from the lowest to the highest seed."""
    for arm, part in long(records, [x, y]).groupby("arm", sort=False):
        wide, (colour, style) = part.pivot(index=x, columns="seed", values=y), LOOKS[arm]
        ax.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=colour, alpha=0.15, lw=0)
        ax.plot(wide.mean(axis=1), style, color=colour, label=arm)
    ax.set(**labels)


def draw_misprints(ax, records: Sequence[Record], chance: float) -> None:
    """Share of misprints found: a dot per seed and their mean, of every arm and of weights not trained before."""
    rows = table(records)
    fresh = {f"{arm}, fresh": rows[rows["arm"] == arm]["fresh_accuracy"] for arm in ("masked", "causal")}
    found = {arm: rows[rows["arm"] == arm]["accuracy"] for arm in ARMS} | fresh
    for at, (name, values) in enumerate(found.items()):
        colour = LOOKS[name.removesuffix(", fresh")][0]
        ax.plot(values, [at] * len(values), "o", ms=4, color=colour, alpha=0.6, mec="none")
        ax.plot([values.mean()], [at], "|", ms=12, color="black")
    ax.axvline(chance, color="grey", ls="--", lw=0.8)
    ax.set_yticks(range(len(found)), list(found))
    ax.set(xlabel="misprints found", ylim=(len(found) - 0.5, -0.5))


def draw_costs(axes, records: Sequence[Record]) -> None:
    """Counted multiply-adds (left), and CPU seconds over those of a decoder with its cache (right)."""
    for way, part in frame(records, "costs").groupby("way", sort=False):
        colour, style, marker = WAY_LOOKS[way]
        for ax, column in zip(axes, ("counted", "ratio"), strict=True):
            look = dict(marker=marker, ms=4, color=colour, mfc="none", zorder=2 + (style == "--"))  # dashes on lines
            ax.plot(part["length"], part[column], style, label=way, **look)
    axes[0].set(xscale="log", yscale="log", ylabel="multiply-adds, counted", xlabel="tokens written")
    axes[1].set(xscale="log", ylabel="CPU time / decoder with cache", xlabel="tokens written")


def slopes_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Log-log slopes by way of writing: of attention and of all work, far out, and of the CPU time measured."""
    return pd.DataFrame(metrics["slopes"]).T
