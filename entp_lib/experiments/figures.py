"""One style, one palette, how arms are drawn, and figure files that say what they show.

Files are byte-equal when they are made again from the same records: no dates, fixed ids, and as provenance the
commits of the records, not of the moment.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython import get_ipython
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib_inline.config import InlineBackend

from entp_lib import paths
from entp_lib.architectures import ARCHITECTURES
from entp_lib.experiments import budgets, changes
from entp_lib.experiments.notes import note_changes
from entp_lib.experiments.png_files import looks_equal
from entp_lib.files import write_atomically
from entp_lib.records.progress import event
from entp_lib.records.store import Record
from entp_lib.statistics import mean_interval, to_figures

# One colour per architecture everywhere.
PALETTE = {name: a.colour for name, a in ARCHITECTURES.items()} | {"baseline": "#7F7F7F", "paper": "#000000"}
DRAWN = 6  # significant figures of what is drawn
# For lines that are no architecture: colours that none has, which colour-blind readers can tell apart as well.
OTHERS = ("#000000", "#56B4E9", "#CC79A7", "#999933", "#882255")
NAMES = {name: a.label for name, a in ARCHITECTURES.items()} | {"baseline": "mode baseline"}
STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same everywhere
    "font.size": 9,
    "axes.titlesize": 10,
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
    if shell is not None:
        InlineBackend.instance(parent=shell).print_figure_kwargs = {"bbox_inches": None}


def panels(columns: int, rows: int = 1, width: float = 3.4, height: float = 2.8, **options):
    """A figure of equal panels in the project's style: (figure, axes)."""
    use_style()
    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), **options)


def plain_ticks(axis, ticks: Iterable[float]) -> None:
    """Label a logarithmic axis (``ax.xaxis`` or ``ax.yaxis``) at ``ticks``, in plain numbers, and nowhere else."""
    axis.set_major_locator(FixedLocator(sorted(set(ticks))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


@dataclass(frozen=True)
class Look:
    """How an arm is drawn everywhere: its architecture's colour, a line style of its own, and its name."""

    colour: str
    style: str
    label: str


EQUAL_FORWARDS = budgets.EQUAL_FORWARDS
SAME_PREFIXES = budgets.SAME_PREFIXES
MORE_STEPS = budgets.MORE_STEPS
ARMS = {name: Look(a.colour, "-", a.label) for name, a in ARCHITECTURES.items()}
ARMS[EQUAL_FORWARDS] = Look(PALETTE["decoder"], "--", "decoder, equal token-forwards")
ARMS[SAME_PREFIXES] = Look(PALETTE["decoder"], ":", "decoder, same prefixes")
ARMS[MORE_STEPS] = Look(PALETTE["decoder"], "-.", "decoder, more steps")


def draw_arm(ax, arm: str, x, mean, low, high, **line) -> None:
    """One arm of a comparison: its mean over seeds and a band from ``low`` to ``high``, a bar where it is one point."""
    look = ARMS[arm]
    if len(x) == 1:
        ax.vlines(x, low, high, color=look.colour, ls=look.style, lw=1, alpha=0.6)
    ax.fill_between(x, low, high, color=look.colour, alpha=0.15, lw=0)
    ax.plot(x, mean, **{"color": look.colour, "ls": look.style, "label": look.label, **line})


# Where lines may lie on each other, each arm has a marker and a width, so that the thicker show below the thinner.
APART = {
    "decoder": ("o", 3.0),
    "prefix_decoder": ("D", 2.4),
    "entp": ("s", 1.8),
    "hybrid": ("^", 1.0),
    EQUAL_FORWARDS: ("v", 1.2),
    SAME_PREFIXES: ("P", 1.2),
    MORE_STEPS: ("X", 1.2),
}
SPARE_MARKERS = "oDs^vPX*<>hpd"


def tell_apart(ax, *, marks: int = 6, stagger: bool = True) -> None:
    """Make lines visible that lie on each other: the later one is drawn, the thinner, and each has its own marker.

    Treated are the labelled lines of ``ax``, in their order: an arm as in ``APART``, others from 3 points down to 1.
    About ``marks`` markers a line, at places of its own, or not ``stagger``: one at every point, the larger below the
    smaller. Markers are hollow where the line is dashed.
    """
    by_label = {ARMS[arm].label: look for arm, look in APART.items()}
    found = [line for line in ax.get_lines() if not line.get_label().startswith("_") and len(line.get_xdata())]
    spare = iter([m for m in SPARE_MARKERS if m not in {by_label.get(line.get_label(), "-")[0] for line in found}])
    for i, line in enumerate(found):
        points, turns = len(line.get_xdata()), min(len(found), 3)
        step = max(turns, points // marks) if stagger and points > turns else 1
        given = by_label.get(line.get_label())
        marker, width = given or (next(spare), np.linspace(3, 1, len(found))[i])
        edge = {"mfc": line.get_color(), "mec": "white"}
        if line.get_linestyle() not in ("-", "None"):
            edge = {"mfc": "white", "mec": line.get_color()}
        size = max(4.2, width + 2) if stagger else 3 + 1.3 * width
        line.set(lw=width, marker=marker, ms=size, mew=0.6, **edge)
        line.set_markevery((round(i * step / turns) % step, step))


def legend_beside(ax, *, colour: str | None = None, **options):
    """A legend to the right of the axes, where no curve is; ``colour`` for its lines where it speaks of all panels."""
    defaults = {"loc": "upper left", "bbox_to_anchor": (1, 1), "fontsize": 7, "handlelength": 3.2}
    legend = ax.legend(**{**defaults, **options})
    for line in legend.get_lines() if colour else ():
        line.set_color(colour)
    return legend


def seed_curves(ax, curves: pd.DataFrame, x: str, y: str, *, xlabel: str, ylabel: str, at: str = "") -> None:
    """Mean over seeds for each arm, a band from the lowest to the highest seed, thin lines per seed.

    ``curves``: columns ``arm`` (or ``architecture``), ``seed``, ``x`` and ``y``. Where seeds stop at different x
    (seconds), no mean exists and only the seeds are drawn; or, with a column ``at`` (the step) that all seeds share,
    a line through the means of x and y at each of its values.
    """
    for arm, part in curves.groupby("arm" if "arm" in curves else "architecture", sort=False):
        look = ARMS[arm]
        wide = part.pivot(index=x, columns="seed", values=y)
        aligned = not wide.isna().any().any()
        if aligned:
            draw_arm(ax, arm, wide.index, wide.mean(axis=1), wide.min(axis=1), wide.max(axis=1))
        elif at:
            mean = part.groupby(at)[[x, y]].mean()
            ax.plot(mean[x], mean[y], color=look.colour, ls=look.style, label=look.label)
        for i, (_, seed) in enumerate(part.groupby("seed")):
            lone = {} if aligned or at or i else {"label": look.label}
            style = dict(color=look.colour, ls=look.style, lw=0.6, alpha=0.5 if aligned or at else 1.0)
            ax.plot(seed[x], seed[y], **style, **lone)
    ax.set(xlabel=xlabel, ylabel=ylabel)


def arm_curves(ax, means: pd.DataFrame, x: str, *, xlabel: str, ylabel: str, within=(-np.inf, np.inf)) -> None:
    """A line for each arm through ``mean``, with a band from ``low`` to ``high``: a frame of ``interval_table``.

    ``within``: the range of the quantity; a band beyond it is drawn to its end (the t interval of a share leaves 0..1).
    """
    for arm, part in means.groupby("arm", sort=False):
        part = part.sort_values(x).assign(low=lambda p: p["low"].clip(*within), high=lambda p: p["high"].clip(*within))
        fill = ARMS[arm].colour if ARMS[arm].style == "-" else "white"  # a lone point shows no line style
        draw_arm(ax, arm, part[x], part["mean"], part["low"], part["high"], marker="o", ms=3, mfc=fill)
    ax.set(xlabel=xlabel, ylabel=ylabel)


def paired_gaps(ax, gaps: Mapping[str, pd.Series], *, xlabel: str) -> None:
    """Paired differences, a row each: a dot a seed, the mean and its 95 % interval."""
    for row, values in enumerate(gaps.values()):
        mean, low, high = mean_interval(values)
        ax.plot(values, [row] * len(values), "o", ms=4, color="#56B4E9", alpha=0.7, mec="none")
        ax.plot([low, high], [row, row], color="black", lw=1.2)
        ax.plot([mean], [row], "|", ms=12, color="black")
    ax.axvline(0, color="grey", lw=0.8)
    ax.set_yticks(range(len(gaps)), list(gaps))
    ax.set(xlabel=xlabel, ylim=(len(gaps) - 0.5, -0.5))


def save_figure(figure: Figure, name: str, *, records: Iterable[Record], alt: str, smoke: bool = False) -> list[Path]:
    """Write ``name``.png and ``name``.svg with alt text and provenance inside the files.

    They go below ``figures/`` where ``./run_all.sh`` shows the best records or updates, else beside the executed copies
    of the notebooks (``paths.new_figures``), and figures of the ``smoke`` tier, which claim nothing, to
    ``results/smoke/figures``. What is drawn is rounded first (``round_drawn``). Files whose content would not change
    are left alone, and PNGs that another processor's rounding would change by nothing that can be seen. A figure of
    changed runs says below what was changed. Raises ValueError for a name that is not notebook_figure, in lower case.
    """
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", name):
        raise ValueError(f"figure name {name!r}: use lower case, digits and _, notebook number first")
    records = list(records)
    smoke = smoke or any(r.config.tier == "smoke" for r in records)
    folder = paths.results() / "smoke" / "figures" if smoke else paths.new_figures()
    about = f"{alt} [{describe_records(records)}]"
    changed, written = changes.texts(records), []
    if changed:
        note_changes(figure, f"changed: {'; '.join(changed)}")
    round_drawn(figure)
    for suffix in ("png", "svg"):
        path = folder / f"{name}.{suffix}"
        data = render(figure, suffix, name, about)
        if not path.exists() or not (path.read_bytes() == data or (suffix == "png" and looks_equal(path, data))):
            write_atomically(path, data)
        written.append(path)
    event("figure", name=name)
    return written


def round_drawn(figure: Figure) -> None:
    """Round in place what a figure draws, the ends of its axes and their places, to ``DRAWN`` significant figures.

    More cannot be seen, and the last digits of what was computed differ from one processor to the next. The layout is
    found here, once; it serves every further drawing.
    """
    for ax in figure.axes:
        ends = [to_figures(np.array(end), DRAWN) for end in (ax.get_xlim(), ax.get_ylim())]
        for line in ax.lines:
            line.set_data(*(to_figures(np.asarray(values), DRAWN) for values in line.get_data(orig=False)))
        for drawn in (*ax.images, *ax.collections):
            if drawn.get_array() is not None:
                values = np.ma.asarray(drawn.get_array())
                drawn.set_array(np.ma.array(to_figures(values.data, DRAWN), mask=values.mask))
        for path in (path for drawn in ax.collections for path in drawn.get_paths()):
            path.vertices = to_figures(path.vertices, DRAWN)
        for patch in (patch for patch in ax.patches if isinstance(patch, Rectangle)):
            patch.set_bounds(*to_figures(np.array(patch.get_bbox().bounds), DRAWN))
        ax.set(xlim=ends[0], ylim=ends[1])
    engine, dpi = figure.get_layout_engine(), figure.dpi
    if engine is not None:
        figure.dpi = STYLE["savefig.dpi"]  # letters are a little wider or narrower at others
        engine.execute(figure)
        figure.dpi = dpi
        figure.set_layout_engine("none")
    for ax in figure.axes:
        ax.set_position(to_figures(np.array(ax.get_position(original=True).bounds), DRAWN))


def render(figure: Figure, suffix: str, title: str, about: str) -> bytes:
    """The file's bytes, without a date or a version."""
    metadata = {"Title": title, "Description": about}
    metadata |= {"Software": None} if suffix == "png" else {"Date": None, "Creator": "entp_lib"}
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=suffix, metadata=metadata)
    return buffer.getvalue()


def describe_records(records: Sequence[Record]) -> str:
    """Tier, seeds, commits and ids of the records behind a figure, in one line."""
    if not records:
        return "no records: computed on the spot"
    tiers = ", ".join(sorted({r.config.tier for r in records}))
    seeds = len({(r.config.model_seed, r.config.data_seed) for r in records})
    commits = ", ".join(sorted({str(r.provenance.get("commit", "unknown")) for r in records}))
    ids = " ".join(f"{r.experiment}/{r.id}" for r in records)
    changed = "".join(f", changed: {text}" for text in changes.texts(records))
    return f"tier {tiers}{changed}; seeds {seeds}; commit {commits}; records {ids}"


def tier_note(records: Sequence[Record]) -> str:
    """What a figure's title says of its records: tier and seeds, and whether they are of changed runs."""
    tiers = "/".join(sorted({r.config.tier for r in records}))
    seeds = len({(r.config.model_seed, r.config.data_seed) for r in records})
    return f"tier {tiers}, {seeds} seed{'s' if seeds != 1 else ''}{', changed' if changes.texts(records) else ''}"
