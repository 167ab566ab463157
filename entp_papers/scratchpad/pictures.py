"""Pictures of notebook 13: one text's mask and targets, scores by length and by state."""

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
        ax.set(
            xlabel="bits" if task == "parity" else "digits", ylabel="share of scratchpads all right"
        )
        ax.set(
            title=task.replace("_", " "), ylim=(-0.05, 1.05), xticks=sorted(part["size"].unique())
        )


def draw_states(axes: np.ndarray, states: pd.DataFrame) -> None:
    """Draw the share of wrong states by number and random seed: an arm a row, a task a column."""
    for column, task in zip(axes.T, states["task"].unique(), strict=True):
        part = states[states["task"] == task]
        for ax, arm in zip(column, states["arm"].unique(), strict=True):
            by_seed = part[part["arm"] == arm].pivot(index="seed", columns="state", values="error")
            ax.set_visible(len(by_seed) > 0)
            if len(by_seed):
                heat(ax, by_seed, cmap=LOOKS[arm].colour, square=False, xticklabels=True)
                first = part.loc[part["beyond"], "state"].min()
                ax.axvline((by_seed.columns < first).sum(), color="black", ls=":", lw=1)
                ax.set(
                    title=f"{task.replace('_', ' ')}, {arm}",
                    xlabel="number of the state",
                    ylabel="random\nseeds",
                )
