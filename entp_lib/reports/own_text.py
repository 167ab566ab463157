"""Decoder and ENTP on a text of one's own: ``python -m entp_lib text FILE``.

By default a run ends in minutes: eight trained positions a window, steps by the size of the file, and an evaluation
that is scaled to them. ``PUBLISHED`` has the values of ``shakespeare``, the authors' as far as they are known. Runs of
one file are paired: the same initial weights, windows and steps. Their records go to a folder of their own and
belong to no claim.
"""

import inspect
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from entp_lib import paths
from entp_lib.config import MAX_CURVE_POINTS, SIZES, ModelConfig, RunConfig, TrainConfig
from entp_lib.corpora import TOKENIZERS, characters_of, source_of
from entp_lib.experiments.experiment import twins
from entp_lib.files import write_atomically
from entp_lib.models import build_model
from entp_lib.records.store import Record, Store
from entp_lib.reports.continuing import how_to_load, tokenizer_path
from entp_lib.reports.own_data import check_memory
from entp_lib.tasks import Text, build_task, generator_for
from entp_lib.training.checkpoints import load_checkpoint
from entp_lib.training.loop import make_optimizer
from entp_lib.validation import one_of, require

VERSION = 1
HELD_OUT = 0.1
PUBLISHED = dict(prefixes=0, steps=5000, batch_size=64, max_lr=5e-4, evaluations=50)
PREFIXES = 8  # trained positions of a window, fewer where it is shorter
FEWEST, MOST = 100, 400  # steps, unless they are named
PASSES = 8  # over the text, within those bounds


def configs(
    corpus: str,
    architectures: Sequence[str] = ("decoder", "entp"),
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
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    require(steps >= 0, f"steps = {steps}: must be 0 (by the size of the file) or more")
    for name, value in (("context", context), ("batch_size", batch_size), ("evaluations", evaluations)):
        require(value >= 1, f"{name} = {value}: must be at least 1")
    require(evaluations <= MAX_CURVE_POINTS, f"evaluations = {evaluations}: at most {MAX_CURVE_POINTS} are kept")
    prefixes = min(prefixes, context) if prefixes == PREFIXES else prefixes
    require(0 <= prefixes <= context, f"prefixes = {prefixes}: must be 0 (all) to context = {context}")
    source = source_of(corpus)
    if not steps:
        windows = sum(len(text) for text in source.documents()) / context
        steps = max(FEWEST, min(MOST, round(PASSES * windows / batch_size)))
    every = math.ceil(steps / evaluations)
    scored = min(1024, max(64, every * batch_size // 4))
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        max_lr=max_lr,
        min_lr=max_lr / 10,
        warmup_steps=min(100, steps // 10),
        eval_every=every,
        eval_sequences=scored if prefixes else 1024,
        final_eval_sequences=4 * scored if prefixes else 4096,
    )
    require(
        any(i for i, _ in enumerate(source.documents())),
        f"{corpus}: one piece of text, of which none can be held out; it takes two documents, ended by form feeds, or "
        "paragraphs with blank lines between them",
    )
    if tokenizer == "characters":
        found = len(characters_of(source))
        require(found > 1, f"{corpus}: all of it is one character")
        vocabulary = vocabulary or found
    params = dict(
        corpus=corpus,
        checksum=source.checksum[:16],
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        split="tail",
        held_out=HELD_OUT,
        context=context,
        prefixes=prefixes,
        eval_prefixes=min(context, 2 * prefixes),
    )
    task = Text(**params)
    task.prepare()  # a text that is too short is said before anything starts
    model = ModelConfig.from_size(size, architecture="decoder", vocab_size=task.vocab_size, max_length=task.length)
    check_memory(model, batch_size, f"size = {size!r}")
    base = RunConfig("own_text", "quick", "text", params, model, train)
    return [run.config for run in twins(base, architectures, seeds)]


def settings(options: Any) -> dict[str, Any]:
    """The arguments of ``configs`` that a command's options hold; ConfigError where ``published`` would change some."""
    usual = {name: p.default for name, p in inspect.signature(configs).parameters.items() if p.kind is p.KEYWORD_ONLY}
    asked = {name: getattr(options, name) for name in usual}
    if not options.published:
        return asked
    given = ["--" + name.replace("_", "-") for name in PUBLISHED if asked[name] != usual[name]]
    require(not given, f"--published sets {', '.join(given)} itself: leave out one or the other")
    return asked | PUBLISHED


def courses(records: Sequence[Record]) -> pd.DataFrame:
    """Training loss (mean since the point before) and validation loss, nats a token: steps by runs.

    Empty where no run has come to its first evaluation.
    """
    columns = {}
    for r in records:
        run = f"{r.config.model.architecture}, seed {r.config.model_seed}"
        for curve, name in (("train_loss", "training"), ("loss", "validation")):
            if r.curves:
                columns[run, name] = pd.Series(r.curves[curve], index=r.curves["step"])
    return pd.DataFrame(columns).rename_axis("step")


def sample_of(record: Record, store: Store) -> dict[str, str] | None:
    """A prompt and how the model goes on: from the record, or from the checkpoint of a run that was cut.

    None where a run was cut before its first checkpoint.
    """
    if record.metrics:
        return record.metrics["samples"][0]
    checkpoint = store.checkpoint_path(record.experiment, record.id)
    if not (checkpoint.exists() and record.provenance["steps"]):
        return None
    config = record.config
    model = build_model(config.model)
    load_checkpoint(checkpoint, config, model, make_optimizer(model, config.train), torch.zeros(()).double(), {})
    task = build_task(config.task, config.task_params)
    return task.samples(model.eval(), generator_for("cpu", "samples", config.data_seed))["samples"][0]


def keep_tokenizer(record: Record, store: Store) -> list[str]:
    """Paths of a complete run's weights and of its tokenizer, which is written next to them as JSON.

    ``entp_lib.corpora.tokenizers.restore`` takes what the file holds. Raises OSError where it cannot be written.
    """
    weights = store.weights_path(record.experiment, record.id)
    task = build_task(record.config.task, record.config.task_params)
    state = task.tokens().tokenizer().state
    about = {"name": task.tokenizer, "vocabulary": task.vocab_size, "state": state}
    path = tokenizer_path(weights)
    write_atomically(path, json.dumps(about, ensure_ascii=False).encode())
    return [paths.relative(weights), paths.relative(path)]


def report(records: Sequence[Record], store: Store) -> str:
    """Report of a command on its runs: losses, a sample of each, and where weights and tokenizers lie."""
    lines, found = [], courses(records)
    if len(found):
        lines += ["loss in nats a token", found.round(3).to_string()]
    for r in records:
        cut = "" if r.status == "complete" else f", cut at step {r.provenance['steps']} of {r.config.steps}"
        who = f"{r.config.model.architecture}, seed {r.config.model_seed}"
        lines.append(f"\n{who}, {r.provenance['train_seconds']:.0f} s{cut}:")
        sample = sample_of(r, store)
        lines += [f"  {sample['prompt']!r}", f"  {sample['continuation']!r}"] if sample else ["  no sample yet"]
        if r.status == "complete" and store.weights_path(r.experiment, r.id).exists():
            lines.append("  weights and tokenizer: {} and {}".format(*keep_tokenizer(r, store)))
        elif r.status == "complete":
            lines.append("  its weights are gone: the same command with --fresh makes them again")
    return "\n".join(lines)


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
