"""A probe for the pairless shortcut of Count3: do trained models answer with the diagonal's parity?

At even n the answer has the parity of k = #{i : 2 x_i + x_n = 0 (mod n)} (``entp_papers.entp.pairless``), so that
whoever counts the diagonal has the parity right, whatever else is wrong. An odd x_n makes k zero at once, which one
element shows; the probe asks where x_n is even, too. A model without the shortcut has the parity right where its answer
is right, and elsewhere as often as the commonest parity is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig, RunConfig, StudyConfig, TrainConfig
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.plans import PlannedRun, planned_study
from entp_lib.records.resuming import trained
from entp_lib.records.store import Record
from entp_lib.tasks import Batch, Counting, Task, generator_for, loss_curve
from entp_lib.training.evaluation import evaluate
from entp_lib.validation import require
from entp_papers.entp.count3 import TIERS
from entp_papers.entp.pretrained.experiments import plain

NAME = "count3_probe"
EVEN, PARITY = "even", "parity"  # what is scored at even n: the answer, and its parity alone


@dataclass(frozen=True)
class AtEven(Counting):
    """Count3 scored where n and x_n are even, by the share of predictions that are wrong: in full, or in parity."""

    parity: bool = False

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        batch = super().batch(generator, size, evaluating)
        even_BT = batch.inputs_BT % 2 == 0
        even_BT[:, ::2] = False  # prefixes of 1, 3, ... elements
        return replace(batch, wanted_BT=batch.wanted_BT & even_BT)

    def losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        off_N = logits_NV.argmax(-1) - targets_N
        return (off_N % 2 != 0 if self.parity else off_N != 0).float()


@dataclass(frozen=True)
class Probed(Counting):
    """Count3 with both scorings of ``AtEven`` at every evaluation."""

    def watched(self) -> dict[str, Task]:
        return scorings(self)


def scorings(task: Counting) -> dict[str, Task]:
    """``AtEven`` of a task by what it scores. ConfigError where no even n is scored, and for Count2, without pairs."""
    require(task.order == 3, f"order = {task.order}: the shortcut is Count3's, of order 3")
    require(
        task.first_scored < task.length or task.length % 2 == 0, f"length = {task.length}: no even prefix is scored"
    )
    params = {field.name: getattr(task, field.name) for field in fields(Counting)}
    return {EVEN: AtEven(**params), PARITY: AtEven(**params, parity=True)}


def probe(model: nn.Module, task: Counting, sequences: int, seed: int = 0) -> dict[str, Any]:
    """A trained model where n and x_n are even: ``token_accuracy``, ``parity_agreement`` and ``commonest``.

    The prediction's parity is held against the diagonal's, which is the answer's there; ``commonest`` is the agreement
    of the commonest parity for each n and x_n. ``..._by_position``: the first two at each n of ``position``.
    """
    found, scored = {}, scorings(task)
    for name, score in ((EVEN, "token_accuracy"), (PARITY, "parity_agreement")):
        scores = evaluate(model, scored[name], sequences, seed, "probe", detailed=True)
        found |= {"position": scores["position"], score: 1 - scores["loss"]}
        found[f"{score}_by_position"] = [1 - loss for loss in scores["loss_by_position"]]
    batch = scored[PARITY].batch(generator_for("cpu", seed, "commonest"), sequences, evaluating=True)
    cells = {"n": batch.wanted_BT.nonzero()[:, 1], "last": batch.inputs_BT[batch.wanted_BT], "odd": batch.targets_N % 2}
    odd = pd.DataFrame(cells).groupby(["n", "last"])["odd"].agg(["mean", "size"])
    commonest = (odd["mean"].clip(lower=1 - odd["mean"]) * odd["size"]).sum() / odd["size"].sum()
    return found | {"commonest": float(commonest)}


def probe_study(
    task: dict[str, Any], model: dict[str, Any], train_config: dict[str, Any], seed: int
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train a model on Count3 and probe it: metrics of ``probe``, and of the course two of them.

    ``all_token_accuracy``: over all scored n. Curves: ``step``, ``loss`` and ``all_token_accuracy`` of all scored n,
    ``token_accuracy`` and ``parity_agreement`` of the probe.
    """
    probed = Probed(**task)
    shape = ModelConfig(vocab_size=probed.vocab_size, max_length=probed.length, **model)
    config = RunConfig(NAME, "quick", "counting", task, shape, TrainConfig(**train_config), seed, seed)
    outcome = trained(config, task=probed)
    curves, scores = outcome.state.curves, probe(outcome.model, probed, config.train.final_eval_sequences, seed)
    course = {"step": curves["step"], "loss": curves["loss"], "all_token_accuracy": curves["token_accuracy"]}
    for name, score in ((EVEN, "token_accuracy"), (PARITY, "parity_agreement")):
        course[score] = [1 - wrong for wrong in curves[loss_curve(name)]]
    return scores | {"all_token_accuracy": outcome.metrics["token_accuracy"]}, course


ARMS = ("decoder", "entp")


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoder and ENTP on ``count3``'s task, model and schedule of the tier, each trained anew and probed."""
    if tier not in ("smoke", "quick"):
        return []
    setting, runs = TIERS[tier], []
    for seed in range(seeds or {"smoke": 1, "quick": 3}[tier]):
        for arm in ARMS:
            model = dict(architecture=arm, **setting.model)
            params = dict(task=setting.task, model=model, train_config=plain(setting.train), seed=seed)
            runs.append(planned_study(StudyConfig(NAME, tier, "counting_probe", params, seed, seed), arm=arm))
    return runs


def table(records: Sequence[Record]) -> pd.DataFrame:
    """By arm, means over seeds where n and x_n are even: accuracy and parity agreement, also where the answer is wrong.

    ``commonest parity``: the agreement of a guess from n and x_n.
    """
    rows = pd.DataFrame({**r.labels, **{k: v for k, v in r.metrics.items() if isinstance(v, float)}} for r in records)
    wrong = 1 - rows["token_accuracy"]
    rows["agreement where wrong"] = (rows["parity_agreement"] - rows["token_accuracy"]) / wrong
    rows = rows.rename(columns={"commonest": "commonest parity"})
    columns = ["token_accuracy", "parity_agreement", "agreement where wrong", "commonest parity"]
    return rows.groupby("arm", sort=False)[columns].mean()


COUNT3_PROBE = Experiment(
    NAME,
    1,
    "Do models of Count3 use the shortcut that looks at no pair?",
    "03b_count3_details",
    plan,
    no_claims,
    changeable=False,
)
