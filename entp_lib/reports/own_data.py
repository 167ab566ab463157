"""The commands ``text FILE`` and ``data FILE``: decoder and ENTP on a text or on sequences of one's own.

Runs of one file are paired: the same initial weights, batches and steps. Their records go to ``results/own`` and belong
to no claim. By default a text takes minutes: eight trained positions a window, steps by the size of the file.
"""

import argparse
import inspect
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from entp_lib import paths
from entp_lib.config import MAX_CURVE_POINTS, SIZES, ModelConfig, RunConfig, TrainConfig
from entp_lib.corpora import TOKENIZERS, characters_of, source_of
from entp_lib.experiments.frames import interval_text
from entp_lib.experiments.plans import run_of, twins
from entp_lib.files import write_atomically
from entp_lib.models.costs import decoder_token
from entp_lib.records.execution import device_for
from entp_lib.records.store import Record, Store
from entp_lib.reports.generation import how_to_load, tokenizer_path
from entp_lib.reports.training import run_sweep
from entp_lib.tasks import Table, Text, build_task
from entp_lib.validation import one_of, printable, require

VERSIONS = {"own_text": 1, "own_data": 3}  # 1 told inputs apart by what no prediction sees; 2 guessed zero for reals
HELD_OUT = 0.1
DEFAULT = ("decoder", "entp")
PUBLISHED = dict(prefixes=0, steps=5000, batch_size=64, max_lr=5e-4, evaluations=50)  # as far as they are known
PREFIXES = 8  # trained positions of a window, fewer where it is shorter
FEWEST, MOST = 100, 400  # steps on a text, unless they are named
PASSES = 8  # over the text, within those bounds
MOST_LAYERS = 1000  # each is a module, a million of which take minutes to make
SCORES = ("loss", "token_accuracy", "sequence_accuracy")


def text_configs(
    corpus: str,
    architectures: Sequence[str] = (),
    *,
    tokenizer: str = "characters",
    vocabulary: int = 0,
    context: int = 64,
    prefixes: int = PREFIXES,
    size: str = "small",
    steps: int = 0,
    batch_size: int = 32,
    max_lr: float = 1e-3,
    seeds: int = 1,
    evaluations: int = 20,
) -> list[RunConfig]:
    """The runs on a text or Parquet file; the rate falls to a tenth, about the last tenth of the text is held out.

    ``vocabulary`` 0: for characters as many as the text has. ``prefixes``: trained positions of a window, 0 for all.
    ``steps`` 0: ``PASSES`` over the text, but 100 to 400 of them. ``evaluations``: points of the curves, each on as
    many windows as an evaluation may take of the training time. ConfigError for what the file or the options lack.
    """
    one_of("size", size, SIZES)
    one_of("tokenizer", tokenizer, TOKENIZERS)
    require(steps >= 0, f"steps = {steps}: must be 0 (by the size of the file) or more")
    for name, value in dict(seeds=seeds, context=context, batch_size=batch_size, evaluations=evaluations).items():
        require(value >= 1, f"{name} = {value}: must be at least 1")
    require(evaluations <= MAX_CURVE_POINTS, f"evaluations = {evaluations}: at most {MAX_CURVE_POINTS} are kept")
    prefixes = min(prefixes, context) if prefixes == PREFIXES else prefixes
    require(0 <= prefixes <= context, f"prefixes = {prefixes}: must be 0 (all) to context = {context}")
    source = source_of(corpus)
    pieces = [len(text) for text in source.documents()]
    right = "it takes two documents, ended by form feeds, or paragraphs with blank lines between them"
    require(len(pieces) > 1, f"{corpus}: one piece of text, of which none can be held out; {right}")
    steps = steps or max(FEWEST, min(MOST, round(PASSES * sum(pieces) / context / batch_size)))
    every = math.ceil(steps / evaluations)
    scored = min(1024, max(64, every * batch_size // 4))
    scored, at_the_end = (scored, 4 * scored) if prefixes else (1024, 4096)
    if tokenizer == "characters":
        found = len(characters_of(source))
        require(found > 1, f"{corpus}: all of it is one character")
        vocabulary = vocabulary or found
    params = dict(corpus=corpus, checksum=source.checksum[:16], tokenizer=tokenizer, vocabulary=vocabulary)
    params |= dict(split="tail", held_out=HELD_OUT, context=context, prefixes=prefixes)
    params["eval_prefixes"] = min(context, 2 * prefixes)
    task = Text(**params)
    task.prepare()  # a text that is too short is said before anything starts
    train = schedule(steps, batch_size, max_lr, every, scored, at_the_end)
    base = run_of("own_text", "quick", "text", params, SIZES[size], train)
    check_memory(base.model, batch_size, f"size = {size!r}")
    return [run.config for run in twins(base, architectures or DEFAULT, seeds)]


def data_configs(
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
    written = re.fullmatch(r"(\d{1,9})/(\d{1,9})/(\d{1,9})", shape)
    require(written is not None, f"shape = {shape!r}: write layers/heads/width, as 3/4/64")
    sizes = dict(zip(("n_layers", "n_heads", "width"), map(int, written.groups()), strict=True))
    require(sizes["n_layers"] <= MOST_LAYERS, f"shape = {shape!r}: at most {MOST_LAYERS} layers")
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    task = Table(file, held_out=held_out).named()
    task.prepare()
    named = task.contents.part is not None
    require(not named or held_out == HELD_OUT, f"held_out = {held_out}: {file} names the parts itself; leave out one")
    train = schedule(steps, batch_size, max_lr, max(1, steps // 20), 512, 4096)
    params = dict(file=task.file, checksum=task.checksum, held_out=held_out)
    base = run_of("own_data", "quick", "table", params, sizes, train)
    check_memory(base.model, batch_size, f"shape = {shape!r}")
    return [run.config for run in twins(base, architectures or DEFAULT, seeds)]


def schedule(steps: int, batch_size: int, max_lr: float, every: int, scored: int, at_the_end: int) -> TrainConfig:
    """Training whose rate rises over at most 100 steps and falls to a tenth, with evaluations ``every`` so many."""
    return TrainConfig(
        steps=steps,
        batch_size=batch_size,
        max_lr=max_lr,
        min_lr=max_lr / 10,
        warmup_steps=min(100, steps // 10),
        eval_every=every,
        eval_sequences=scored,
        final_eval_sequences=at_the_end,
    )


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


def arguments_of(configs, options: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of ``configs`` that a command's options hold.

    ConfigError where ``--published`` would change some that are given.
    """
    usual = {n: p.default for n, p in inspect.signature(configs).parameters.items() if p.kind is p.KEYWORD_ONLY}
    asked = {name: getattr(options, name) for name in usual}
    if not getattr(options, "published", False):
        return asked
    given = ["--" + name.replace("_", "-") for name in PUBLISHED if asked[name] != usual[name]]
    require(not given, f"--published sets {', '.join(given)} itself: leave out one or the other")
    return asked | PUBLISHED


def text_command(options: argparse.Namespace) -> int:
    """``text FILE``: train on it, print losses and samples, and how each model is loaded; 1 where runs failed."""
    return command(options, text_configs, text_report, device_for("paper"))  # a GPU if there is one


def data_command(options: argparse.Namespace) -> int:
    """``data FILE``: train on it, print the test scores, and how each model is loaded; 1 where runs failed."""
    return command(options, data_configs, data_report)


def command(options: argparse.Namespace, configs, report, device: str | None = None) -> int:
    """Run a command on a file of one's own: sweep, report, picture of the losses, and how to load each model."""
    require(Path(options.file).exists(), f"{options.file}: no such file")
    store = Store(options.results or paths.results() / "own")
    store.check_writable()
    planned = configs(str(Path(options.file).resolve()), options.architecture, **arguments_of(configs, options))
    name, experiment = printable(Path(options.file).name), planned[0].experiment
    done = run_sweep(options, planned, VERSIONS[experiment], store.root, name, device=device)
    print(report(done.records))
    drawn = picture(done.complete, store.root / "figures" / f"{experiment}.png")
    if drawn:
        print(f"\npicture: {paths.relative(drawn)}")
    for record in done.complete:
        print(f"\n{record.config.model.architecture}, seed {record.config.model_seed}")
        if store.weights_path(record.experiment, record.id).exists():
            print("\n".join(f"  {line}" for line in how_to_continue(record, store)))
        else:
            print("  its weights are gone: the same command with --fresh makes them again")
    return 1 if done.failures else 0


def how_to_continue(record: Record, store: Store) -> list[str]:
    """The line that loads a run's weights and, where its model predicts what comes next, the command that continues.

    The tokenizer, or the words, of such a run are written next to its weights, so that it continues where the file is
    not: ``entp_lib.corpora.tokenizers.restore`` takes what is written. Raises OSError where they cannot be.
    """
    task = build_task(record.config.task, record.config.task_params)
    path = tokenizer_path(store.weights_path(record.experiment, record.id))
    if record.config.task == "text":
        about = {"name": task.tokenizer, "vocabulary": task.vocab_size, "state": task.tokens().tokenizer().state}
    elif task.continues:
        about = {"words": task.contents.words}
    else:
        return how_to_load(record, store)[:1]
    write_atomically(path, json.dumps(about, ensure_ascii=False).encode())
    return how_to_load(record, store)


def text_report(records: Sequence[Record]) -> str:
    """Training loss (mean since the point before) and validation loss by step, and a sample of each run."""
    columns, lines = {}, []
    for r in records:
        who = f"{r.config.model.architecture}, seed {r.config.model_seed}"
        for curve, name in (("train_loss", "training"), ("loss", "validation")):
            if r.curves:
                columns[who, name] = pd.Series(r.curves[curve], index=r.curves["step"])
        cut = "" if r.status == "complete" else f", cut at step {r.provenance['steps']} of {r.config.steps}"
        lines.append(f"\n{who}, {r.provenance['train_seconds']:.0f} s{cut}:")
        for sample in r.metrics.get("samples", [])[:1]:
            lines += [f"  {sample['prompt']!r}", f"  {sample['continuation']!r}"]
    table = pd.DataFrame(columns).rename_axis("step")
    return "\n".join([*(["loss in nats a token", table.round(3).to_string()] if len(table) else []), *lines])


def data_report(records: Sequence[Record]) -> str:
    """Test scores of the weights of lowest validation loss, by architecture: mean and 95 % interval over seeds.

    With the scores of a constant guess and, where there are both models, the paired difference ENTP − decoder.
    """
    records = [record for record in records if record.status == "complete"]
    if not records:
        return "no run is complete yet: the same command continues"
    names = [name for name in SCORES if name in records[0].metrics["test"]["lowest_loss"]]
    about = [{"architecture": r.config.model.architecture, "seed": r.config.model_seed} for r in records]
    table = pd.DataFrame([a | r.metrics["test"]["lowest_loss"] for a, r in zip(about, records, strict=True)])
    groups = table.groupby("architecture", sort=False)
    shown = {name: {column: interval_text(part[column]) for column in names} for name, part in groups}
    baseline = records[0].metrics["baseline"]
    shown["constant guess, on validation"] = {name: f"{baseline[name]:.3f}" for name in names}
    wide = table.pivot(index="seed", columns="architecture")
    if set(DEFAULT) <= set(table["architecture"]):
        gaps = {name: (wide[name]["entp"] - wide[name]["decoder"]).dropna() for name in names}
        shown["entp − decoder"] = {name: interval_text(values) for name, values in gaps.items()}
    data = records[0].metrics["data"]
    parts = ", ".join(f"{data[part]} {part}" for part in ("train", "validation", "test"))
    lines = [f"{printable(data['file'])}: {parts}; scores on test"]
    lines.append(pd.DataFrame.from_dict(shown, orient="index").fillna("").to_string())
    unbeaten = []
    for name in names:
        sign = -1 if name == "loss" else 1
        best = sign * (sign * groups[name].mean()).max()
        if sign * best <= sign * baseline[name]:
            unbeaten.append(f"{name} {best:.2f} against {baseline[name]:.2f}")
    lines += [f"No model beats the constant guess: {', '.join(unbeaten)}."] if unbeaten else []
    return "\n".join(lines + unbeaten_tokens(records))


def unbeaten_tokens(records: Sequence[Record]) -> list[str]:
    """A line that names the tokens, counted from 1, of which no model has more right than a constant guess."""
    curve, sign = curve_by_token(records[0])
    by_model = pd.Series([r.config.model.architecture for r in records])
    means = pd.DataFrame([r.metrics[curve] for r in records]).groupby(by_model).mean()
    beaten = (sign * means).max() > sign * np.array(records[0].metrics["baseline"][curve])
    places = [place for place, better in zip(places_of(records[0]), beaten, strict=True) if not better]
    if not places or len(beaten) == 1:
        return []
    named = " ".join(map(str, places[:20])) + " …" * (len(places) > 20)
    return [
        f"No model beats it at these tokens of a sequence (validation): {named}. If nothing could predict them, list "
        "the others in 'wanted'."
    ]


def curve_by_token(record: Record) -> tuple[str, int]:
    """The metric that is stored by position, and 1 where more of it is better, else -1."""
    name = "token_accuracy_by_position"
    return (name, 1) if name in record.metrics else ("loss_by_position", -1)


def places_of(record: Record) -> list[int]:
    """Scored tokens of a sequence, counted from 1 as in the file: the predicted, or those with an answer."""
    ahead = build_task(record.config.task, record.config.task_params).continues
    return [position + ahead for position in record.metrics["position"]]


def picture(records: Sequence[Record], path: Path) -> Path | None:
    """Draw validation loss by step and, of a table, scores token by token; means and 95 % intervals over seeds.

    The constant guess is dashed. None where there is no record, or no matplotlib, which records do not need.
    """
    try:
        from entp_lib.experiments import figures
    except ModuleNotFoundError:
        return None
    if not records:
        return None
    first = records[0]
    drawn = [(first.curves["step"], lambda r: r.curves["loss"], first.metrics["baseline"].get("loss"))]
    labels = [("step", "validation loss")]
    if first.config.task == "table":
        curve, sign = curve_by_token(first)
        drawn.append((places_of(first), lambda r: r.metrics[curve], first.metrics["baseline"][curve]))
        labels.append(("token of the sequence", "share right" if sign > 0 else "squared error"))
    fig, axes = figures.panels(len(drawn), width=4, height=3.2, squeeze=False)
    for ax, (x, rows_of, baseline), (below, beside) in zip(axes[0], drawn, labels, strict=True):
        rows = [pd.DataFrame({"arm": r.config.model.architecture, "x": x, "score": rows_of(r)}) for r in records]
        figures.lines(ax, pd.concat(rows), "x", "score", errorbar=figures.interval(), marks=len(x))
        if baseline is not None:
            constant = dict(color=figures.PALETTE["baseline"], ls="--", label="constant guess")
            ax.plot(x, np.broadcast_to(baseline, len(x)), **constant)
        ax.set(xlabel=below, ylabel=beside)
    axes[0][-1].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path)
    figures.plt.close(fig)
    return path
