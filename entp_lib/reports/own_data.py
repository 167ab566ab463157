"""Decoder and ENTP on sequences of one's own: ``python -m entp_lib data FILE``.

Runs of one file are paired: the same initial weights, batches and steps. Their records go to a folder of their own and
belong to no claim.
"""

import json
import os
import re
from collections.abc import Sequence

import pandas as pd

from entp_lib.config import ARCHITECTURES, ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.experiment import twins
from entp_lib.files import write_atomically
from entp_lib.models.costs import decoder_token
from entp_lib.records.store import Record, Store
from entp_lib.reports.continuing import tokenizer_path
from entp_lib.reports.own_text_ending import how_to_load
from entp_lib.statistics import mean_interval
from entp_lib.tasks import Table, build_task
from entp_lib.validation import one_of, require

VERSION = 2  # 1 told inputs apart by what no prediction sees
HELD_OUT = 0.1
DEFAULT = ("decoder", "entp")


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
    require(re.fullmatch(r"\d+/\d+/\d+", shape) is not None, f"shape = {shape!r}: write layers/heads/width, as 3/4/64")
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    task = Table(file, held_out=held_out).named()
    task.prepare()
    named = task.contents.part is not None
    require(not named or held_out == HELD_OUT, f"held_out = {held_out}: {file} names the parts itself; leave out one")
    sizes = dict(zip(("n_layers", "n_heads", "width"), map(int, shape.split("/")), strict=True))
    if task.continuous:
        sizes |= dict(vocab_size=0, input_dim=task.input_dim, output_dim=1)
    else:
        sizes |= dict(vocab_size=task.vocab_size)
    model = ModelConfig("decoder", max_length=task.length, **sizes)
    check_memory(model, shape)
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


def check_memory(model: ModelConfig, shape: str) -> None:
    """ConfigError where the weights of a shape, with what training keeps of each, are more than the machine's memory.

    In fp32: a weight, its gradient and two moments. The linear maps alone are counted.
    """
    needed = 16 * decoder_token(model, 0) / 2**30
    pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()) else 0
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**30 if pages > 0 else float("inf")
    right = f"shape = {shape!r}: training it takes {needed:,.0f} GiB or more, and this machine has {memory:,.0f}"
    require(needed <= memory, right)


def how_to_go_on(record: Record, store: Store) -> list[str]:
    """The line that loads a run's weights and, where its model foretells what comes next, the command that goes on.

    The words of such a run are written beside its weights, so that it goes on where the file is not. Raises OSError
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
    data = records[0].metrics["data"]
    parts = ", ".join(f"{data[part]} {part}" for part in ("train", "validation", "test"))
    frame = pd.DataFrame.from_dict(shown, orient="index").fillna("")
    return f"{data['file']}: {parts}; scores on test\n{frame.to_string()}"


def score_names(record: Record) -> list[str]:
    """The scores that a task has: errors alone where its targets are real."""
    every = ("loss", "token_accuracy", "sequence_accuracy")
    return [name for name in every if name in record.metrics["test"]["lowest_loss"]]


def text(values: pd.Series) -> str:
    mean, low, high = mean_interval(values)
    return f"{mean:.3f}" if low != low else f"{mean:.3f} ({low:.3f} to {high:.3f})"
