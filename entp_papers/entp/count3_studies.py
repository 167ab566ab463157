"""Two shortcuts in Count3: sets seen in training in another order, and the diagonal's parity.

Sets: the answer depends on the elements of a prefix, its last element and its length, not on the
order of the other elements. So the split by sequences in ``count3`` and ``count3_unseen`` holds out
next to nothing: nearly all scored prefixes are, up to that order, a prefix of some training
sequence (``seen``). In ``count3_sets`` all orders of a prompt's multiset go to one side of the
split; a prefix is then seen only if two different prompts have grown to the same one.

Parity: at even n the answer has the parity of k = #{i : 2 x_i + x_n = 0 (mod n)}
(``entp_papers.entp.pairless``), so a model that counts the diagonal has the parity right even where
its answer is wrong. If x_n is odd, k is zero, which one element shows; the probe therefore asks
only where x_n is even, too. A model without the shortcut has the parity right where its answer is
right, and elsewhere as often as the most frequent parity occurs.
"""

from dataclasses import asdict, dataclass, replace

import pandas as pd
import torch
from torch import Tensor, nn

from entp_lab.configs import Json, RunConfig
from entp_lab.experiment import TWINS, Experiment, PlannedRuns, planned_study
from entp_lab.resume import train_run
from entp_lab.studies import Study, seeded
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import evaluate
from entp_lib.tasks import Batch, Counting, Task, generator_for, loss_curve
from entp_papers.entp.closed import closed
from entp_papers.entp.count3 import TIERS
from entp_papers.entp.pretrained.experiments import plain

CHUNK = 65_536  # training sequences at a time
EVEN = "even"  # scoring of the answer at even n
PARITY = "parity"  # scoring of the answer's parity only, at even n
SCORES = {EVEN: "token_accuracy", PARITY: "parity_agreement"}  # by scoring, the names of its scores
PROBED = {"smoke": 1, "quick": 3}  # by tier: random seeds of the probed models


def repeats_study(task: Json, trained: int, scored: int) -> Study:
    """Estimate ``seen`` for a task with too many prompts to enumerate, from drawn sequences.

    ``trained`` sequences are drawn, and ``scored`` more. ``task``: parameters of ``Counting``
    without a split. Prefixes are compared up to order by 64-bit fingerprints; fewer than one run in
    a million would take two different prefixes for the same. Metrics: the share of scored prefixes
    that are seen, over all lengths. Curves: ``n``, and ``seen``, the share at that length.
    """
    counting = Counting(**task)
    generator = seeded(0)
    weights_2V = torch.randint(-(2**63), 2**63 - 1, (2, counting.vocab_size), generator=generator)
    lengths = range(counting.first_scored, counting.length + 1)

    def fingerprints(size: int) -> Tensor:
        x_BT = counting.sequences(generator, size)
        return torch.stack(
            [weights_2V[0][x_BT[:, :n]].sum(1) + weights_2V[1][x_BT[:, n - 1]] for n in lengths]
        )

    scored_NB = fingerprints(scored)
    seen_NB = torch.zeros_like(scored_NB, dtype=torch.bool)
    for drawn in range(0, trained, CHUNK):
        trained_NB = fingerprints(min(CHUNK, trained - drawn))
        for row, others, seen_B in zip(scored_NB, trained_NB, seen_NB, strict=True):
            seen_B |= torch.isin(row, others)
    return {"seen": seen_NB.double().mean().item()}, {
        "n": list(lengths),
        "seen": seen_NB.double().mean(1).tolist(),
    }


@dataclass(frozen=True)
class AtEven(Counting):
    """Count3 scored only where n and x_n are even; the loss is the share of wrong predictions.

    A prediction is wrong if it differs from the answer or, with ``parity``, in parity.
    """

    parity: bool = False

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        batch = super().batch(generator, size, evaluating)
        even_BT = batch.inputs_BT % 2 == 0
        even_BT[:, ::2] = False  # prefixes of 1, 3, ... elements
        return replace(batch, scored_BT=batch.scored_BT & even_BT)

    def losses(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        off_N = logits_NV.argmax(-1) - targets_N
        return (off_N % 2 != 0 if self.parity else off_N != 0).float()


@dataclass(frozen=True)
class Probed(Counting):
    """Count3 with both scorings of ``AtEven`` at every evaluation."""

    def extra_scorings(self) -> dict[str, Task]:
        return scorings(self)


def scorings(task: Counting) -> dict[str, Task]:
    """Return the two scorings ``AtEven`` of a task by name."""
    even = AtEven(**asdict(task))
    return {EVEN: even, PARITY: replace(even, parity=True)}


def probe(model: nn.Module, task: Counting, sequences: int, seed: int = 0) -> Json:
    """Score a trained model where n and x_n are even: ``token_accuracy``, ``parity_agreement`` and
    ``commonest``.

    The predicted parity is compared with the diagonal's, which is the answer's at even n.
    ``commonest`` is the agreement of always guessing the most frequent parity for each n and x_n.
    ``..._by_position``: the first two scores at each n of ``position``.
    """
    found = {}
    scored = scorings(task)
    for name, score in SCORES.items():
        scores = evaluate(model, scored[name], sequences, seed, "probe", detailed=True)
        found |= {"position": scores["position"], score: 1 - scores["loss"]}
        found[f"{score}_by_position"] = [1 - loss for loss in scores["loss_by_position"]]
    batch = scored[PARITY].batch(
        generator_for("cpu", seed, "commonest"), sequences, evaluating=True
    )
    cells = {
        "n": batch.scored_BT.nonzero()[:, 1],
        "last": batch.inputs_BT[batch.scored_BT],
        "odd": batch.targets_N % 2,
    }
    odd = pd.DataFrame(cells).groupby(["n", "last"])["odd"].agg(["mean", "size"])
    commonest = (odd["mean"].clip(lower=1 - odd["mean"]) * odd["size"]).sum() / odd["size"].sum()
    return found | {"commonest": float(commonest)}


def probe_study(task: Json, model: Json, train_config: Json, seed: int) -> Study:
    """Train a model on Count3 and probe it, in full at the end and in part during training.

    Metrics: those of ``probe``, and ``all_token_accuracy`` over all scored n. Curves: ``step``,
    ``loss`` and ``all_token_accuracy`` over all scored n, and the probe's ``token_accuracy`` and
    ``parity_agreement``.
    """
    probed = Probed(**task)
    shape = ModelConfig(vocab_size=probed.vocab_size, max_length=probed.length, **model)
    config = RunConfig(
        "count3_probe", "quick", "counting", task, shape, TrainConfig(**train_config), seed, seed
    )
    outcome = train_run(config, task=probed)
    curves = outcome.state.curves
    scores = probe(outcome.model, probed, config.train.final_eval_sequences, seed)
    course = {
        "step": curves["step"],
        "loss": curves["loss"],
        "all_token_accuracy": curves["token_accuracy"],
    }
    for name, score in SCORES.items():
        course[score] = [1 - wrong for wrong in curves[loss_curve(name)]]
    return scores | {"all_token_accuracy": outcome.metrics["token_accuracy"]}, course


def plan_probes(tier: str, seeds: int) -> PlannedRuns:
    """Plan a decoder and an ENTP to train and probe, with the tier's settings of ``count3``."""
    setting = TIERS[tier]
    for seed in range(seeds or PROBED[tier]):
        for arm in TWINS:
            model = dict(architecture=arm, **setting.model)
            params = dict(
                task=setting.task, model=model, train_config=plain(setting.train), seed=seed
            )
            yield planned_study("count3_probe", tier, "counting_probe", params, seed, arm=arm)


# There is a study per schedule of ``count3_long_all``, with as many training sequences as its runs.
COUNT3_REPEATS = closed(
    "count3_repeats",
    "Count3 at length 24: how much of what is scored has come up in training",
    "03_count3",
    seeded=False,
)
COUNT3_PROBE = Experiment(
    "count3_probe",
    1,
    "Do models of Count3 use the shortcut that looks at no pair?",
    "03b_count3_details",
    plan_probes,
    tiers=PROBED,
)
