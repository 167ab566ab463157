"""Validation of the trainer: characters of Shakespeare at the Small size, against the authors' logged runs.

    curl -o results/corpora/shakespeare.txt \\
        https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
    python -m entp_lib train shakespeare --tier paper --architecture decoder

The authors' logs (one seed, no text about them) have lowest validation losses of 1.617 nats a character for the
decoder, at step 3,600, and of 1.625 for ENTP. What they do not say is inferred: characters, 65 of them, from the loss
at the start; block 64, batch 64 and rates from 5e-4 to 5e-5, the defaults of their code; a warm-up of 100 steps from
the loss after 16; the end, ten evaluations after the lowest, from where all eight logs stop. The length of the decay
is a guess, and so is the validation text: docs/journal says what speaks against the last tenth. A decoder takes the
better part of an hour on one core, ENTP wants a GPU.
"""

import pandas as pd

from entp_lib.config import SIZES, TrainConfig
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.frames import published
from entp_lib.experiments.plans import PlannedRun, run_of, twins
from entp_lib.records.store import Record, Store
from entp_lib.statistics import to_figures

# nanoGPT's split: the last tenth, here from a speech's beginning.
TASK = dict(
    corpus="results/corpora/shakespeare.txt",
    checksum="86c4e6aa9db7c042",
    tokenizer="characters",
    vocabulary=65,
    split="tail",
    held_out=0.1,
    context=64,
)
TRAIN = TrainConfig(
    steps=5000,
    batch_size=64,
    max_lr=5e-4,
    min_lr=5e-5,
    warmup_steps=100,
    eval_every=100,
    eval_sequences=1024,
    final_eval_sequences=4096,
    patience=10,
)


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Both architectures at the authors' setting, which is the only one."""
    if tier != "paper":
        return []
    return twins(run_of("shakespeare", tier, "text", TASK, SIZES["small"], TRAIN), ("decoder", "entp"), seeds or 1)


def complete(store: Store) -> list[Record]:
    """The runs that have been made, in full."""
    found = (store.find(config, SHAKESPEARE.version) for config in SHAKESPEARE.configs("paper"))
    return [r for r in found if r is not None and r.status == "complete"]


def beside_authors(store: Store) -> pd.DataFrame:
    """The authors' logged lowest validation losses and ours, by architecture; ours blank where it has not been run."""
    logged = published("entp", "shakespeare").query("model == 'small' and positions == 'learned'")
    table = logged.set_index("architecture")[["lowest_loss", "step"]]
    table.columns = ["authors", "their step"]
    for record in complete(store):
        name, lowest = record.config.model.architecture, min(record.curves["loss"])
        table.loc[name, "ours"] = lowest
        table.loc[name, "our step"] = record.curves["step"][record.curves["loss"].index(lowest)]
    table = table.reindex(columns=["authors", "their step", "ours", "our step"]).astype(float)
    return table.assign(difference=table["ours"] - table["authors"]).map(to_figures, decimals=4)


def training_differences(store: Store, after: int = 300) -> pd.DataFrame:
    """Training loss, ours − the authors', over the steps of both beyond ``after``: mean, largest, number of points."""
    by = ["architecture", "step"]
    both = courses(store).query("step > @after").pivot(index=by, columns="of", values="train_loss")
    differences = (both.reindex(columns=["ours", "authors"]).diff(axis=1)["authors"] * -1).dropna()
    of = differences.groupby("architecture")
    found = {"mean": of.mean(), "largest": of.agg(lambda d: d.abs().max()), "points": of.size()}
    return pd.DataFrame(found).map(to_figures, decimals=4)


def courses(store: Store) -> pd.DataFrame:
    """Training loss (mean since the point before) and validation loss by step: the authors', and ours if made."""
    parts = [published("entp", "shakespeare_curves").assign(of="authors")]
    for record in complete(store):
        curves = {name: record.curves[name] for name in ("step", "train_loss")}
        curves["validation_loss"] = record.curves["loss"]
        parts.append(pd.DataFrame({"architecture": record.config.model.architecture, **curves, "of": "ours"}))
    return pd.concat(parts, ignore_index=True)


SHAKESPEARE = Experiment(
    "shakespeare",
    1,
    "The trainer against the authors' logs of Shakespeare",
    "09_openwebtext",
    plan,
    no_claims,
    changeable=False,
)
