"""The commands ``text FILE`` and ``data FILE``: decoder and ENTP on a text or on sequences of one's own.

Runs of one file are paired: the same initial weights, batches and steps. Their records go to ``results/own`` and belong
to no claim. By default a text takes minutes: eight trained positions a window, steps by the size of the file.
"""

import argparse
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from entp_lab import paths
from entp_lab.configs import RunConfig
from entp_lab.frames import SCORES, interval_text, mean_table, paired
from entp_lab.generate_command import tokenizer_path
from entp_lab.plans import TWINS, run_of, twins
from entp_lab.registry import build_task
from entp_lab.runs import device_for
from entp_lab.store import Record, Store
from entp_lab.table_file import TableFile
from entp_lab.train_command import run_sweep
from entp_lib.config import SIZES, TrainConfig
from entp_lib.costs import decoder_token
from entp_lib.data.sources import source_of
from entp_lib.data.tokenizers import characters_of
from entp_lib.files import write_atomically
from entp_lib.tasks import Text
from entp_lib.validation import one_of, printable, require

VERSIONS = {"own_text": 1, "own_data": 3}  # 1 told inputs apart by what no prediction sees; 2 guessed zero for reals
HELD_OUT = 0.1
PREFIXES = 8  # trained positions of a window, fewer where it is shorter
FEWEST, MOST = 100, 400  # steps on a text, unless they are named
PASSES = 8  # over the text, within those bounds
EVALUATIONS = 20  # points of the curves


def text_command(options: argparse.Namespace) -> int:
    """``text FILE``: train on it, print losses and samples, and how each model is loaded; 1 where runs failed."""
    return command(options, text_configs, text_report, device_for("paper"))  # a GPU if there is one


def data_command(options: argparse.Namespace) -> int:
    """``data FILE``: train on it, print the test scores, and how each model is loaded; 1 where runs failed."""
    return command(options, data_configs, data_report)


def command(options: argparse.Namespace, configs: Callable, report: Callable, device: str | None = None) -> int:
    """Run a command on a file of one's own: sweep, report, picture of the losses, and how to load each model."""
    require(Path(options.file).exists(), f"{options.file}: no such file")
    for name in ("seeds", "batch_size"):
        require(getattr(options, name) >= 1, f"{name} = {getattr(options, name)}: must be at least 1")
    store = Store(options.results or paths.results() / "own")
    store.check_writable()
    planned = configs(str(Path(options.file).resolve()), options)
    name, experiment = printable(Path(options.file).name), planned[0].experiment
    done = run_sweep(options, planned, VERSIONS[experiment], store, name, device=device)
    print(report(done.records))
    drawn = picture(done.complete, store.root / "figures" / f"{experiment}.png")
    if drawn:
        print(f"\npicture: {paths.relative(drawn)}")
    for record in done.complete:
        print("\n  ".join([f"\n{record.config.label}", *how_to_continue(record, store)]))
    return 1 if done.failures else 0


def text_configs(corpus: str, options: argparse.Namespace) -> list[RunConfig]:
    """The runs on a text or Parquet file; about its last tenth is held out.

    Of the options ``vocabulary`` 0 is for characters as many as the text has; ``prefixes`` are trained positions of a
    window, 0 for all; ``steps`` 0 are ``PASSES`` over the text, but 100 to 400. Each point of the curves has as many
    windows as an evaluation may take of the training time. ConfigError for what the file or the options lack.
    """
    one_of("size", options.size, SIZES)
    source, vocabulary, context, prefixes = source_of(corpus), options.vocabulary, options.context, options.prefixes
    pieces = [len(text) for text in source.documents()]
    right = "it takes two documents, ended by form feeds, or paragraphs with blank lines between them"
    require(len(pieces) > 1, f"{corpus}: one piece of text, of which none can be held out; {right}")
    if options.tokenizer == "characters":
        found = len(characters_of(source))
        require(found > 1, f"{corpus}: all of it is one character")
        vocabulary = vocabulary or found
    prefixes = min(prefixes, context) if prefixes == PREFIXES else prefixes
    params = dict(corpus=corpus, checksum=source.checksum[:16], tokenizer=options.tokenizer, vocabulary=vocabulary)
    params |= dict(split="tail", held_out=HELD_OUT, context=context, prefixes=prefixes)
    params["eval_prefixes"] = min(context, 2 * prefixes)
    Text(**params).facts()  # a text that is too short is said before anything starts
    steps = options.steps or max(FEWEST, min(MOST, round(PASSES * sum(pieces) / context / options.batch_size)))
    every = math.ceil(steps / EVALUATIONS)
    scored = min(1024, max(64, every * options.batch_size // 4)) if prefixes else 1024
    train = dict(steps=steps, eval_every=every, eval_sequences=scored, final_eval_sequences=4 * scored)
    return pairs(options, "own_text", "text", params, SIZES[options.size], train, f"size = {options.size!r}")


def data_configs(file: str, options: argparse.Namespace) -> list[RunConfig]:
    """The runs on a CSV file; ConfigError for what the file or the options lack."""
    shape, held_out, steps = options.shape, options.held_out, options.steps
    written = re.fullmatch(r"(\d{1,9})/(\d{1,9})/(\d{1,9})", shape)
    require(written is not None, f"shape = {shape!r}: write layers/heads/width, as 3/4/64")
    sizes = dict(zip(("n_layers", "n_heads", "width"), map(int, written.groups()), strict=True))
    task = TableFile(file, held_out=held_out).named()
    task.facts()
    params = dict(file=task.file, checksum=task.checksum, held_out=held_out)
    train = dict(eval_every=max(1, steps // EVALUATIONS), eval_sequences=512, final_eval_sequences=4096)
    return pairs(options, "own_data", "table", params, sizes, train | {"steps": steps}, f"shape = {shape!r}")


def pairs(
    options: argparse.Namespace, experiment: str, task: str, params: dict, sizes: dict, train: dict, shape: str
) -> list[RunConfig]:
    """The runs of every architecture and random seed; the rate rises over at most 100 steps and falls to a tenth.

    ConfigError where a model's weights, or a batch, with what training keeps of each exceed the machine's memory. In
    fp32: a weight, its gradient and two moments, of linear maps alone; of a batch the layers' inputs. ``shape``: how
    the message names the model.
    """
    size, rate, warmup = options.batch_size, options.max_lr, min(100, train["steps"] // 10)
    schedule = TrainConfig(batch_size=size, max_lr=rate, min_lr=rate / 10, warmup_steps=warmup, **train)
    base = run_of(experiment, "quick", task, params, sizes, schedule)
    model, memory = base.model, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    batch = 4 * size * model.max_length * model.width * model.n_layers
    for what, needed in ((shape, 16 * decoder_token(model, 0)), (f"batch_size = {size}", batch)):
        right = f"{what}: training takes {needed / 2**30:,.0f} GiB or more, and this machine has {memory:,.0f}"
        require(needed / 2**30 <= memory, right)
    return [run.config for run in twins(base, options.architecture or TWINS, options.seeds)]


def how_to_continue(record: Record, store: Store) -> list[str]:
    """The line that loads a run's weights and, where its model predicts what comes next, the command that continues.

    By the run's name where ``load_model`` looks for it, else by the file. The tokenizer, or the words, of such a run
    are written next to its weights, so that it continues where the user's file is not. OSError where they cannot be.
    """
    weights, task = store.weights_path(record.experiment, record.id), record.config.task
    if not weights.exists():
        return ["its weights are gone: the same command with --fresh makes them again"]
    usual = paths.has_repository() and store.root.resolve() == (paths.results() / "own").resolve()
    name = record.name if usual else str(weights.resolve())
    load = f"load:      from entp_lab.weights import load_model; model = load_model({name!r})"
    built = build_task(task, record.config.task_params)
    if task == "text":
        learned = built.tokens().tokenizer().state
        about = {"name": built.tokenizer, "vocabulary": built.vocab_size, "state": learned}
    elif built.table.continues:
        about = {"words": built.table.words}
    else:
        return [load]
    write_atomically(tokenizer_path(weights), json.dumps(about, ensure_ascii=False).encode())
    return [load, f"continue:  {paths.program()} generate {shlex.quote(name)} --prompt 'the first tokens'"]


def text_report(records: Sequence[Record]) -> str:
    """Training loss (mean since the point before) and validation loss by step, and a sample of each run."""
    columns, lines = {}, []
    for r in records:
        for curve, name in (("train_loss", "training"), ("loss", "validation")) if r.curves else ():
            columns[r.config.label, name] = pd.Series(r.curves[curve], index=r.curves["step"])
        cut = "" if r.status == "complete" else f", cut at step {r.provenance['steps']} of {r.config.steps}"
        lines.append(f"\n{r.config.label}, {r.provenance['train_seconds']:.0f} s{cut}:")
        for sample in r.metrics.get("samples", [])[:1]:
            lines += [f"  {sample['prompt']!r}", f"  {sample['continuation']!r}"]
    table = pd.DataFrame(columns).rename_axis("step")
    return "\n".join([*(["loss in nats a token", table.round(3).to_string()] if len(table) else []), *lines])


def data_report(records: Sequence[Record]) -> str:
    """Test scores of the weights of lowest validation loss, over seeds, a constant guess's, and ENTP − decoder."""
    records = [record for record in records if record.status == "complete"]
    if not records:
        return "no run is complete yet: the same command continues"
    names = [name for name in SCORES if name in records[0].metrics["test"]["lowest_loss"]]
    about = [{"architecture": r.config.model.architecture, "seed": r.config.model_seed} for r in records]
    table = pd.DataFrame([a | r.metrics["test"]["lowest_loss"] for a, r in zip(about, records, strict=True)])
    shown, baseline = mean_table(table, names), records[0].metrics["baseline"]
    shown.loc["constant guess, on validation"] = [f"{baseline[name]:.3f}" for name in names]
    if set(TWINS) <= set(table["architecture"]):
        gaps = [paired(table, name, "entp", "decoder", by="architecture").dropna() for name in names]
        shown.loc["entp − decoder"] = [interval_text(values) for values in gaps]
    data = records[0].metrics["data"]
    parts = ", ".join(f"{data[part]} {part}" for part in ("train", "validation", "test"))
    lines = [f"{printable(data['file'])}: {parts}; scores on test", shown.to_string()]
    means, low = table.groupby("architecture")[names].mean(), "loss"  # the lower, the better
    best = {name: means[name].min() if name == low else means[name].max() for name in names}
    beaten = {name: best[name] < baseline[name] if name == low else best[name] > baseline[name] for name in names}
    unbeaten = [f"{name} {best[name]:.2f} against {baseline[name]:.2f}" for name in names if not beaten[name]]
    lines += [f"No model beats the constant guess: {', '.join(unbeaten)}."] if unbeaten else []
    return "\n".join(lines)


def picture(records: Sequence[Record], path: Path) -> Path | None:
    """Draw validation loss by step, and dashed the constant guess; None where there is no record, or no matplotlib."""
    try:
        from entp_lab import figures
    except ModuleNotFoundError:
        return None
    if not records:
        return None
    curves = [{"arm": r.config.model.architecture, "step": r.curves["step"], "loss": r.curves["loss"]} for r in records]
    fig, ax = figures.panels(1, width=4, height=3.2)
    table = pd.concat(map(pd.DataFrame, curves))
    figures.lines(ax, table, "step", "loss", errorbar=figures.interval(), ylabel="validation loss")
    if (guess := records[0].metrics["baseline"].get("loss")) is not None:
        ax.axhline(guess, color=figures.PALETTE["baseline"], ls="--", label="constant guess")
    ax.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path)
    figures.plt.close(fig)
    return path
