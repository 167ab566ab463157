"""Pictures of notebook 01: who attends to whom, errors that the proofs force, and what a mask
takes.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from entp_lab import figures
from entp_lab.frames import select
from entp_lab.store import Record
from entp_papers.entp.expressivity.experiment import attention_patterns, forced, last_exponent

KINDS = {
    "random": "random vectors (the paper's way)",
    "dyadic": "random vectors on a binary tree",
    "exact": "orthonormal vectors",
    "threshold": "singular vectors",
    "geometric": "geometric, unbounded scores",
}


def who_sees_whom(length: int = 5, prompt: int = 3) -> Figure:
    """Figures 1 and 8: ``attention_patterns``, the row that ENTP reads outlined."""
    colours = ListedColormap(
        ["#F0F0F0", *(figures.PALETTE[name] for name in ("decoder", "entp", "hybrid"))]
    )
    fig, axes = figures.panels(4, rows=2, width=1.7, height=2.3)
    for ax, (name, pattern) in zip(
        axes.flat, attention_patterns(length, prompt).items(), strict=True
    ):
        figures.heat(ax, pattern, cmap=colours, vmax=3, linewidths=1.5)
        ax.set_title(name.replace(", ", ", prefix "))
        if name.startswith("ENTP"):
            t = int(name.split()[-1])
            ax.add_patch(
                plt.Rectangle((0, t - 1), t, 1, fill=False, lw=1.8, color="black", clip_on=False)
            )
    axes[1, 0].set(xlabel="keys", ylabel="queries")
    labels = (
        "earlier tokens and itself",
        "the whole prompt or prefix",
        "the encoded prompt",
    )
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours(i)) for i in (1, 2, 3)]
    fig.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    return fig


def error_planes(records: Sequence[Record]) -> Figure:
    """Error over the input plane of trained encoders (above) and decoders, with the line that the
    proofs force.
    """
    fig, axes = figures.panels(4, rows=2, width=1.9, height=2.4, sharex=True, sharey=True)
    for direction, line in zip(("encoder", "decoder"), axes, strict=True):
        fixed = select(records, direction=direction, positions="fixed")
        fixed = [r for r in fixed if r.config.params["distance"] in (1, 3)]
        shown = fixed + select(records, direction=direction, positions="trained")
        for ax, r in zip(line, shown, strict=False):
            look = dict(
                extent=(-4, 4, -4, 4), origin="lower", norm=LogNorm(0.01, 10), cmap="viridis"
            )
            image = ax.imshow(r.curves["error"], **look)
            on_line = ax.axline(
                (0, -r.metrics["distance"]), slope=1, color="#CC79A7", ls="--", lw=1.4
            )
            box = ax.add_patch(plt.Rectangle((-1, -1), 2, 2, fill=False, color="white", lw=1.4))
            distance = f"p2 − p1 = {round(r.metrics['distance'], 2) + 0.0:.2f}".replace("-", "−")
            ax.set(
                xlim=(-4, 4),
                ylim=(-4, 4),
                title=f"{direction}\npositions {r.labels['positions']}\n{distance}",
            )
            ax.grid(False)
    for ax in (*axes[1], *axes[:, 0]):
        ax.set_xlabel("input x1" if ax in axes[1] else "")
        ax.set_ylabel("input x2" if ax in axes[:, 0] else "")
    fig.colorbar(image, ax=axes, label="larger error of outputs 1 and 2", extend="both", shrink=0.7)
    said = ["line of the proof, x1 − x2 = p2 − p1", "box of the inputs trained on"]
    dark = dict(facecolor="#3B528B", labelcolor="white", frameon=True)
    fig.legend([on_line, box], said, loc="outside lower center", ncols=2, **dark)
    return fig


def forced_errors(records: Sequence[Record]) -> Figure:
    """Largest error in the box of every trained model by p2 - p1, and in grey what the proofs
    force.
    """
    fig, axes = figures.panels(2, width=3.5)
    distances = np.linspace(-4, 4, 321)
    titles = ("an encoder imitates a decoder", "a decoder imitates an encoder")
    for ax, direction, title in zip(axes, ("encoder", "decoder"), titles, strict=True):
        band = forced(direction, distances)
        ax.fill_between(
            distances, band, color="grey", alpha=0.35, lw=0, label="excluded by the proof"
        )
        group = select(records, direction=direction)
        colour = figures.PALETTE[direction.replace("encoder", "entp")]
        for r in group:
            kind = r.labels["positions"]
            label = f"{direction}, positions {kind}" if r in (group[0], group[-1]) else None
            look = dict(ms=6, color=colour, mfc="none" if kind == "fixed" else colour, label=label)
            ax.plot(
                r.metrics["distance"],
                r.metrics["first_two_error"],
                "o" if kind == "fixed" else "D",
                **look,
            )
        ax.set(
            xlabel="p2 − p1 (position vectors)",
            ylabel="largest error in the box",
            ylim=0,
            title=title,
        )
    figures.legend(fig)
    return fig


def mask_dimensions(checks: Record) -> Figure:
    """Entries that each kind of mask needs by tokens, with exponents between the last two
    lengths.
    """
    n = np.array(checks.curves["dimensions_n"])
    fig, ax = figures.panels(1, width=6.2, height=3.6)
    for (kind, label), colour, marker in zip(KINDS.items(), figures.OTHERS, "osD^v", strict=True):
        look = dict(
            marker=marker,
            ms=4,
            color=colour,
            label=f"{label}: $n^{{{last_exponent(checks, kind):.2f}}}$",
        )
        ax.plot(n, checks.curves[f"dimensions_{kind}"], "-", **look)
    log = checks.curves["dimensions_random"][0] * np.log(n) / np.log(n[0])
    ax.plot(n, log, ":", color="grey", label="log n, as printed (scaled)")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="n, tokens",
        ylabel="extra entries of queries and keys",
        ylim=(0.5, None),
    )
    figures.plain_ticks(ax.xaxis, n)
    figures.plain_ticks(ax.yaxis, [1, 10, 100, 1000, 10_000])
    figures.legend(fig, title="exponents between the last two lengths")
    return fig
