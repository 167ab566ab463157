"""Figures of notebook 11, all from records: a program running, with an animation, and the studies' curves."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image
from scipy.optimize import isotonic_regression

from entp_lab import figures, paths
from entp_lab.figures import OTHERS
from entp_lab.store import Record
from entp_lab.studies import frame, of_study
from entp_lib.files import write_atomically

BITS = ListedColormap(["#882255", "#F5F5F5", "#999933"])  # -1, 0, 1
TARGETS = ("#009E73", "#E69F00", "#CC79A7", "#56B4E9")  # by head
SHORT = ("fetch", "read a", "read b", "write")
BESIDE = dict(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)  # a legend at the right of its panel


def draw_state(ax: Axes, metrics: Mapping[str, Any]) -> None:
    """The state X as the paper has it, a token per column, -1, 0 and 1 in colours; names of the rows at its left.

    Names of low rows are moved apart so that none lies on another.
    """
    x_DT = np.array(metrics["state"]).T
    figures.heat(ax, x_DT, cmap=BITS, vmin=-1, square=False)
    by_row = sorted(metrics["rows"].items(), key=lambda row: row[1])
    places = {name: (start, stop) for name, (start, stop) in by_row if x_DT[start:stop].any()}
    centres, steps = np.array(list(places.values())).mean(1), len(x_DT) / 18 * np.arange(len(places))
    spread = isotonic_regression(centres - steps).x + steps  # those that are too close are set around their mean
    for name, centre, at in zip(places, centres, spread, strict=True):
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


def draw_memory(ax: Axes, metrics: Mapping[str, Any], curves: Mapping[str, Sequence]) -> None:
    """Words by pass, a row per cell, written out; changes of a pass are marked, and its line is below."""
    memory_TC = np.array(curves["memory"])
    changed_TC = np.zeros_like(memory_TC, dtype=float)
    changed_TC[1:] = memory_TC[1:] != memory_TC[:-1]
    passes = [f"{t}\n{line}" for t, line in enumerate(curves["line"])]
    labels = dict(xticklabels=passes, yticklabels=metrics["cells"], annot=memory_TC.T, fmt="d")
    words = {"fontsize": 6, "color": "black"}
    figures.heat(ax, changed_TC.T, cmap=ListedColormap(["#FFFFFF", "#FBD7B5"]), square=False, annot_kws=words, **labels)
    ax.tick_params(labelsize=6)
    ax.set(xlabel="pass, and below it the line that comes next")


def draw_pass(ax: Axes, metrics: Mapping[str, Any], curves: Mapping[str, Sequence], step: int) -> None:
    """One pass: the tokens in a row, their words and commands, and an arc to every token that the scratchpad reads."""
    cells, code = metrics["cells"], metrics["code"]
    ran = curves["line"][step - 1] if step else None
    tokens = [(f"line {curves['line'][step]}", "#FFF3C4")]
    for name, word, before in zip(cells, curves["memory"][step], curves["memory"][max(step - 1, 0)], strict=True):
        tokens.append((f"{name}\n{word}", "#FFFFFF" if word == before else "#FBD7B5"))
    for line, (a, b, c) in enumerate(code):
        tokens.append((f"{line}: {cells[b]}\n-= {cells[a]}\n≤ 0: {c}", "#D6EAF8" if line == ran else "#FFFFFF"))
    for i, (text, colour) in enumerate(tokens):
        ax.add_patch(plt.Rectangle((i - 0.48, -0.5), 0.96, 1.0, fc=colour, ec="grey", lw=0.6))
        ax.text(i, 0, text, ha="center", va="center", fontsize=5.5)
    if step:
        for head, (target, colour) in enumerate(zip(curves["attends"][step], TARGETS, strict=True)):
            curve = dict(arrowstyle="->", color=colour, lw=1.3, connectionstyle=f"arc3,rad={-0.25 - 0.05 * head}")
            ax.annotate("", (target, 0.52), (0.0 + 0.1 * head, 0.52), arrowprops=curve)
            ax.text(len(tokens) - 4.4 + 1.1 * head, 2.05, SHORT[head], color=colour, fontsize=7, ha="center")
    title = "before the first pass" if step == 0 else f"pass {step}: line {ran}"
    ax.text(-0.5, 2.05, title, fontsize=8, ha="left")
    ax.set(xlim=(-0.6, len(tokens) - 0.4), ylim=(-0.6, 2.3))
    ax.axis("off")


def save_animation(record: Record, name: str) -> None:
    """Write the whole run of a ``multiply_study`` to ``name``.gif where ``figures.save_figure`` writes.

    It has a frame per pass, and starts over after its last.
    """
    frames = []
    for step in range(len(record.curves["line"])):
        fig, ax = plt.subplots(figsize=(9.0, 2.2), dpi=figures.STYLE["savefig.dpi"], layout="constrained")
        draw_pass(ax, record.metrics, record.curves, step)
        canvas = FigureCanvasAgg(fig)
        canvas.draw()
        plt.close(fig)
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(32))
    durations = [700] * (len(frames) - 1) + [2800]  # milliseconds
    buffer = io.BytesIO()
    frames[0].save(buffer, format="GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0)
    folder = paths.results() / "smoke" / "figures" if record.config.tier == "smoke" else paths.new_figures()
    path = folder / f"{name}.gif"
    if not path.exists() or path.read_bytes() != buffer.getvalue():
        write_atomically(path, buffer.getvalue())


def temperature(records: Sequence[Record]) -> Figure:
    """Attention off the target by λ with its bound, and the share of random programs that run rightly."""
    fig, (left, right) = figures.panels(2, width=3.6, height=2.5)
    by_tokens = frame(records, "off_target").sort_values("heat").groupby("tokens")
    for (n, part), colour, marker in zip(by_tokens, OTHERS, "osD^", strict=False):
        left.plot(part["heat"], part["off"], color=colour, marker=marker, ms=4, markevery=4, label=f"n = {n}")
        left.plot(part["heat"], part["bound"], ":", color=colour)
    title, ylabel = "dotted: the bound", "largest weight off the target"
    left.set(yscale="log", ylim=(1e-16, 2), xlabel="λ", ylabel=ylabel, title=title)
    left.legend(fontsize=7)
    for (bits, part), colour in zip(frame(records, "temperature").groupby("bits"), OTHERS, strict=False):
        for corrected, style in ((True, "-"), (False, "--")):
            rows = part[part["corrected"] == corrected]
            right.plot(rows["heat"], rows["right"], style, color=colour, label=f"{bits} bits" if corrected else None)
    right.plot([], [], "k--", label="without layer 9")
    bound = of_study(records, "temperature").metrics["bound_at_1e-3"]
    right.axvline(bound, color="grey", ls=":", label="ln(n³/ε), ε = 10⁻³")
    right.set(xlabel="λ", ylabel="share of programs all right", title="random programs on the machine")
    right.legend(**BESIDE)
    return fig


def functions(records: Sequence[Record]) -> Figure:
    """Error of the product by δ, and of sums of sigmoids by their number."""
    fig, (left, right) = figures.panels(2, width=3.6, height=2.7)
    rows = frame(records, "product").query("by == 'delta'")
    for (kind, heads), part in rows.groupby(["precision", "heads"]):
        label = f"{kind}, {heads} head{'s' * (heads > 1)}"
        left.plot(part["delta"], part["error"], "-" if kind == "fp64" else "--", color=OTHERS[heads], label=label)
    one = rows[(rows["precision"] == "fp64") & (rows["heads"] == 1)]
    left.plot(one["delta"], one["predicted"], ":", color="grey", label="δ s²/2 + u/δ, by theory")
    left.set(xscale="log", yscale="log", ylim=(1e-11, 1e3), ylabel="largest error", title="products by attention")
    left.set_xlabel("δ: scale of the attention scores\n(small: softmax is linear, but rounding grows)")
    sums = frame(records, "sigmoids")
    by_function = zip(sums.groupby("function", sort=False), (*OTHERS, "#44AA99"), "osD^vP", strict=False)
    for (name, part), colour, marker in by_function:
        right.plot(part["m"], part["error"], color=colour, marker=marker, ms=4, lw=1.2, label=name)
    terms = np.array(sorted(sums["m"].unique()))
    right.plot(terms, terms**-0.5, ":", color="grey", label="1/√m, Theorem 3")
    right.set(xscale="log", yscale="log", xlabel="sigmoids m", ylabel="largest error", title="sums of sigmoids")
    for ax in (left, right):
        ax.legend(**BESIDE)
    return fig


def computing(records: Sequence[Record]) -> Figure:
    """Errors of the calculator by heads, of Newton's inverse by round from two starts, and of power iteration."""
    fig, axes = figures.panels(3, width=3.5, height=2.4)
    calculator, newton = frame(records, "calculator"), frame(records, "newton")
    said = {"all six": "a program of all six"}
    for name, colour, marker in zip(("all six", "inv", "sqrt", "div"), OTHERS, "osD^", strict=False):
        part = calculator.query("operation == @name")
        axes[0].plot(part["m"], part["relative"], color=colour, marker=marker, ms=4, label=said.get(name, name))
    whole = calculator.query("operation == 'all six'")
    bound = whole["relative"].iloc[0] * (whole["m"] / whole["m"].iloc[0]) ** -0.5
    axes[0].plot(whole["m"], bound, ":", color="grey", label="1/√m")
    axes[0].set(xscale="log", yscale="log", ylabel="largest relative error", title="Calculator")
    axes[0].set_xlabel("heads m per function")
    figures.plain_ticks(axes[0].xaxis, whole["m"])
    styles = {("transposed", "machine"): "-", ("transposed", "exact"): "--", ("printed", "machine"): ":"}
    for ((start, by), style), colour in zip(styles.items(), OTHERS, strict=False):
        part = newton.query("start == @start and by == @by").groupby("round")["residual"].max()
        label = f"start {'εAᵀ' if start == 'transposed' else 'εA, as printed'}, {by}"
        axes[1].plot(part.index, part, style, color=colour, label=label)
    axes[1].set(yscale="log", ylim=(1e-16, 1e7), xlabel="round", ylabel="largest ‖AX − I‖", title="Inverse by Newton")
    looks = zip(OTHERS[1::-1], (dict(lw=4), dict(ls="--")), strict=True)
    for (by, part), (colour, line) in zip(frame(records, "power").groupby("by"), looks, strict=True):
        axes[2].plot(part["round"], part["sine"], color=colour, label=by, **line)
    axes[2].set(yscale="log", xlabel="round", ylabel="sine of angle to eigenvector", title="Power iteration")
    for ax in axes:
        ax.legend(**BESIDE)
    return fig


def learning(records: Sequence[Record]) -> Figure:
    """Loss of back-propagation in the loop and in torch, their differences, and least squares by the inverse."""
    fig, axes = figures.panels(3, width=3.0, height=2.4)
    steps, linear, rows = (frame(records, study) for study in ("back_propagation", "regression", "least_squares"))
    exact, looped = dict(color=OTHERS[1], lw=4), dict(color="black", ls="--", lw=1.2, label="in the loop")
    axes[0].plot(steps["step"], steps["loss_torch"], label="torch", **exact)
    axes[0].plot(steps["step"], steps["loss"], **looped)
    axes[0].set(xlabel="step", ylabel="mean loss", title="Back-propagation")
    axes[0].legend(fontsize=7)
    apart = steps[["difference_w", "difference_v"]].max(axis=1)
    axes[1].plot(steps["step"], apart, color=OTHERS[2], label="two-layer network")
    axes[1].plot(linear["step"], linear["difference"], "--", color=OTHERS[4], label="linear regression")
    axes[1].set(yscale="log", xlabel="step", ylabel="largest weight difference", title="Distance to torch")
    axes[1].legend(loc="center right", bbox_to_anchor=(1, 0.58), fontsize=7)
    grey = dict(marker="o", ms=3, color="#7F7F7F", label="least squares")
    axes[2].plot(rows["examples"], rows["shortest"], **grey)
    axes[2].plot(rows["examples"], rows["exact"], label="with a ridge of 0.1", **exact)
    axes[2].plot(rows["examples"], rows["program"], **looped)
    axes[2].set(yscale="log", ylim=(1e-8, 10), ylabel="squared error / d", title="In-context regression")
    axes[2].set_xlabel("examples")
    axes[2].legend(loc="lower right", fontsize=7)
    return fig


def depth(records: Sequence[Record]) -> Figure:
    """Error of x² by ReLU networks against their depth, and by two layers of attention."""
    fig, ax = figures.panels(1, width=4.6, height=2.4)
    relu, best = frame(records, "depth").query("kind == 'ReLU network'"), of_study(records, "depth").metrics
    ax.plot(relu["layers"], relu["error"], marker="o", ms=3, color="black", label="ReLU network")
    ax.axhline(best["best_attention"], color=OTHERS[2], ls="--", label="attention, 2 layers, best δ")
    ax.set(yscale="log", xlabel="depth of the network (levels)", ylabel="largest error", title="x² on [0, 1]")
    figures.legend(fig)
    return fig
