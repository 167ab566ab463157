"""How ``text FILE`` ends: a picture of the losses, and the line that loads each run's weights."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from entp_lib import paths
from entp_lib.experiments.experiment import name_of
from entp_lib.records.store import Record, Store


def show(records: Sequence[Record], courses: pd.DataFrame, store: Store) -> None:
    """Print what follows the report: where the picture of the losses lies, and how each finished run is loaded.

    ``courses`` are the losses by step, ``store`` is where records and weights lie.
    """
    drawn = picture(courses, store.root / "figures" / "losses.png") if len(courses) else None
    if drawn:
        print(f"\npicture: {paths.relative(drawn)}")
    for r in (r for r in records if r.status == "complete" and store.weights_path(r.experiment, r.id).exists()):
        print(f"\n{r.config.model.architecture}, seed {r.config.model_seed}")
        print("\n".join(f"  {line}" for line in how_to_load(r, store)))


def how_to_load(record: Record, store: Store, prompt: str = "a beginning") -> list[str]:
    """The line of Python that loads a run's weights, and the command that continues a text with them.

    By the run's name where ``load_model`` looks for it, else by the file.
    """
    usual = {paths.results().resolve(), (paths.results() / "own").resolve()} if paths.has_repository() else set()
    name = name_of(record)
    if store.root.resolve() not in usual:
        name = str(store.weights_path(record.experiment, record.id).resolve())
    return [
        f"load:    from entp_lib.records.loading import load_model; model = load_model({name!r})",
        f"go on:   {paths.program()} generate {shlex.quote(name)} --prompt {prompt!r}",
    ]


def picture(courses: pd.DataFrame, path: Path) -> Path | None:
    """Draw the losses by step to ``path``; None where matplotlib, which records do not need, is not installed."""
    try:
        from entp_lib.experiments import figures
    except ModuleNotFoundError:
        return None
    fig, ax = figures.panels(1, width=5.5, height=3.2)
    for (run, kind), values in courses.items():
        colour = figures.PALETTE[run.split(",")[0]]
        ax.plot(values.index, values, color=colour, ls="-" if kind == "validation" else ":", label=f"{run}, {kind}")
    ax.set(xlabel="step", ylabel="loss (nats a token)")
    ax.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path)
    figures.plt.close(fig)
    return path
