"""A program that runs, drawn from its record: the state, the memory, and an animation."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from PIL import Image
from scipy.optimize import isotonic_regression

from entp_lab import figures, paths
from entp_lab.store import Record
from entp_lib.files import write_atomically

BITS = ListedColormap(["#882255", "#F5F5F5", "#999933"])  # -1, 0, 1
CHANGED = "#FBD7B5"
HEADS = {"fetch": "#009E73", "read a": "#E69F00", "read b": "#CC79A7", "write": "#56B4E9"}


def draw_state(ax: Axes, metrics: Mapping[str, Any]) -> None:
    """Draw the state X as the paper has it, a token per column; row names stand at its left."""
    x_DT = np.array(metrics["state"]).T
    figures.heat(ax, x_DT, cmap=BITS, vmin=-1, square=False)
    named = {name: rows for name, rows in metrics["rows"].items() if x_DT[slice(*rows)].any()}
    named = dict(sorted(named.items(), key=lambda item: item[1]))
    centres = np.array(list(named.values())).mean(1)
    # names keep a distance of 1/18 of the height, around the mean of those that are too close
    least = len(x_DT) / 18 * np.arange(len(named))
    heights = isotonic_regression(centres - least).x + least
    for name, centre, height in zip(named, centres, heights, strict=True):
        ax.annotate(
            name,
            (0, centre),
            (-0.06, height),
            xycoords=ax.get_yaxis_transform(),
            textcoords=ax.get_yaxis_transform(),
            fontsize=7,
            ha="right",
            va="center",
            arrowprops=dict(arrowstyle="-", lw=0.5, color="grey", shrinkA=0, shrinkB=0),
        )
    for edge in {edge for rows in named.values() for edge in rows}:
        ax.axhline(edge, color="grey", lw=0.4)
    cells = len(metrics["cells"])
    commands = len(metrics["code"])
    for edge in (1, cells + 1):
        ax.axvline(edge, color="black", lw=0.8)
    centres = [0.5, 1 + cells / 2, 1 + cells + commands / 2]
    ax.set_xticks(centres, ["scratchpad", "memory", "commands"])
    key = [Patch(fc=BITS((bit + 1) / 2), ec="grey", lw=0.4, label=str(bit)) for bit in (-1, 0, 1)]
    below = dict(loc="upper center", bbox_to_anchor=(0.5, -0.1))
    ax.legend(handles=key, fontsize=7, ncols=3, handlelength=1, **below)


def draw_memory(ax: Axes, metrics: Mapping[str, Any], curves: Mapping[str, Sequence]) -> None:
    """Draw the memory by pass, a row per cell; changed words are marked, and the line is below."""
    memory_TC = np.array(curves["memory"])
    changed_TC = np.zeros_like(memory_TC, dtype=float)
    changed_TC[1:] = memory_TC[1:] != memory_TC[:-1]
    figures.heat(
        ax,
        changed_TC.T,
        cmap=ListedColormap(["#FFFFFF", CHANGED]),
        square=False,
        xticklabels=[f"{t}\n{line}" for t, line in enumerate(curves["line"])],
        yticklabels=metrics["cells"],
        annot=memory_TC.T,
        fmt="d",
        annot_kws={"fontsize": 8, "color": "black"},
    )
    ax.tick_params(labelsize=6)
    ax.set(xlabel="pass, and below it the line that comes next")


def draw_pass(
    ax: Axes, metrics: Mapping[str, Any], curves: Mapping[str, Sequence], step: int
) -> None:
    """Draw one pass: the tokens in a row, and an arc to every token that the scratchpad reads."""
    cells = metrics["cells"]
    executed = curves["line"][step - 1] if step else None
    before = curves["memory"][max(step - 1, 0)]
    tokens = [(f"line {curves['line'][step]}", "#FFF3C4")]
    for name, word, old in zip(cells, curves["memory"][step], before, strict=True):
        tokens.append((f"{name}\n{word}", "#FFFFFF" if word == old else CHANGED))
    for line, (a, b, c) in enumerate(metrics["code"]):
        colour = "#D6EAF8" if line == executed else "#FFFFFF"
        tokens.append((f"{line}: {cells[b]}\n-= {cells[a]}\n≤ 0: {c}", colour))
    for i, (text, colour) in enumerate(tokens):
        ax.add_patch(plt.Rectangle((i - 0.48, -0.5), 0.96, 1.0, fc=colour, ec="grey", lw=0.6))
        ax.text(i, 0, text, ha="center", va="center", fontsize=5.5)
    if step:
        for head, (name, colour) in enumerate(HEADS.items()):
            bend = f"arc3,rad={-0.25 - 0.05 * head}"
            arrow = dict(arrowstyle="->", color=colour, lw=1.3, connectionstyle=bend)
            target = curves["attends"][step][head]
            ax.annotate("", (target, 0.52), (0.1 * head, 0.52), arrowprops=arrow)
            place = len(tokens) - 4.4 + 1.1 * head
            ax.text(place, 2.05, name, color=colour, fontsize=7, ha="center")
    title = f"pass {step}: line {executed}" if step else "before the first pass"
    ax.text(-0.5, 2.05, title, fontsize=8, ha="left")
    ax.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(-0.6, 2.3))
    ax.axis("off")


def save_animation(record: Record, name: str) -> None:
    """Write the whole run of a ``multiply_study`` to ``name``.gif.

    It has a frame per pass, and starts over after its last.
    """
    frames = []
    for step in range(len(record.curves["line"])):
        dpi = figures.STYLE["savefig.dpi"]
        fig, ax = plt.subplots(figsize=(9.0, 2.2), dpi=dpi, layout="constrained")
        draw_pass(ax, record.metrics, record.curves, step)
        canvas = FigureCanvasAgg(fig)
        canvas.draw()
        plt.close(fig)
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(32))
    durations = [700] * (len(frames) - 1) + [2800]  # milliseconds
    buffer = io.BytesIO()
    options = dict(save_all=True, append_images=frames[1:], duration=durations, loop=0)
    frames[0].save(buffer, format="GIF", **options)
    smoke = record.config.tier == "smoke"
    folder = paths.results() / "smoke" / "figures" if smoke else paths.new_figures()
    path = folder / f"{name}.gif"
    if not path.exists() or path.read_bytes() != buffer.getvalue():
        write_atomically(path, buffer.getvalue())
