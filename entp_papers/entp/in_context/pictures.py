"""Pictures of notebook 08: error by number of examples beside classical learners, and by the settings of a grid."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from entp_lab import figures
from entp_lab.store import Record
from entp_papers.entp.in_context.experiment import task_of
from entp_papers.entp.in_context.tables import by_examples, learners_by_examples, least_squares, references

SMALL = 0.1  # of error: where a run comes below it, figures are logarithmic


def by_examples_each(shown: Sequence[tuple], rows: int = 1, **size: float) -> Figure:
    """``draw`` in a panel each, in ``rows``: its arguments, a title, and the distribution of prompts if another.

    The panels of a row share an axis. It is logarithmic where a run comes below ``SMALL``, as small errors lie on each
    other otherwise; it ends a little beyond the models, and a learner may leave it.
    """
    columns = -(-len(shown) // rows)
    fig, axes = figures.panels(columns, rows, squeeze=False, sharey="row", **size)
    errors = []
    for ax, (function, records, studies, title, *prompts) in zip(axes.flat, shown, strict=False):
        errors.append(draw(ax, records, studies, function, *prompts))
        ax.set_title(title)
    for first in range(0, len(shown), columns):
        ax, of_row = axes.flat[first], pd.concat(errors[first : first + columns])
        top = max(1.2, 1.1 * of_row.max())
        ax.set(ylabel="squared error / E[y²]", ylim=(0, top))
        if of_row.min() < SMALL:
            ax.set_yscale("log")
            ax.set_ylim(0.8 * max(of_row.min(), SMALL / 100), top)
            figures.plain_ticks(ax.yaxis, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1))
    figures.legend(fig)
    return fig


def draw(
    ax, records: Sequence[Record], studies: Sequence[Record], function: str, prompts: str = "standard"
) -> pd.Series:
    """Error by number of examples of one class of functions, with its ``REFERENCES`` in grey: the models' errors.

    Line: mean over seeds; band: lowest to highest seed. Without ``studies``, of functions w·x alone, grey is what least
    squares has in expectation.
    """
    models = by_examples(records, prompts).query("function == @function")
    if studies:
        learners = learners_by_examples(studies, prompts).query("function == @function")
        learners = learners[learners["arm"].isin(references(studies, function))]
    else:
        learners = least_squares(next(task for task in map(task_of, records) if task.function == function))
    grey = {name: ("--", "x") if name == "least squares" else (":", "+") for name in learners["arm"]}
    looks = {name: figures.Look(figures.PALETTE["baseline"], name, *line, 1.1) for name, line in grey.items()}
    figures.lines(ax, models, "examples", "error")
    figures.lines(ax, learners, "examples", "error", looks=looks, errorbar=None)
    ax.axhline(1, color="grey", lw=0.6)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="examples in context", ylabel="")
    return models["error"]


def by_setting(found: pd.DataFrame) -> Figure:
    """Error by learning rate and initial scales, a panel an architecture. ``found``: ``settings_table``."""
    fig, axes = figures.panels(2, width=3.4, height=2.4)
    for ax, architecture in zip(axes, found, strict=True):
        by_rate = found[architecture].unstack("max_lr")
        names = ["positions {:g}, read-in {:g}".format(*scales) for scales in by_rate.index]
        colours = dict(cmap="Greys", vmin=0.7, vmax=1.1, annot=True, fmt=".2f", square=False)
        figures.heat(ax, by_rate.to_numpy(), xticklabels=list(by_rate), yticklabels=names, **colours)
        ax.set(xlabel="learning rate", title=figures.NAMES[architecture])
    axes[1].set_yticks([])
    axes[0].set_ylabel("standard deviation at the start")
    figures.title(fig, "Error / E[y²] on linear functions: dark is worse")
    return fig
