"""Score a model on a task, overall and by position, and the best guess that ignores the input.

Letters: B batch, T tokens, N scored positions, S scored places of T, V vocabulary.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import compress

import torch
from torch import Tensor, nn

from entp_lib.arguments import widest
from entp_lib.config import ModelConfig
from entp_lib.decoding import eval_mode
from entp_lib.model import check_device
from entp_lib.tasks.base import Batch, Task, generator_for
from entp_lib.validation import Json, one_of, positive, require

EVAL_BATCH = 256
# most logits of a batch, so that a large vocabulary does not fill the memory
EVAL_LOGITS = 2**27
# most margins used; torch.quantile refuses more than 16 million
MAX_QUANTILE = 1_000_000


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    sequences: int,
    *seed_parts: int | str,
    device: str | None = None,
    precision: str = "fp32",
    detailed: bool = False,
    grouped: bool = False,
) -> Json:
    """Score a model on fresh sequences, given the right tokens before each prediction.

    Returns ``loss`` in nats per scored position, ``token_accuracy``, and ``sequence_accuracy``, the
    share with every scored position right, of the sequences that have any. ``detailed`` adds the
    scores by position (1-based prefix length) and the margin between the largest and the second
    largest logit. A continuous task has its squared error as ``loss`` and no accuracies;
    ``detailed`` adds ``error_by_position``, the standard error of the mean (with n, not n - 1).
    ``grouped`` adds ``groups``: for each of the task's groups, the number of those sequences
    and of right ones. ``seed_parts``: numbers or words that choose other sequences; the same
    ones choose the same. ``precision``: as in ``TrainConfig``. ``device``: where batches are
    drawn, by default where the model is. Raises ConfigError for ``sequences`` below 1, an
    unknown ``precision`` or ``device``, a model whose number of outputs does not fit the task,
    or if no sequence has a scored position.
    """
    positive("sequences", sequences)
    device = device_for(model, device)
    if isinstance(cfg := getattr(model, "cfg", None), ModelConfig):
        outputs = cfg.output_dim or cfg.vocab_size
        needed = 1 if task.continuous else task.vocab_size
        fits = outputs == needed if task.continuous else outputs >= needed
        require(fits, f"a model with {outputs} outputs: the task needs {needed}")
    totals = Totals(task, device)
    groups: dict[str, dict[str, int]] = {}
    with eval_mode(model):
        for batch in evaluation_batches(
            task, sequences, device, "evaluate", *seed_parts
        ):
            with autocast(device, precision):
                logits_NV = model(
                    batch.inputs_BT,
                    batch.scored_BT,
                    batch.prompt_lengths_B,
                    **batch.model_arguments(),
                )
            wide = torch.promote_types(logits_NV.dtype, torch.float32)
            right_B = totals.add(batch, logits_NV.to(wide), detailed)
            names = task.groups(batch) if grouped else []
            asked = batch.scored_BT.any(1).tolist()
            for name, right in compress(
                zip(names, right_B.tolist(), strict=bool(names)), asked
            ):
                count = groups.setdefault(name, {"sequences": 0, "right": 0})
                count["sequences"] += 1
                count["right"] += right
    scores = totals.detailed_scores() if detailed else totals.scores()
    if grouped:
        scores["groups"] = dict(sorted(groups.items()))
    return scores


def constant_baseline(
    task: Task, sequences: int, *seed_parts: int | str, device: str = "cpu"
) -> Json:
    """Score the best guess that ignores the input: at each position the most frequent target.

    The loss is the cross-entropy under the estimated frequencies of targets. A real target is
    guessed by ``constants_T``. Frequencies are estimated on ``sequences`` fresh sequences and
    scored on as many others; with a fixed data set both are drawn from it. A ``stationary`` task
    pools all positions, since a large vocabulary has too few targets at each.
    """
    rows = 1 if task.stationary else task.length
    if task.continuous:
        guesses_TV = task.constants_T()[:, None].to(device)
    else:
        counts_TV = torch.zeros(rows, task.vocab_size, device=device)
        for batch in evaluation_batches(
            task, sequences, device, "baseline-fit", *seed_parts
        ):
            index = batch.scored_BT.nonzero()[:, 1] % rows, batch.targets_N
            counts_TV.index_put_(index, counts_TV.new_ones(1), accumulate=True)
        counts_TV += 0.5  # so that no symbol has probability 0
        guesses_TV = (counts_TV / counts_TV.sum(1, keepdim=True)).log()
    totals = Totals(task, device)
    for batch in evaluation_batches(task, sequences, device, "baseline", *seed_parts):
        places_N = batch.scored_BT.nonzero()[:, 1] % rows
        totals.add(batch, guesses_TV[places_N], detailed=False)
    return totals.detailed_scores()


class Totals:
    """Sums of scores by position over batches, on the device; squared errors for real targets."""

    def __init__(self, task: Task, device: str):
        self.task = task
        self.wide = widest(device)
        self.sequences = 0
        self.sequences_right = 0
        self.margins: list[Tensor] = []
        self.sums: dict[str, Tensor] = defaultdict(
            lambda: torch.zeros(task.length, dtype=self.wide, device=device)
        )

    def add(self, batch: Batch, outputs_NV: Tensor, detailed: bool) -> Tensor:
        """Add a batch and return which sequences are right, (B,); all False for real targets."""
        losses_N = self.task.losses(outputs_NV, batch.targets_N).to(self.wide)
        added = {"loss": losses_N, "count": torch.ones_like(losses_N)}
        if self.task.continuous:
            added["square"] = losses_N.square()
            right_B = torch.zeros_like(batch.scored_BT[:, 0])
        else:
            right_N = outputs_NV.argmax(-1) == batch.targets_N
            added["right"] = right_N.to(self.wide)
            right_BT = torch.ones_like(batch.scored_BT)
            right_BT[batch.scored_BT] = right_N
            right_B = right_BT.all(1)
            if detailed:
                top_N2 = outputs_NV.topk(2, dim=-1).values.to(self.wide)
                added["margin"] = top_N2[:, 0] - top_N2[:, 1]
                self.margins.append(added["margin"])
        asked_B = batch.scored_BT.any(1)
        self.sequences_right += int(right_B[asked_B].sum())
        self.sequences += int(asked_B.sum())
        places_N = batch.scored_BT.nonzero()[:, 1]
        for name, values_N in added.items():
            self.sums[name].index_add_(0, places_N, values_N)
        return right_B

    def scores(self) -> Json:
        """Return the scores over all positions."""
        require(
            self.sequences > 0, "no sequence of the evaluation has a scored position"
        )
        count = self.sums["count"].sum()
        scores = {"loss": float(self.sums["loss"].sum() / count)}
        if not self.task.continuous:
            scores["token_accuracy"] = float(self.sums["right"].sum() / count)
            scores["sequence_accuracy"] = self.sequences_right / self.sequences
        return scores

    def detailed_scores(self) -> Json:
        """Return the scores, overall and by position."""
        scored_T = self.sums["count"] > 0
        count_S = self.sums["count"][scored_T]
        means = {name: sum_T[scored_T] / count_S for name, sum_T in self.sums.items()}
        scores = self.scores() | {
            "sequences": self.sequences,
            "position": (scored_T.nonzero()[:, 0] + 1).tolist(),
            "loss_by_position": means["loss"].tolist(),
        }
        if self.task.continuous:
            variance_S = (means["square"] - means["loss"].square()).clamp_min(0)
            return scores | {
                "error_by_position": (variance_S / count_S).sqrt().tolist()
            }
        scores["token_accuracy_by_position"] = means["right"].tolist()
        if not self.margins:
            return scores
        margins = torch.cat(self.margins)
        generator = generator_for("cpu", "margins")
        order = torch.randperm(len(margins), generator=generator)
        some = margins[order[:MAX_QUANTILE].to(margins.device)]
        levels = margins.new_tensor([0.05, 0.5, 0.95])
        q05, q50, q95 = torch.quantile(some, levels).tolist()
        return scores | {
            "margin_by_position": means["margin"].tolist(),
            "margin": {
                "mean": float(margins.mean()),
                "q05": q05,
                "q50": q50,
                "q95": q95,
            },
        }


def evaluation_batches(
    task: Task, sequences: int, device: str, *seed_parts: int | str
) -> Iterator[Batch]:
    """Return ``sequences`` sequences in batches, the same ones for the same seed parts."""
    most = EVAL_BATCH
    if not task.continuous:
        most = min(most, max(1, EVAL_LOGITS // (task.length * task.vocab_size)))
    return task.evaluation(generator_for(device, *seed_parts), sequences, most)


def device_for(model: nn.Module, device: str | None) -> str:
    """Return ``device``, checked, or that of a model's first parameter, "cpu" without any."""
    if device:
        check_device(device)
        return device
    first = next(model.parameters(), None)
    return "cpu" if first is None else str(first.device)


def autocast(device: str | torch.device, precision: str) -> torch.autocast:
    """Return the autocast context of a precision; for fp32 it is disabled."""
    one_of("precision", precision, ("fp32", "bf16"))
    return torch.autocast(
        torch.device(device).type, dtype=torch.bfloat16, enabled=precision == "bf16"
    )
