"""Figures: one table of colours and names, plots drawn with it, and files that say what they show.

Files hold no dates; their provenance is the commits of the records, not the current one.
"""

import hashlib
import io
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython import get_ipython
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib_inline.config import InlineBackend
from PIL import Image

from entp_lab import budgets, paths
from entp_lab.frames import check_costs
from entp_lab.statistics import DISPLAY_DIGITS, mean_interval, to_figures
from entp_lab.store import RecordError, Records, Store
from entp_lab.texts import read_text
from entp_lib.architectures import ARCHITECTURES
from entp_lib.files import file_lock, write_atomically

# One colour per architecture everywhere.
PALETTE = {name: a.colour for name, a in ARCHITECTURES.items()} | {
    "baseline": "#7F7F7F",
    "paper": "#000000",
}
DRAWN = 6  # significant digits that can be seen
# Colours of lines that are no architecture: used by none, and distinct for colour-blind readers.
OTHERS = ("#000000", "#56B4E9", "#CC79A7", "#999933", "#882255")
NAMES = {name: a.label for name, a in ARCHITECTURES.items()} | {
    "baseline": "always the most frequent answer"
}
# axes on which random seeds reach the same step at different places
SPENT = ("multiply_adds", "seconds")
SAVED: WeakKeyDictionary[Figure, bytes] = WeakKeyDictionary()  # PNG files of figures
STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same everywhere
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "svg.hashsalt": "entp",
    "svg.fonttype": "path",
}


def use_style() -> None:
    """Set matplotlib to the project's style, and notebooks to show figures as they are saved.

    By default a notebook draws each figure once more to crop it, which the layout makes needless.
    """
    matplotlib.rcParams.update(STYLE)
    shell = get_ipython()
    if shell:
        InlineBackend.instance(parent=shell).set_trait("print_figure_kwargs", {"bbox_inches": None})


def shown(figure: Figure) -> bytes:
    """Return a figure's PNG for a notebook: its file, smaller and in 256 colours, or redrawn if it has changed."""
    buffer = io.BytesIO()
    if figure.stale or figure not in SAVED:
        figure.savefig(buffer, format="png", dpi=figure.dpi)
    else:
        with Image.open(io.BytesIO(SAVED[figure])) as image:
            size = [round(pixels * figure.dpi / STYLE["savefig.dpi"]) for pixels in image.size]
            small = image.convert("RGB").resize(size, Image.Resampling.HAMMING)
        small.quantize(256, dither=Image.Dither.NONE).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def panels(columns: int, rows: int = 1, width: float = 3.4, height: float = 2.8, **options):
    """Return a figure of equal panels in the project's style: (figure, axes)."""
    use_style()
    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), **options)


def plain_ticks(axis, ticks: Iterable[float]) -> None:
    """Label a logarithmic axis (``ax.xaxis`` or ``ax.yaxis``) at ``ticks``, in plain numbers, and nowhere else."""
    axis.set_major_locator(FixedLocator(sorted(set(ticks))))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_locator(NullLocator())


@dataclass(frozen=True)
class Look:
    """How a line is drawn: colour, name, dashes, marker and width. A marker on dashes is hollow."""

    colour: str
    label: str
    dashes: str | tuple = "-"
    marker: str = "o"
    width: float = 1.6

    def style(self) -> dict:
        """Return the look as matplotlib's keywords for a line with markers."""
        solid = self.dashes == "-"
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "lw": self.width,
            "label": self.label,
            "marker": self.marker,
            "ms": self.width + 3,
            "mfc": self.colour if solid else "white",
            "mec": "white" if solid else self.colour,
            "mew": 0.6,
        }


# The arms of comparisons: colour shows the architecture, dashes and marker show the budget. Lines differ in width, so
# that overlapping ones stay visible.
WIDTHS = {
    "decoder": ("o", 2.6),
    "prefix_decoder": ("D", 2.0),
    "entp": ("s", 1.6),
    "hybrid": ("^", 1.2),
}
ARMS = {
    name: Look(a.colour, a.label, "-", *WIDTHS.get(name, ())) for name, a in ARCHITECTURES.items()
} | {
    arm: Look(PALETTE["decoder"], f"decoder, {budget}", dashes, marker, 1.3)
    for arm, budget, dashes, marker in (
        (budgets.EQUAL_OPERATIONS, "same compute", (0, (5, 1.5)), "P"),
        (budgets.SAME_PREFIXES, "same answers", ":", "d"),
        (budgets.MORE_STEPS, "more steps", "-.", "X"),
    )
}


def extent(values: pd.Series) -> tuple[float, float]:
    """Return an error bar, also for seaborn, from the lowest to the highest seed."""
    return values.min(), values.max()


def interval(values: pd.Series) -> tuple[float, float]:
    """Return an error bar, also for seaborn: the 95 % t interval of the mean."""
    return mean_interval(values)[1:]


def lines(
    ax,
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    by: str = "arm",
    looks=ARMS,
    errorbar=extent,
    marks: int = 6,
    **labels,
) -> None:
    """Draw a line for each value of ``by`` through the means of ``y`` at each ``x``, and a band around it.

    ``table``: a row for each random seed and x. For a frame of ``curves``, ``y`` can be any metric and ``x`` is "step",
    "seconds" or "multiply_adds"; ConfigError if a run's multiply-adds are unknown. ``looks``: a ``Look`` for each
    value. ``errorbar``: ``extent``, ``interval`` or None. ``marks``: about how many markers a line has, shifted
    from line to line; 0 for none. On the axes ``SPENT``, the x of a step is its mean over seeds. ``labels`` go to the
    axes: xlabel, ylabel ...
    """
    by = by if by in table else "architecture"
    if x == "multiply_adds":
        check_costs(table)
        labels.setdefault("xlabel", "compute (multiply-adds)")
    if x in SPENT:
        table = table.assign(**{x: table.groupby([by, "step"])[x].transform("mean")})
    for i, (name, part) in enumerate(table.groupby(by, sort=False)):
        at_x = part.dropna(subset=[x, y]).groupby(x)[y]
        means = at_x.mean()
        line = looks[name].style()
        if marks:
            step = max(1, len(means) // marks)
            line["markevery"] = (i * step // 4 % step, step)
        else:
            line["marker"] = ""
        (drawn_line,) = ax.plot(means.index, means, **line)
        if errorbar is None or len(means) == len(part):  # a single seed has no spread
            continue
        low, high = np.transpose([errorbar(values) for _, values in at_x])
        colour = drawn_line.get_color()
        if len(means) == 1:
            bars(ax, means.index, means, low, high, ls="", color=colour)
        else:
            ax.fill_between(means.index, low, high, color=colour, alpha=0.15, lw=0)
    ax.set(**{"xlabel": x.replace("_", "-"), "ylabel": y.replace("_", " "), **labels})


def bars(ax, x, y, low, high, *, across: bool = False, **line) -> None:
    """Draw points with given intervals from ``low`` to ``high`` of y, or of x where ``across``."""
    middle, low, high = np.asarray([x if across else y, low, high], dtype=float)
    ends = np.maximum([middle - low, high - middle], 0)
    axis = "xerr" if across else "yerr"
    ax.errorbar(x, y, **{axis: ends, "elinewidth": 1.4, "ms": 5, **line})


def heat(
    ax,
    matrix,
    *,
    cmap="Oranges",
    square: bool = True,
    xticklabels: Sequence = (),
    yticklabels: Sequence = (),
    **options,
) -> None:
    """Draw a matrix in colours, its first row on top; ``cmap``: a colour map, or the darkest colour of one.

    Tick labels stand at the centres of columns and rows. ``options`` go to ``pcolormesh``; colours go from ``vmin`` = 0
    to ``vmax`` = 1 by default. seaborn's heat map draws the whole figure each time to see whether labels overlap, which
    took half of notebook 04.
    """
    if str(cmap).startswith("#"):
        cmap = sns.light_palette(cmap, as_cmap=True)
    rows, columns = np.shape(matrix)
    defaults = {"vmin": 0, "vmax": 1, "linewidths": 0, "edgecolors": "white"}
    ax.pcolormesh(np.asarray(matrix), cmap=cmap, **defaults | options)
    ax.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal" if square else "auto")
    for axis, labels in ((ax.xaxis, xticklabels), (ax.yaxis, yticklabels)):
        axis.set_ticks(np.arange(len(labels)) + 0.5, labels)
    sns.despine(ax=ax, left=True, bottom=True)
    ax.grid(False)
    ax.tick_params(length=0)


def title(figure: Figure, text: str) -> None:
    """Write a title over all panels, at the left, in as many lines as it needs."""
    lines = textwrap.wrap(text, int(figure.get_figwidth() * 11))  # characters per inch
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11)


def legend(figure: Figure, **options):
    """Draw one legend of all panels, below them, where it covers nothing; each label once.

    It has as many columns as fit into the figure's width, and the figure grows by its height.
    """
    found = {
        label: line
        for ax in figure.axes
        for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    defaults: dict[str, Any] = {"loc": "outside lower center", "fontsize": 9, "handlelength": 2.5}
    for columns in range(len(found), 0, -1):
        drawn = figure.legend(
            list(found.values()), list(found), ncols=columns, **defaults | options
        )
        size = drawn.get_window_extent()
        if size.width <= figure.bbox.width or columns == 1:
            break
        drawn.remove()
    figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)
    return drawn


def save_figure(
    figure: Figure, name: str, *, records: Records, alt: str, smoke: bool = False
) -> list[Path]:
    """Write ``name``.png and ``name``.svg with alt text and provenance inside the files.

    They go to ``paths.new_figures``; those of the ``smoke`` tier, which support no claim, to ``results/smoke/figures``.
    ``data.json`` next to the project's figures holds a digest of each figure's data and words. Files with an unchanged
    digest are left alone (delete one to have it drawn in another style). If records are read-only, a changed digest
    raises RecordError. Raises ValueError for a name that is not lower case with the notebook's number first.
    """
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", name):
        raise ValueError(
            f"figure name {name!r}: use lower case, digits and _, notebook number first"
        )
    smoke = smoke or any(r.config.tier == "smoke" for r in records)
    folder = paths.results() / "smoke" / "figures" if smoke else paths.new_figures()
    about = f"{alt} [{describe_records(records)}]"
    digest = hashlib.sha256(f"{drawn(figure)} {about}".encode()).hexdigest()[:16]
    known = committed_digests().get(name)
    in_place = folder == paths.figures()
    if known not in (None, digest) and not (smoke or in_place) and Store().read_only:
        raise RecordError(
            f"figure {name} draws other data than the committed one: ./run_all.sh --update, if meant"
        )
    png = folder / f"{name}.png"
    svg = folder / f"{name}.svg"
    if not (in_place and known == digest and png.exists() and svg.exists()):
        words = {"Title": name, "Description": about}
        write_picture(figure, png, {**words, "Software": None})
        write_picture(figure, svg, {**words, "Date": None, "Creator": "entp_lib"})
    if in_place and known != digest:
        with file_lock(paths.results() / "locks" / "figures.lock", "it writes figures/data.json"):
            digests = committed_digests() | {name: digest}
            text = json.dumps(digests, indent=0, sort_keys=True) + "\n"
            write_atomically(folder / "data.json", text.encode())
    SAVED[figure] = png.read_bytes()
    figure.stale = False  # until it is changed
    shell = get_ipython()
    if shell:
        formatter = shell.display_formatter.formatters["image/png"]
        if Figure in formatter:  # else the notebook shows figures in another format
            formatter.for_type(Figure, shown)
    return [png, svg]


def write_picture(figure: Figure, path: Path, metadata: Mapping[str, str | None]) -> None:
    """Write a figure atomically in the project's style, in the format of the path's suffix."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=path.suffix[1:], metadata=metadata)
    write_atomically(path, buffer.getvalue())


def drawn(figure: Figure) -> str:
    """Return a digest of a figure's curves, bars, areas and colours, to four significant digits, and of its words.

    Fonts, ticks and positions are left out, as is everything that differs between processors and versions of
    matplotlib.
    """
    words = [figure.get_suptitle(), figure.get_supxlabel(), figure.get_supylabel()]
    legends = list(figure.legends)
    values: list[Any] = []
    for ax in figure.axes:
        words += [ax.get_title(loc=place) for place in ("left", "center", "right")]
        words += [ax.get_xlabel(), ax.get_ylabel(), *(text.get_text() for text in ax.texts)]
        legends += filter(None, [ax.get_legend()])
        for line in ax.lines:
            words.append(to_hex(line.get_color()))
            values.append(line.get_xydata())
        for patch in ax.patches:
            if isinstance(patch, Rectangle):
                words.append(to_hex(patch.get_facecolor()))
                values.append(patch.get_bbox().bounds)
        for area in (*ax.images, *ax.collections):
            if area.get_array() is not None:
                values.append(np.ma.filled(np.ma.asarray(area.get_array(), dtype=float), np.nan))
            elif isinstance(area, Collection):
                values += [area.get_offsets(), *(path.vertices for path in area.get_paths())]
    words += [text.get_text() for legend in legends for text in legend.get_texts()]
    content = json.dumps([words, [rounded(value).tolist() for value in values]])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def rounded(values: Any) -> np.ndarray:
    """Round numbers to ``DRAWN`` significant digits, then to the digits that a figure's digest covers."""
    seen = to_figures(np.asarray(values, dtype=float), DRAWN)
    return to_figures(seen, DISPLAY_DIGITS, decimals=12) + 0.0


def committed_digests() -> dict[str, str]:
    """Return the digests of the project's figures by name, as ``save_figure`` wrote them."""
    path = paths.figures() / "data.json"
    return json.loads(read_text(path)) if path.exists() else {}


def describe_records(records: Records) -> str:
    """Describe tier, seeds, commits and ids of the records behind a figure, in one line."""
    if not records:
        return "no records: computed on the spot"
    tiers = ", ".join(sorted({r.config.tier for r in records}))
    seeds = len({(r.config.model_seed, r.config.data_seed) for r in records})
    commits = ", ".join(sorted({r.provenance["commit"] for r in records}))
    return f"tier {tiers}; seeds {seeds}; commit {commits}; records {' '.join(r.name for r in records)}"
