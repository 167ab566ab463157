"""Figures of changed runs: a line below that says what was changed, and axes whose labels stay apart.

A committed figure is looked at before it is committed. What somebody else's changes draw nobody has seen, so that
lengths of text and ranges of axes are minded here.
"""

import itertools
import textwrap

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

PER_INCH = 17  # characters of the line below
LINE = 0.16  # inches


def note_changes(figure: Figure, text: str) -> None:
    """Say ``text`` below everything in a figure, which grows by that much, and thin labels that would overlap."""
    if figure.get_supxlabel() == "":
        lines = textwrap.wrap(text, max(20, int(figure.get_figwidth() * PER_INCH)), subsequent_indent="  ")
        figure.set_figheight(figure.get_figheight() + LINE * len(lines))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, color="#D55E00")
    figure.draw_without_rendering()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log" and overlapping(axis):
                axis.set_minor_formatter(FuncFormatter(threes))


def overlapping(axis) -> bool:
    """Whether two labels of a drawn axis share some of their place."""
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    boxes = [tick.label1.get_window_extent() for tick in ticks if tick.label1.get_visible() and tick.label1.get_text()]
    boxes.sort(key=lambda box: (box.x0, box.y0))
    return any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


def threes(value: float, _=None) -> str:
    """The label of a value between powers of ten: none, but for the middle one."""
    digit, _, power = f"{value:.0e}".partition("e")
    return rf"$\mathdefault{{3\times10^{{{int(power)}}}}}$" if digit == "3" else ""
