"""Metrics by position, and the mode baseline.

Letters: B batch, T tokens, N scored positions, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.decoding import evaluating
from entp_lib.tasks import Batch, Task, generator_for
from entp_lib.validation import one_of, require

EVAL_BATCH = 256
EVAL_LOGITS = 2**27  # entries of a batch's logits, which a large vocabulary would fill the memory with


def batches(task: Task, sequences: int, device: str, *seed_parts: int | str):
    """Yield ``sequences`` fresh sequences in batches, or a fixed set's, the same ones for the same seed parts."""
    room = EVAL_BATCH if task.continuous else max(1, EVAL_LOGITS // (task.length * task.vocab_size))
    yield from task.evaluation(generator_for(device, *seed_parts), sequences, min(EVAL_BATCH, room))


def autocast(device: str, precision: str):
    """The autocast context of a precision: bf16, or nothing for fp32. ConfigError for another."""
    one_of("precision", precision, ("fp32", "bf16"))
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=precision == "bf16")


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    sequences: int,
    *seed_parts: int | str,
    device: str = "cpu",
    precision: str = "fp32",
    detailed: bool = False,
    grouped: bool = False,
) -> dict[str, Any]:
    """Teacher-forced scores on fresh sequences.

    ``loss`` in nats per scored position; ``token_accuracy``; ``sequence_accuracy``, the share of sequences with
    every scored position right. ``detailed`` adds the same by position (1-based prefix length) and the margin
    between the largest and the second largest logit. A continuous task has the squared error alone, and in detail
    ``error_by_position``, the standard error of its mean (squares over n, not n - 1). ``grouped`` adds ``groups``: by
    the task's name for a sequence, how many there were and were right. ConfigError for no sequences.
    """
    require(sequences >= 1, f"sequences = {sequences}: must be at least 1")
    totals, groups = Totals(task, device), {}
    with evaluating(model):
        for batch in batches(task, sequences, device, "evaluate", *seed_parts):
            with autocast(device, precision):
                logits_NV = model(batch.inputs_BT, batch.scored_BT, batch.prompt_lengths_B, **batch.relations())
            right_B = totals.add(batch, logits_NV.float(), detailed)
            if grouped:
                for name, right in zip(task.groups(batch) or (), right_B.tolist(), strict=False):
                    count = groups.setdefault(name, {"sequences": 0, "right": 0})
                    count["sequences"] += 1
                    count["right"] += right
    return totals.result(detailed) | ({"groups": dict(sorted(groups.items()))} if grouped else {})


class Totals:
    """Sums of scores by position over batches, kept on the device: of classes, or of real targets their errors."""

    def __init__(self, task: Task, device: str):
        self.task, self.sequences, self.sequences_right = task, 0, 0
        self.margins: list[Tensor] = []
        names = ("count", "loss", "square") if task.continuous else ("count", "loss", "right", "margin")
        self.sums = {name: torch.zeros(task.length, dtype=torch.float64, device=device) for name in names}

    def add(self, batch: Batch, outputs_NV: Tensor, detailed: bool) -> Tensor:
        """Add a batch; returns which of its sequences were right, (B,): none where targets are real numbers."""
        losses_N = self.task.losses(outputs_NV, batch.targets_N).double()
        added = {"loss": losses_N, "count": torch.ones_like(losses_N)}
        if self.task.continuous:
            whole_B, added["square"] = torch.zeros(len(batch.scored_BT), dtype=torch.bool), losses_N.square()
        else:
            right_N = outputs_NV.argmax(-1) == batch.targets_N
            right_BT = torch.ones_like(batch.scored_BT)
            right_BT[batch.scored_BT] = right_N
            whole_B, added["right"] = right_BT.all(1), right_N.double()
            if detailed:
                top_N2 = outputs_NV.topk(2, dim=-1).values.double()
                added["margin"] = top_N2[:, 0] - top_N2[:, 1]
                self.margins.append(added["margin"])
        self.sequences_right += int(whole_B.sum())
        self.sequences += len(whole_B)
        ends_N = batch.scored_BT.nonzero()[:, 1]
        for name, values_N in added.items():
            self.sums[name].index_add_(0, ends_N, values_N)
        return whole_B

    def result(self, detailed: bool) -> dict[str, Any]:
        """The scores, as ``evaluate`` gives them."""
        count = self.sums["count"].sum()
        result: dict[str, Any] = {"loss": float(self.sums["loss"].sum() / count)}
        if not self.task.continuous:
            result["token_accuracy"] = float(self.sums["right"].sum() / count)
            result["sequence_accuracy"] = self.sequences_right / self.sequences
        if not detailed:
            return result
        scored_T = self.sums["count"] > 0
        count_S = self.sums["count"][scored_T]
        means = {name: sum_T[scored_T] / count_S for name, sum_T in self.sums.items()}
        result |= {"sequences": self.sequences, "position": (scored_T.nonzero()[:, 0] + 1).tolist()}
        if self.task.continuous:
            variance_S = (means["square"] - means["loss"].square()).clamp_min(0)
            errors = {"error_by_position": (variance_S / count_S).sqrt().tolist()}
            return result | {"loss_by_position": means["loss"].tolist()} | errors
        margins = torch.cat(self.margins)
        levels = torch.tensor([0.05, 0.5, 0.95], dtype=margins.dtype, device=margins.device)
        picked = margins[:: -(-len(margins) // 1_000_000)]  # torch.quantile refuses more than 16 million
        quantiles = dict(zip(("q05", "q50", "q95"), torch.quantile(picked, levels).tolist(), strict=True))
        return result | {
            "token_accuracy_by_position": means["right"].tolist(),
            "loss_by_position": means["loss"].tolist(),
            "margin_by_position": means["margin"].tolist(),
            "margin": {"mean": float(margins.mean()), **quantiles},
        }


def constant_baseline(task: Task, sequences: int, *seed_parts: int | str, device: str = "cpu") -> dict[str, Any]:
    """Scores of the best guess that does not look at the input: at each position the mode, or ``constants_T`` if real.

    A mode's loss is that of the targets' frequencies. These come from one half of ``2 * sequences`` fresh sequences,
    the scores from the other; of a fixed set both come from the set, or from so many of it. Where the task is
    ``stationary`` they are those of all positions together: a large vocabulary has too few targets at each.
    """
    rows = 1 if task.stationary and not task.continuous else task.length
    if task.continuous:
        guesses_TV = task.constants_T()[:, None]
    else:
        counts_TV = torch.zeros(rows, task.vocab_size, device=device)
        for batch in batches(task, sequences, device, "baseline-fit", *seed_parts):
            ends_N = batch.scored_BT.nonzero()[:, 1] % rows
            index = ends_N * task.vocab_size + batch.targets_N
            counts_TV.view(-1).index_add_(0, index, torch.ones_like(index, dtype=counts_TV.dtype))
        guesses_TV = ((counts_TV + 0.5) / (counts_TV + 0.5).sum(1, keepdim=True)).log()
    totals = Totals(task, device)
    for batch in batches(task, sequences, device, "baseline", *seed_parts):
        if task.continuous:
            guesses_TV = guesses_TV.to(batch.targets_BT)
        totals.add(batch, guesses_TV[batch.scored_BT.nonzero()[:, 1] % rows], detailed=True)
    return {name: value for name, value in totals.result(detailed=True).items() if not name.startswith("margin")}
