"""Pictures of scratchpads: one text's mask and targets, and scores by length."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from entp_lab.figures import PALETTE, Look, heat, interval, lines
from entp_papers.scratchpad.format import Row, batch_of

SEEN = ListedColormap(["#F2F2F2", "#56B4E9", "#0072B2"])  # hidden, the memory, the own group
COUNTED = "#009E73"
COPIED = "#9E9E9E"
# An architecture has its colour; line and marker say which scratchpad.
LOOKS = {
    "inductive decoder": Look(PALETTE["decoder"], "inductive decoder", "-", "o", 2.2),
    "ordinary decoder": Look(PALETTE["decoder"], "ordinary decoder", "--", "s"),
    "decoder without": Look(PALETTE["decoder"], "no scratchpad: answer right", ":", "^"),
    "inductive ENTP": Look(PALETTE["entp"], "inductive ENTP", "-", "o"),
}


def draw_row(ax: Axes, row: Row, symbols: Sequence[str]) -> None:
    """Draw who sees whom in a row of training, and below each column its token and position.

    ``symbols`` names the token ids. A token that is learned is green; it is predicted at the column
    before it.
    """
    batch = batch_of([row])
    group_T = np.array(row.groups[:-1])
    length = len(row.tokens) - 1
    mask_TT = (
        np.ones((length, length), dtype=bool)
        if batch.mask_BTT is None
        else batch.mask_BTT[0].numpy()
    )
    seen_TT = np.where(group_T == 0, 1, 2) * (mask_TT & np.tri(length, dtype=bool))
    names = [symbols[token] for token in row.tokens[:-1]]
    below = [f"{name}\n{position}" for name, position in zip(names, row.positions, strict=False)]
    heat(ax, seen_TT, cmap=SEEN, vmax=2, xticklabels=below, yticklabels=names)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for label, counted in zip(ticks, row.counted, strict=False):
            label.set(fontsize=7, color=COUNTED if counted else COPIED)
    for number in range(1, len(names)):
        if row.groups[number] != row.groups[number - 1]:
            ax.axhline(number, color="white", lw=1.2)
            ax.axvline(number, color="white", lw=1.2)
    ax.set(xlabel="token that is seen, and its position id", ylabel="token that sees")


def draw_lengths(axes: Sequence[Axes], sizes: pd.DataFrame) -> None:
    """Draw the share of right scratchpads by size of the question, with 95 % intervals."""
    for ax, task in zip(axes, sizes["task"].unique(), strict=True):
        part = sizes[sizes["task"] == task]
        lines(ax, part, "size", "texts_right", looks=LOOKS, errorbar=interval(0, 1))
        first = part.loc[part["beyond"], "size"].min()
        ax.axvline(first - 0.5, color="grey", ls=":", lw=1, label="longer than trained")
        unit = "bits" if task == "parity" else "digits"
        ax.set(xlabel=unit, ylabel="share of scratchpads all right", title=task.replace("_", " "))
        ax.set(ylim=(-0.05, 1.05), xticks=sorted(part["size"].unique()))
