"""Metrics by position, the mode baseline, and the intervals that verdicts rest on.

Letters: B batch, T tokens, N scored positions, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.tasks import Batch, Task, generator_for
from entp_lib.validation import one_of, require

EVAL_BATCH = 256
EVAL_LOGITS = 2**27  # entries of a batch's logits, which a large vocabulary would fill the memory with


def batches(task: Task, sequences: int, device: str, *seed_parts: int | str):
    """Yield ``sequences`` fresh sequences in batches, or a fixed set's, the same ones for the same seed parts."""
    generator = generator_for(device, *seed_parts)
    most = EVAL_BATCH
    if not task.continuous:
        most = max(1, min(most, EVAL_LOGITS // (task.length * task.vocab_size)))
    yield from task.evaluation(generator, sequences, most)


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
    between the largest and the second largest logit. Where a task is continuous there is the squared error alone,
    and in detail ``error_by_position``, the standard error of its mean over n sequences (the squares over n, not
    n - 1: for thousands of them). ``grouped`` adds ``groups``: by the task's name for a sequence, how many there were
    and how many were right. ConfigError for no sequences and for an unknown precision.
    """
    require(sequences >= 1, f"sequences = {sequences}: must be at least 1")
    was_training = model.training
    model.eval()
    totals, groups = totals_for(task, device), {}
    try:
        for batch in batches(task, sequences, device, "evaluate", *seed_parts):
            with autocast(device, precision):
                logits_NV = model(batch.inputs_BT, batch.wanted_BT, batch.prompt_lengths_B, **batch.relations())
            logits_NV = logits_NV.float()
            right_B = totals.add(task, batch, logits_NV, detailed)
            if grouped:
                for name, right in zip(task.groups(batch) or (), right_B.tolist(), strict=False):
                    count = groups.setdefault(name, {"sequences": 0, "right": 0})
                    count["sequences"] += 1
                    count["right"] += right
    finally:
        model.train(was_training)
    return totals.result(detailed) | ({"groups": dict(sorted(groups.items()))} if grouped else {})


def totals_for(task: Task, device: str) -> "Totals | SquaredErrors":
    """What sums up the scores of a task."""
    return (SquaredErrors if task.continuous else Totals)(task.length, device)


class SquaredErrors:
    """Sums over batches of real targets, kept on the device."""

    def __init__(self, length: int, device: str):
        zeros = torch.zeros(length, dtype=torch.float64, device=device)
        self.loss_T, self.square_T, self.count_T = (zeros.clone() for _ in range(3))
        self.sequences = 0

    def add(self, task: Task, batch: Batch, outputs_NV: Tensor, detailed: bool) -> Tensor:
        """Add a batch; no sequence of real numbers is right or wrong, so none is reported as right, (B,)."""
        losses_N = task.losses(outputs_NV, batch.targets_N).double()
        ends_N = batch.wanted_BT.nonzero()[:, 1]
        self.loss_T.index_add_(0, ends_N, losses_N)
        self.square_T.index_add_(0, ends_N, losses_N.square())
        self.count_T.index_add_(0, ends_N, torch.ones_like(losses_N))
        self.sequences += len(batch.wanted_BT)
        return torch.zeros(len(batch.wanted_BT), dtype=torch.bool)

    def result(self, detailed: bool) -> dict[str, Any]:
        result: dict[str, Any] = {"loss": float(self.loss_T.sum() / self.count_T.sum())}
        if detailed:
            scored_T = self.count_T > 0
            count_S = self.count_T[scored_T]
            mean_S = self.loss_T[scored_T] / count_S
            variance_S = (self.square_T[scored_T] / count_S - mean_S.square()).clamp_min(0)
            result |= {
                "sequences": self.sequences,
                "position": (scored_T.nonzero()[:, 0] + 1).tolist(),
                "loss_by_position": mean_S.tolist(),
                "error_by_position": (variance_S / count_S).sqrt().tolist(),
            }
        return result


class Totals:
    """Sums over batches, kept on the device."""

    def __init__(self, length: int, device: str):
        zeros = torch.zeros(length, dtype=torch.float64, device=device)
        self.loss_T, self.right_T, self.count_T, self.margin_T = (zeros.clone() for _ in range(4))
        self.sequences_right, self.sequences = 0, 0
        self.margins: list[Tensor] = []

    def add(self, task: Task, batch: Batch, logits_NV: Tensor, detailed: bool) -> Tensor:
        """Add a batch; returns which of its sequences were right, (B,)."""
        right_N = logits_NV.argmax(-1) == batch.targets_N
        right_BT = torch.ones_like(batch.wanted_BT)
        right_BT[batch.wanted_BT] = right_N
        whole_B = right_BT.all(1)
        self.sequences_right += int(whole_B.sum())
        self.sequences += len(right_BT)
        ends_N = batch.wanted_BT.nonzero()[:, 1]
        self.loss_T.index_add_(0, ends_N, task.losses(logits_NV, batch.targets_N).double())
        self.right_T.index_add_(0, ends_N, right_N.double())
        self.count_T.index_add_(0, ends_N, torch.ones_like(ends_N, dtype=torch.float64))
        if detailed:
            top_N2 = logits_NV.topk(2, dim=-1).values.double()
            margins_N = top_N2[:, 0] - top_N2[:, 1]
            self.margin_T.index_add_(0, ends_N, margins_N)
            self.margins.append(margins_N)
        return whole_B

    def result(self, detailed: bool) -> dict[str, Any]:
        count = self.count_T.sum()
        result = {
            "loss": float(self.loss_T.sum() / count),
            "token_accuracy": float(self.right_T.sum() / count),
            "sequence_accuracy": self.sequences_right / self.sequences,
        }
        if detailed:
            scored_T = self.count_T > 0
            count_S = self.count_T[scored_T]
            margins = torch.cat(self.margins)
            levels = torch.tensor([0.05, 0.5, 0.95], dtype=margins.dtype, device=margins.device)
            picked = margins[:: -(-len(margins) // 1_000_000)]  # torch.quantile refuses more than 16 million
            low, mid, high = torch.quantile(picked, levels).tolist()
            result |= {
                "sequences": self.sequences,
                "position": (scored_T.nonzero()[:, 0] + 1).tolist(),
                "token_accuracy_by_position": (self.right_T[scored_T] / count_S).tolist(),
                "loss_by_position": (self.loss_T[scored_T] / count_S).tolist(),
                "margin_by_position": (self.margin_T[scored_T] / count_S).tolist(),
                "margin": {"mean": float(margins.mean()), "q05": low, "q50": mid, "q95": high},
            }
        return result


def constant_baseline(task: Task, sequences: int, *seed_parts: int | str, device: str = "cpu") -> dict[str, Any]:
    """What the best guess scores that does not look at the input: the mode, or the task's ``constants_T``, if real."""
    if not task.continuous:
        return mode_baseline(task, sequences, *seed_parts, device=device)
    totals = totals_for(task, device)
    for batch in batches(task, sequences, device, "baseline", *seed_parts):
        constants_T = task.constants_T().to(batch.targets_BT)
        totals.add(task, batch, constants_T[batch.wanted_BT.nonzero()[:, 1]][:, None], detailed=True)
    return totals.result(detailed=True)


def mode_baseline(task: Task, sequences: int, *seed_parts: int | str, device: str = "cpu") -> dict[str, Any]:
    """What the best constant per position scores: its most frequent target, and the loss of its frequencies.

    Frequencies come from one half of ``2 * sequences`` fresh sequences, the scores from the other; of a fixed set both
    come from the set, or from so many of it. Where the task is ``stationary`` they are those of all positions together:
    a large vocabulary has too few targets at each.
    """
    rows = 1 if task.stationary else task.length
    counts_TV = torch.zeros(rows, task.vocab_size, device=device)
    for batch in batches(task, sequences, device, "baseline-fit", *seed_parts):
        ends_N = batch.wanted_BT.nonzero()[:, 1] % rows
        index = ends_N * task.vocab_size + batch.targets_N
        counts_TV.view(-1).index_add_(0, index, torch.ones_like(index, dtype=counts_TV.dtype))
    logits_TV = ((counts_TV + 0.5) / (counts_TV + 0.5).sum(1, keepdim=True)).log()
    totals = Totals(task.length, device)
    for batch in batches(task, sequences, device, "baseline", *seed_parts):
        totals.add(task, batch, logits_TV[batch.wanted_BT.nonzero()[:, 1] % rows], detailed=True)
    result = totals.result(detailed=True)
    return {key: result[key] for key in result if not key.startswith("margin")}
