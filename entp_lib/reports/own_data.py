"""Decoder and ENTP on sequences of one's own: ``python -m entp_lib data FILE``.

Runs of one file are paired: the same initial weights, batches and steps. Their records go to a folder of their own and
belong to no claim.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from entp_lib.config import ARCHITECTURES, ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.experiment import twins
from entp_lib.files import write_atomically
from entp_lib.models.costs import decoder_token
from entp_lib.records.store import Record, Store
from entp_lib.reports.continuing import how_to_load, tokenizer_path
from entp_lib.statistics import mean_interval
from entp_lib.tasks import Table, build_task
from entp_lib.validation import one_of, printable, require

VERSION = 3  # 1 told inputs apart by what no prediction sees; 2 had zero as the constant guess of real targets
HELD_OUT = 0.1
DEFAULT = ("decoder", "entp")
MOST_LAYERS = 1000  # each is a module, a million of which take minutes to make


def configs(
    file: str,
    architectures: Sequence[str] = (),
    *,
    held_out: float = HELD_OUT,
    steps: int = 1000,
    batch_size: int = 64,
    max_lr: float = 1e-3,
    seeds: int = 3,
    shape: str = "3/4/64",
) -> list[RunConfig]:
    """The runs on a CSV or ``.npz`` file; the rate falls to a tenth. ``shape``: layers/heads/width.

    ConfigError for what the file or the options lack, and for a share to hold out of a file that names its parts.
    """
    for name in architectures:
        one_of("architecture", name, ARCHITECTURES)
    written = re.fullmatch(r"(\d{1,9})/(\d{1,9})/(\d{1,9})", shape)
    require(written is not None, f"shape = {shape!r}: write layers/heads/width, as 3/4/64")
    sizes = dict(zip(("n_layers", "n_heads", "width"), map(int, written.groups()), strict=True))
    require(sizes["n_layers"] <= MOST_LAYERS, f"shape = {shape!r}: at most {MOST_LAYERS} layers")
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    task = Table(file, held_out=held_out).named()
    task.prepare()
    named = task.contents.part is not None
    require(not named or held_out == HELD_OUT, f"held_out = {held_out}: {file} names the parts itself; leave out one")
    if task.continuous:
        sizes |= dict(vocab_size=0, input_dim=task.input_dim, output_dim=1)
    else:
        sizes |= dict(vocab_size=task.vocab_size)
    model = ModelConfig("decoder", max_length=task.length, **sizes)
    check_memory(model, batch_size, f"shape = {shape!r}")
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        max_lr=max_lr,
        min_lr=max_lr / 10,
        warmup_steps=min(100, steps // 10),
        eval_every=max(1, steps // 20),
        eval_sequences=512,
        final_eval_sequences=4096,
    )
    params = dict(file=task.file, checksum=task.checksum, held_out=held_out)
    base = RunConfig("own_data", "quick", "table", params, model, train)
    return [run.config for run in twins(base, architectures or DEFAULT, seeds)]


def check_memory(model: ModelConfig, batch_size: int, shape: str) -> None:
    """ConfigError where a model's weights, or a batch, with what training keeps of each exceed the machine's memory.

    In fp32: a weight, its gradient and two moments, of linear maps alone; of a batch the layers' inputs. ``shape``:
    how the message names the model.
    """
    pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()) else 0
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**30 if pages > 0 else float("inf")
    batch = 4 * batch_size * model.max_length * model.width * model.n_layers
    for what, needed in ((shape, 16 * decoder_token(model, 0)), (f"batch_size = {batch_size}", batch)):
        right = f"{what}: training takes {needed / 2**30:,.0f} GiB or more, and this machine has {memory:,.0f}"
        require(needed / 2**30 <= memory, right)


def how_to_go_on(record: Record, store: Store) -> list[str]:
    """The line that loads a run's weights and, where its model foretells what comes next, the command that goes on.

    The words of such a run are written next to its weights, so that it goes on where the file is not. Raises OSError
    where they cannot be.
    """
    task = build_task(record.config.task, record.config.task_params)
    if task.continues:
        path = tokenizer_path(store.weights_path(record.experiment, record.id))
        write_atomically(path, json.dumps({"words": task.contents.words}, ensure_ascii=False).encode())
    return how_to_load(record, store, prompt="the first tokens")[: 2 if task.continues else 1]


def report(records: Sequence[Record]) -> str:
    """Test scores of the weights of lowest validation loss, by architecture: mean and 95 % interval over seeds.

    Beside them what a constant guess scores, and where there are both the paired difference ENTP − decoder.
    """
    if not records:
        return "no run is complete yet: the same command continues"
    rows = []
    for r in records:
        test = r.metrics["test"]["lowest_loss"]
        about = {"architecture": r.config.model.architecture, "seed": r.config.model_seed}
        rows.append({**about, **{name: test[name] for name in score_names(r)}})
    table, names = pd.DataFrame(rows), score_names(records[0])
    shown = {
        name: {column: text(part[column]) for column in names}
        for name, part in table.groupby("architecture", sort=False)
    }
    shown["constant guess, on validation"] = {name: f"{records[0].metrics['baseline'][name]:.3f}" for name in names}
    wide = table.pivot(index="seed", columns="architecture")
    if all(name in set(table["architecture"]) for name in DEFAULT):
        gaps = {name: (wide[name]["entp"] - wide[name]["decoder"]).dropna() for name in names}
        shown["entp − decoder"] = {name: text(values) for name, values in gaps.items()}
    data, file = records[0].metrics["data"], printable(records[0].metrics["data"]["file"])
    parts = ", ".join(f"{data[part]} {part}" for part in ("train", "validation", "test"))
    frame = pd.DataFrame.from_dict(shown, orient="index").fillna("")
    return "\n".join([f"{file}: {parts}; scores on test", frame.to_string(), *against_constant(records)])


def against_constant(records: Sequence[Record]) -> list[str]:
    """Lines that say which scores, and which tokens of a sequence, no model has better than a constant guess.

    Means over seeds: scores on test; tokens, counted from 1, on validation. Empty where some model is always better.
    """
    by_model: dict[str, list[Record]] = {}
    for r in records:
        by_model.setdefault(r.config.model.architecture, []).append(r)
    baseline, said = records[0].metrics["baseline"], []
    for name in score_names(records[0]):
        sign = -1 if name == "loss" else 1
        tests = [np.mean([r.metrics["test"]["lowest_loss"][name] for r in group]) for group in by_model.values()]
        best = sign * max(sign * x for x in tests)
        if sign * best <= sign * baseline[name]:
            said.append(f"{name} {best:.2f} against {baseline[name]:.2f}")
    lines = [f"No model beats the constant guess: {', '.join(said)}."] if said else []
    curve, sign = curve_by_token(records[0])
    models = [np.mean([r.metrics[curve] for r in group], axis=0) for group in by_model.values()]
    beaten = np.max(sign * np.array(models), axis=0) > sign * np.array(baseline[curve])
    places = [place for place, better in zip(places_of(records[0]), beaten, strict=True) if not better]
    if places and len(beaten) > 1:
        named = " ".join(map(str, places[:20])) + " …" * (len(places) > 20)
        lines.append(
            f"No model beats it at these tokens of a sequence (validation): {named}. If nothing could predict them, "
            "list the others in 'wanted'."
        )
    return lines


def curve_by_token(record: Record) -> tuple[str, int]:
    """The metric that is stored by position, and 1 where more of it is better, else -1."""
    name = "token_accuracy_by_position"
    return (name, 1) if name in record.metrics else ("loss_by_position", -1)


def places_of(record: Record) -> list[int]:
    """Scored tokens of a sequence, counted from 1 as in the file: the predicted, or those with an answer."""
    ahead = build_task(record.config.task, record.config.task_params).continues
    return [position + ahead for position in record.metrics["position"]]


def picture(records: Sequence[Record], path: Path) -> Path | None:
    """Draw the validation loss by step and the scores token by token, means and 95 % intervals over seeds, to ``path``.

    The constant guess is dashed. None where there is no record, or no matplotlib, which records do not need.
    """
    try:
        from entp_lib.experiments import figures
    except ModuleNotFoundError:
        return None
    if not records:
        return None
    curve, sign = curve_by_token(records[0])
    fig, (left, right) = figures.panels(2, width=4, height=3.2)
    baseline, steps, places = records[0].metrics["baseline"], records[0].curves["step"], places_of(records[0])
    for ax, x, at, name in ((left, "step", steps, "loss"), (right, "token", places, curve)):
        lists = [(r, r.curves[name] if ax is left else r.metrics[name]) for r in records]
        rows = [pd.DataFrame({"arm": r.config.model.architecture, x: at, "score": found}) for r, found in lists]
        figures.lines(ax, pd.concat(rows), x, "score", errorbar=figures.interval(), marks=len(at))
    constant = dict(color=figures.PALETTE["baseline"], ls="--", label="constant guess")
    left.axhline(baseline["loss"], **constant)
    right.plot(places, baseline[curve], marker="o", markersize=3, **constant)
    left.set(xlabel="step", ylabel="validation loss" + (" (nats a token)" if sign > 0 else " (squared error)"))
    right.set(xlabel="token of the sequence", ylabel="share right" if sign > 0 else "squared error")
    if sign > 0:
        right.set_ylim(-0.02, 1.02)
    left.set_title("Validation loss in training")
    right.set_title("Token by token, validation")
    right.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path)
    figures.plt.close(fig)
    return path


def score_names(record: Record) -> list[str]:
    """The scores that a task has: errors alone where its targets are real."""
    every = ("loss", "token_accuracy", "sequence_accuracy")
    return [name for name in every if name in record.metrics["test"]["lowest_loss"]]


def text(values: pd.Series) -> str:
    mean, low, high = mean_interval(values)
    return f"{mean:.3f}" if low != low else f"{mean:.3f} ({low:.3f} to {high:.3f})"
