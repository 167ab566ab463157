"""Decoder and ENTP on a text of one's own: ``python -m entp_lib text FILE``.

The defaults are those of ``shakespeare``, the authors' Small size on windows of 64. Runs of one file are paired: the
same initial weights, windows and steps. Their records go to a folder of their own and belong to no claim.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lib.config import SIZES, ModelConfig, RunConfig, TrainConfig, one_of, require
from entp_lib.experiments.base import twins
from entp_lib.records import Record
from entp_lib.tasks import Text
from entp_lib.text import TOKENIZERS, source_of
from entp_lib.text.documentation import DOCUMENT_END

VERSION = 1


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
    """The runs on a text or Parquet file; the rate falls to a tenth, the last tenth of the text is for validation.

    ``vocabulary`` 0: for characters as many as the text has. ConfigError for what the file or the options lack.
    """
    one_of("size", size, SIZES)
    one_of("tokenizer", tokenizer, TOKENIZERS)
    for name, value in {"steps": steps, "batch_size": batch_size, "seeds": seeds}.items():
        require(value >= 1, f"{name} = {value}: must be at least 1")
    source = source_of(corpus)
    if tokenizer == "characters" and not vocabulary:
        vocabulary = len(set(DOCUMENT_END if source.whole else "").union(*source.documents()))
    params = dict(
        corpus=corpus,
        checksum=source.checksum[:16],
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        split="tail",
        held_out=0.1,
        context=context,
        prefixes=prefixes,
    )
    task = Text(**params)
    task.prepare()  # a text that is too short is said before anything starts
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
    model = ModelConfig.from_size(size, architecture="decoder", vocab_size=task.vocab_size, max_length=task.length)
    # of the tiers, paper is the one that takes a GPU where there is one and a CPU where there is none
    return twins(RunConfig("own_text", "paper", "text", params, model, train), architectures, seeds)


def courses(records: Sequence[Record]) -> pd.DataFrame:
    """Training loss (mean since the point before) and validation loss, nats a token: steps by runs."""
    columns = {}
    for r in records:
        run = f"{r.config.model.architecture}, seed {r.config.model_seed}"
        for curve, name in (("train_loss", "training"), ("loss", "validation")):
            columns[run, name] = pd.Series(r.curves[curve], index=r.curves["step"])
    return pd.DataFrame(columns).rename_axis("step")
