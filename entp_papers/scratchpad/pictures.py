"""One example's mask, position ids and targets as a picture, and which states reach which through the layers."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from entp_lib.experiments.figures import PALETTE, Look, heat
from entp_papers.scratchpad.format import Row, batch_of
from entp_papers.scratchpad.relative import inductive_mask, receptive_field, window_mask

SEEN = ListedColormap(["#F2F2F2", "#56B4E9", "#0072B2"])  # hidden, the memory, the own group
REACH = ListedColormap(["#F2F2F2", "#0072B2", "#CC79A7"])  # out of reach, allowed, an older state
COUNTED, COPIED = "#009E73", "#9E9E9E"
# An architecture has its colour; line and marker say which scratchpad.
LOOKS = {
    "inductive decoder": Look(PALETTE["decoder"], "inductive decoder", "-", "o", 2.2),
    "ordinary decoder": Look(PALETTE["decoder"], "ordinary decoder", "--", "s"),
    "decoder without": Look(PALETTE["decoder"], "no scratchpad: answer right", ":", "^"),
    "inductive ENTP": Look(PALETTE["entp"], "inductive ENTP", "-", "o"),
}


def seen_by(row: Row) -> np.ndarray:
    """(T, T) of what a decoder trained on a row lets a token (row) see: 0 hidden, 1 the memory, 2 its own group."""
    batch = batch_of([row])
    length = len(row.tokens) - 1
    mask_TT = np.ones((length, length), dtype=bool) if batch.mask_BTT is None else batch.mask_BTT[0].numpy()
    group_T = np.array(row.groups[:-1])
    kind_TT = np.where((group_T == 0)[None], 1, 2) * np.ones((length, 1), dtype=int)
    return kind_TT * (mask_TT & np.tri(length, dtype=bool))


def draw_row(ax: Axes, row: Row, symbols: Sequence[str]) -> None:
    """A row of training: who sees whom, and below each column its token, position id and whether it is learned.

    ``symbols`` names the token ids. A token that is learned is green; it is predicted at the column before it.
    """
    names = [symbols[token] for token in row.tokens[:-1]]
    below = [f"{name}\n{position}" for name, position in zip(names, row.positions, strict=False)]
    heat(ax, seen_by(row), cmap=SEEN, vmax=2, xticklabels=below, yticklabels=names)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for label, counted in zip(ticks, row.counted, strict=False):
            label.set(fontsize=7, rotation=0, color=COUNTED if counted else COPIED)
    for number in range(1, len(names)):
        if row.groups[number] != row.groups[number - 1]:
            ax.axhline(number, color="white", lw=1.2)
            ax.axvline(number, color="white", lw=1.2)
    ax.set(xlabel="token that is seen, and its position id", ylabel="token that sees")


def reach_by_window(tokens_per_state: int, states: int, layers: int) -> np.ndarray:
    """(N, N) of a text without question under a window of 2 T - 1: 0 out of reach, 1 allowed, 2 an older state.

    2 T - 1 is what the last token of a state needs to see the first token of the state before. Allowed are the token's
    own state and the one before.
    """
    length = tokens_per_state * states
    field_NN = receptive_field(window_mask(length, 2 * tokens_per_state - 1), layers)
    state_N = np.arange(length) // tokens_per_state
    older_NN = state_N[None] < state_N[:, None] - 1
    return np.where(field_NN, np.where(older_NN, 2, 1), 0)


def reach_by_groups(tokens_per_state: int, states: int, layers: int) -> np.ndarray:
    """The same of the text with duplicated states under the inductive mask: its older states are other groups."""
    field_NN = receptive_field(inductive_mask(0, tokens_per_state, states), layers)
    group_N = np.concatenate([np.full(tokens_per_state * min(i, 2), i) for i in range(1, states + 1)])
    return np.where(field_NN, np.where(group_N[None] != group_N[:, None], 2, 1), 0)


def draw_reach(ax: Axes, reach_NN: np.ndarray, tokens_per_state: int) -> None:
    """A matrix of ``reach_by_window`` or ``reach_by_groups``, with a line between states."""
    heat(ax, reach_NN, cmap=REACH, vmax=2)
    for edge in range(tokens_per_state, len(reach_NN), tokens_per_state):
        ax.axhline(edge, color="white", lw=0.8)
        ax.axvline(edge, color="white", lw=0.8)
    ax.set(xlabel="token that is reached")
