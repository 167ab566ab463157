"""Pictures of notebook 04: where programs and constructed weights look, what a mask spoils, what
training makes.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from entp_lab import figures
from entp_lab.frames import curves
from entp_lab.store import Record
from entp_papers.entp.pairless import lookup
from entp_papers.entp.rasp import programs
from entp_papers.entp.rasp.interpreter import traced
from entp_papers.entp.rasp.trained import SHALLOW, chain_table, depth_tables


def algorithm_4(x: Sequence[int]) -> Figure:
    """Where each token of ``x`` looks in every selector of Algorithm 4."""
    with traced() as steps:
        programs.count3_encoder(x)
    steps = [step for step in steps if step.attention.shape == (len(x), len(x))]
    fig, axes = figures.panels(len(steps), width=1.6, height=2.4)
    for ax, step in zip(axes, steps, strict=True):
        figures.heat(ax, step.attention, xticklabels=x, yticklabels=x)
        ax.set(title=step.name, xlabel="at whom")
    axes[0].set_ylabel("who looks")
    figures.title(fig, "Five steps of attention count the pairs; the second needs the last token")
    return fig


def constructed_attention(record: Record) -> Figure:
    """Attention of the constructed model's two heads, in the layers that use it, on the sequence of
    a record.
    """
    trace = record.metrics["trace"]
    attention = [np.array(layer) for layer in trace["attention"]]
    used = [
        i
        for i, layer in enumerate(attention)
        if np.abs(layer - 1 / len(trace["tokens"])).max() > 1e-6
    ]
    fig, axes = figures.panels(len(used), 2, width=1.15, height=1.4)
    for column, layer in enumerate(used):
        for head in (0, 1):
            figures.heat(axes[head, column], attention[layer][head])
        axes[0, column].set_title(f"layer {layer + 1}")
    for head in (0, 1):
        axes[head, 0].set_ylabel(f"head {head + 1}, query")
    fig.supxlabel("key", fontsize=9)
    return fig


def spoiled_by_mask(record: Record) -> Figure:
    """By layer, how many tokens of the sequence of a record have another state under the causal
    mask.
    """
    trace = record.metrics["trace"]
    layers, last = (
        np.arange(1, len(trace["spoiled"]) + 1),
        np.array(trace["spoiled_last"], dtype=int),
    )
    fig, ax = figures.panels(1, width=6.0, height=2.6)
    spoiled, bars = np.array(trace["spoiled"]), dict(saturation=1, legend=False, ax=ax)
    sns.barplot(
        x=layers, y=spoiled, color=figures.PALETTE["decoder"], label="the last token", **bars
    )
    sns.barplot(x=layers, y=spoiled - last, color="#80B8D8", label="earlier tokens", **bars)
    ax.axhline(len(trace["tokens"]), color="grey", lw=0.8, ls=":", label="all tokens")
    ax.set(xlabel="layer", ylabel="tokens with another state")
    ax.set_title("A causal mask spoils earlier tokens at once, the last in layer 10")
    figures.legend(fig)
    return fig


def by_precision(table: pd.DataFrame) -> Figure:
    """Share of wrong answers by length, random sequences left and hard ones right. ``table``:
    ``precision_table``.
    """
    fig, axes = figures.panels(2, width=3.6, sharey=True)
    lines = (("-", "o", 2.6), ("--", "s", 1.6), (":", "^", 1.6))
    formats = zip(dict.fromkeys(table["precision"]), figures.OTHERS, lines, strict=False)
    looks = {name: figures.Look(colour, name, *line) for name, colour, line in formats}
    for ax, column in zip(axes, ("random, wrong", "hard, wrong"), strict=True):
        figures.lines(
            ax, table, "length", column, by="precision", looks=looks, errorbar=None, marks=12
        )
        title = column.split(",")[0] + " sequences"
        ax.set(
            xscale="log",
            xlabel="longest sequence, tokens",
            ylabel="share of wrong answers",
            title=title,
        )
        figures.plain_ticks(ax.xaxis, [n for n in table["length"].unique() if n != 384])
    figures.title(fig, "32 bits nearly suffice, bf16 does not")
    figures.legend(fig)
    return fig


def chains_of_thought(records: Sequence[Record]) -> Figure:
    """Prompts answered rightly by compute: a decoder that writes the chain and one that answers at
    once.
    """
    blue = figures.PALETTE["decoder"]
    names = {"direct": ("answers at once", "--", "v"), "trace": ("writes the chain", "-", "o")}
    looks = {arm: figures.Look(blue, *look) for arm, look in names.items()}
    fig, ax = figures.panels(1, width=5.0, height=3.0)
    figures.lines(
        ax,
        curves(records),
        "multiply_adds",
        "sequence_accuracy",
        looks=looks,
        ylabel="prompts answered rightly",
    )
    baseline = chain_table(records)["baseline_answer"].iloc[0]
    ax.axhline(baseline, color=figures.PALETTE["baseline"], ls=":", label="most frequent answer")
    bound = lookup("chain", records[0].config.task_params)[0]["pairless"]["token_accuracy"]
    ax.axhline(
        bound, color=figures.PALETTE["baseline"], ls="-.", label="shortcut: looks at no pair"
    )
    ax.set_ylim(0, 1)
    figures.title(fig, "Writing the reasoning starts lower and ends higher")
    figures.legend(fig)
    return fig


def depths(records: Sequence[Record]) -> Figure:
    """Draw decoders' token accuracy above the mode baseline by layers, and by length at ``SHALLOW``
    layers.
    """
    by_depth, by_length = depth_tables(records)
    fig, axes = figures.panels(2, width=3.8, height=2.8, sharey=True)
    for ax, rows, by in ((axes[0], by_depth, "layers"), (axes[1], by_length, "length")):
        label = "above the most frequent answer"
        figures.lines(ax, rows.assign(arm="decoder"), by, "above_baseline", ylabel=label)
        ax.set_xticks(sorted(rows[by].unique()))
    axes[0].set(ylim=(0, None), title=f"length {by_depth['length'].iloc[0]}")
    axes[1].set(xlabel="length, tokens", title=f"{SHALLOW} layers")
    figures.title(fig, "Beyond two layers, more change little")
    return fig
