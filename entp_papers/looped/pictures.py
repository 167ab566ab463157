"""A program running, as pictures: the state, the words of the memory by pass, and an animation.

All take the metrics and curves of ``multiply_study``, so that they can be drawn from a record.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from PIL import Image

from entp_lib import paths
from entp_lib.experiments.figures import heat
from entp_lib.files import write_atomically
from entp_lib.records.store import Record

BITS = ListedColormap(["#882255", "#F5F5F5", "#999933"])  # -1, 0, 1
TARGETS = ("#009E73", "#E69F00", "#CC79A7", "#56B4E9")  # by head
SHORT = ("fetch", "read a", "read b", "write")


def spread(places: Sequence[float], apart: float) -> list[float]:
    """Rising ``places`` moved until ``apart`` from each other: those that are too close are set around their mean."""
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1:
            last, before = groups[-1], groups[-2]
            if np.mean(last) - np.mean(before) >= apart * (len(last) + len(before)) / 2:
                break
            groups[-2:] = [before + last]
    return [float(np.mean(g)) + apart * (i - (len(g) - 1) / 2) for g in groups for i in range(len(g))]


def draw_state(ax: Axes, metrics: Mapping[str, Any], which: str = "state") -> None:
    """The state X as the paper has it, a token per column, -1, 0 and 1 in colours; names of the rows at its left.

    Names of low rows are moved apart so that none lies on another.
    """
    x_DT = np.array(metrics[which]).T
    heat(ax, x_DT, cmap=BITS, vmin=-1, square=False)
    by_row = sorted(metrics["rows"].items(), key=lambda row: row[1])
    places = {name: (start, stop) for name, (start, stop) in by_row if x_DT[start:stop].any()}
    centres, apart = [(start + stop) / 2 for start, stop in places.values()], len(x_DT) / 18
    for name, centre, at in zip(places, centres, spread(centres, apart), strict=True):
        line = {"arrowstyle": "-", "lw": 0.5, "color": "grey", "shrinkA": 0, "shrinkB": 0}
        place = {"xycoords": ax.get_yaxis_transform(), "textcoords": ax.get_yaxis_transform()}
        ax.annotate(name, (0, centre), (-0.06, at), fontsize=7, ha="right", va="center", arrowprops=line, **place)
    key = [Patch(fc=BITS((bit + 1) / 2), ec="grey", lw=0.4, label=str(bit)) for bit in (-1, 0, 1)]
    ax.legend(handles=key, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1), handlelength=1)
    for edge in {edge for place in places.values() for edge in place}:
        ax.axhline(edge, color="grey", lw=0.4)
    cells, commands = len(metrics["cells"]), len(metrics["code"])
    for edge in (1, cells + 1):
        ax.axvline(edge, color="black", lw=0.8)
    ax.set_xticks([0.5, 1 + cells / 2, 1 + cells + commands / 2], ["scratchpad", "memory", "commands"])


def draw_down_to(ax: Axes, x: Sequence[float], y: Sequence[float], floor: float, **line: Any) -> None:
    """A line on a logarithmic axis that ends at ``floor``; where it falls below, an arrow says so, and whether to 0."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    below = y < floor
    ax.set_yscale("log")
    ax.plot(x, np.where(below, np.nan, y), **line)
    ax.update_datalim([(x.min(), floor), (x.max(), floor)])
    ax.autoscale_view()
    ax.set_ylim(bottom=floor)
    if below.any():
        word = "↓ 0" if (y[below] == 0).all() else "↓"
        place = {"xycoords": ax.get_xaxis_transform(), "ha": "left", "va": "bottom"}
        ax.annotate(f"{word} from {x[below][0]:g} on", (x[below][0], 0.02), fontsize=7, color=line["color"], **place)


def draw_memory(ax: Axes, metrics: Mapping[str, Any], curves: Mapping[str, Sequence]) -> None:
    """Words by pass, a row per cell, written out; changes of a pass are marked, and its line is below."""
    memory_TC = np.array(curves["memory"])
    changed_TC = np.zeros_like(memory_TC, dtype=float)
    changed_TC[1:] = memory_TC[1:] != memory_TC[:-1]
    passes = [f"{t}\n{line}" for t, line in enumerate(curves["line"])]
    labels = dict(xticklabels=passes, yticklabels=metrics["cells"], annot=memory_TC.T, fmt="d")
    words = {"fontsize": 6, "color": "black"}
    heat(ax, changed_TC.T, cmap=ListedColormap(["#FFFFFF", "#FBD7B5"]), square=False, annot_kws=words, **labels)
    ax.tick_params(labelsize=6, rotation=0)
    ax.set(xlabel="pass, and below it the line that comes next")


def draw_pass(ax: Axes, metrics: Mapping[str, Any], curves: Mapping[str, Sequence], step: int) -> None:
    """One pass: the tokens in a row, their words and commands, and an arc to every token that the scratchpad reads."""
    cells, code = metrics["cells"], metrics["code"]
    words, tokens = curves["memory"][step], 1 + len(cells) + len(code)
    ran = curves["line"][step - 1] if step else None
    for i in range(tokens):
        in_memory = 1 <= i <= len(cells)
        if i == 0:
            text, colour = f"line {curves['line'][step]}", "#FFF3C4"
        elif in_memory:
            fresh = step > 0 and words[i - 1] != curves["memory"][step - 1][i - 1]
            text, colour = f"{cells[i - 1]}\n{words[i - 1]}", "#FBD7B5" if fresh else "#FFFFFF"
        else:
            a, b, c = code[i - 1 - len(cells)]
            text = f"{i - 1 - len(cells)}: {cells[b]}\n-= {cells[a]}\n≤ 0: {c}"
            colour = "#D6EAF8" if i - 1 - len(cells) == ran else "#FFFFFF"
        ax.add_patch(plt.Rectangle((i - 0.48, -0.5), 0.96, 1.0, fc=colour, ec="grey", lw=0.6))
        ax.text(i, 0, text, ha="center", va="center", fontsize=5.5)
    if step:
        for head, (target, colour) in enumerate(zip(curves["attends"][step], TARGETS, strict=True)):
            curve = dict(arrowstyle="->", color=colour, lw=1.3, connectionstyle=f"arc3,rad={-0.25 - 0.05 * head}")
            ax.annotate("", (target, 0.52), (0.0 + 0.1 * head, 0.52), arrowprops=curve)
            ax.text(tokens - 4.4 + 1.1 * head, 2.05, SHORT[head], color=colour, fontsize=7, ha="center")
    title = "before the first pass" if step == 0 else f"pass {step}: line {ran}"
    ax.text(-0.5, 2.05, title, fontsize=8, ha="left")
    ax.set(xlim=(-0.6, tokens - 0.4), ylim=(-0.6, 2.3))
    ax.axis("off")


def animate(metrics: Mapping[str, Any], curves: Mapping[str, Sequence], milliseconds: int = 700) -> bytes:
    """The whole run as a GIF, a frame per pass, that starts over after its last; the bytes of the file."""
    frames = []
    for step in range(len(curves["line"])):
        fig, ax = plt.subplots(figsize=(9.0, 2.2), dpi=90, layout="constrained")
        draw_pass(ax, metrics, curves, step)
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png")
        plt.close(fig)
        with Image.open(buffer) as image:
            frames.append(image.convert("RGB").quantize(32))
    durations = [milliseconds] * (len(frames) - 1) + [4 * milliseconds]
    buffer = io.BytesIO()
    frames[0].save(buffer, format="GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return buffer.getvalue()


def save_animation(record: Record, name: str) -> None:
    """Write the animation of a ``multiply_study`` to ``name``.gif where ``figures.save_figure`` writes."""
    folder = paths.results() / "smoke" / "figures" if record.config.tier == "smoke" else paths.new_figures()
    path, data = folder / f"{name}.gif", animate(record.metrics, record.curves)
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)
