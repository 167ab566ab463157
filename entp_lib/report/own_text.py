"""Decoder and ENTP on a text of one's own: ``python -m entp_lib text FILE``.

Model, window, batch and rates are by default those of ``shakespeare``, which are the authors' as far as they are known;
every run goes to its last step. Runs of one file are paired: the same initial weights, windows and steps. Their records
go to a folder of their own and belong to no claim.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lib.collection.experiment import twins
from entp_lib.config import SIZES, ModelConfig, RunConfig, TrainConfig
from entp_lib.corpora import TOKENIZERS, characters_of, source_of
from entp_lib.runs.records import Record
from entp_lib.strict import one_of, require
from entp_lib.tasks import Text

VERSION = 1
HELD_OUT = 0.1


def configs(
    corpus: str,
    architectures: Sequence[str] = ("decoder", "entp"),
    *,
    tokenizer: str = "characters",
    vocabulary: int = 0,
    context: int = 64,
    prefixes: int = 0,
    size: str = "small",
    steps: int = 5000,
    batch_size: int = 64,
    max_lr: float = 5e-4,
    seeds: int = 1,
) -> list[RunConfig]:
    """The runs on a text or Parquet file; the rate falls to a tenth, about the last tenth of the text is held out.

    ``vocabulary`` 0: for characters as many as the text has. ConfigError for what the file or the options lack.
    """
    one_of("size", size, SIZES)
    one_of("tokenizer", tokenizer, TOKENIZERS)
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        max_lr=max_lr,
        min_lr=max_lr / 10,
        warmup_steps=min(100, steps // 10),
        eval_every=max(1, steps // 50),
        eval_sequences=1024,
        final_eval_sequences=4096,
    )
    source = source_of(corpus)
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
    )
    task = Text(**params)
    task.prepare()  # a text that is too short is said before anything starts
    model = ModelConfig.from_size(size, architecture="decoder", vocab_size=task.vocab_size, max_length=task.length)
    base = RunConfig("own_text", "quick", "text", params, model, train)
    return [run.config for run in twins(base, architectures, seeds)]


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
