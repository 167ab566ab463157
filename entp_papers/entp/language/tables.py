"""Tables of language modelling: losses by arm, schedule and prefix length; and predictions from
counts of the text.

Unigrams, bigrams and trigrams of the training part are scored like a model:

    P(c | context) = (n(context c) + δ) / (n(context) + δ V)

with δ chosen on the last tenth of the training part, from counts of the rest; for the scores all of
it is counted. A prefix that is shorter than a context is scored with the next shorter context.

Letters: S tokens of a part, V vocabulary, B batch, T tokens, N scored positions.
"""

from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor, nn

from entp_lab.configs import Json, RunConfig
from entp_lab.experiment import TWINS
from entp_lab.frames import by_position, select
from entp_lab.statistics import reaches
from entp_lab.store import Record, Records
from entp_lab.studies import Study
from entp_lib.evaluation import evaluate
from entp_lib.tasks import Text
from entp_lib.validation import require

ORDERS = {"unigram": 1, "bigram": 2, "trigram": 3}
DELTAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
LARGEST = 256  # symbols; counts of trigrams are a table of V³

TABLE_8 = "Table 8"
SWAPPED = "rates swapped"
COUNTS = "counts"  # unigram, bigram and trigram of the training part, no model
LOWEST = "lowest validation loss"
LAST = "last validation loss"
# By claim of Table 3: a column of ``minima`` and the schedule.
CLAIMS = {
    "T3-loss": (LOWEST, SWAPPED),
    "T3-train": ("lowest training loss", SWAPPED),
    "T3-last": (LAST, TABLE_8),
}
# Shorter prefixes leave the models little to differ in; at length 1 they are the same function.
FROM_POSITION = 8


def trained(records: Records) -> list[Record]:
    """Return the records of models, without those of counts."""
    return [r for r in records if isinstance(r.config, RunConfig)]


def trained_positions(records: Records) -> str:
    """Return a remark on the positions that decoder and ENTP learn from; empty if they are all."""
    tasks = {r.config.model.architecture: Text(**r.config.task_params) for r in records}
    drawn = {name: task.prefixes or task.context for name, task in tasks.items()}
    if all(drawn[name] == task.context for name, task in tasks.items()):
        return ""
    entp = f"{drawn['entp']} of {tasks['entp'].context} positions"
    if drawn["decoder"] == drawn["entp"]:
        return f"both trained on {entp}"
    return f"ENTP trained on {entp}, the decoder on {drawn['decoder']}"


def counted_losses(records: Records) -> pd.DataFrame:
    """Return a row per seed: the bigram's loss on all prefixes, and on longer ones.

    Longer prefixes have ``FROM_POSITION`` tokens or more. All lengths have the same weight.
    """
    rows = []
    for bigram in (r.metrics["bigram"] for r in select(records, arm=COUNTS)):
        losses = pd.Series(bigram["loss_by_position"], bigram["position"])
        late = losses[losses.index >= FROM_POSITION].mean()
        rows.append({"bigram": bigram["loss"], "bigram, longer prefixes": late})
    return pd.DataFrame(rows)


def minima(records: Records) -> pd.DataFrame:
    """Return a row per run: lowest losses in training and validation, and the last validation loss.

    Losses are in nats per token. The lowest of many noisy losses is biased downwards. The last
    validation loss is taken over more windows, which are the same for every model.
    """
    return pd.DataFrame(
        {
            **r.labels,
            "lowest training loss": min(r.curves["train_loss"]),
            LOWEST: min(r.curves["loss"]),
            LAST: r.metrics["loss"],
            "unigram loss": r.metrics["baseline"]["loss"],
        }
        for r in records
    )


def prefix_losses(records: Records) -> pd.DataFrame:
    """Return each run's final validation loss, averaged over lengths from ``FROM_POSITION`` on."""
    found = by_position(select(records, schedule=TABLE_8), "loss")
    late = found[found["position"] >= FROM_POSITION]
    return late.groupby(["arm", "seed"], sort=False, as_index=False)["loss"].mean()


def above_bigrams(losses: pd.DataFrame, loss: str, counts: pd.DataFrame, bigram: str) -> str:
    """Return a reason for exclusion: the models whose ``loss`` is above the bigram's.

    ``loss`` and ``bigram`` are columns of the two tables. Empty if there are none, or no counts.
    """
    if counts.empty:
        return ""
    means = losses[losses["arm"].isin(TWINS)].groupby("arm")[loss].mean()
    above = means.index[reaches(means, counts[bigram].mean())]
    return f"above the bigram's loss: {', '.join(above)}" if len(above) else ""


# --- Counts ------------------------------------------------------------------------------------


def counted(tokens_S: np.ndarray, order: int, vocabulary: int) -> np.ndarray:
    """Count each sequence of ``order`` tokens, (V,) * order."""
    shape = (vocabulary,) * order
    index = np.ravel_multi_index(sliding_window_view(tokens_S, order).T, shape)
    return np.bincount(index, minlength=vocabulary**order).reshape(shape)


def log_probabilities(counts: np.ndarray, delta: float) -> np.ndarray:
    """Return ln P(last token | those before), in the shape of ``counts``, fp32."""
    total = counts.sum(-1, keepdims=True) + delta * counts.shape[-1]
    return np.log((counts + delta) / total).astype(np.float32)


def best_delta(tokens_S: np.ndarray, order: int, vocabulary: int) -> float:
    """Return the δ of ``DELTAS`` with the lowest loss on the last tenth of a training part, counted
    on the rest.
    """
    cut = len(tokens_S) * 9 // 10
    counts = counted(tokens_S[:cut], order, vocabulary)
    held_out = counted(tokens_S[cut:], order, vocabulary)
    seen = held_out > 0
    return max(DELTAS, key=lambda d: (held_out[seen] * log_probabilities(counts, d)[seen]).sum())


class CountModel(nn.Module):
    """Predictions from counts, called like a model: (B, T) tokens to (N, V) log-probabilities."""

    def __init__(self, tables: list[Tensor]):
        super().__init__()
        self.tables = tables  # by order, from the unigram's (V,) up

    def forward(
        self, inputs_BT: Tensor, scored_BT: Tensor, prompt_lengths_B: Tensor | None = None
    ) -> Tensor:
        rows_N, ends_N = scored_BT.nonzero(as_tuple=True)
        longest = len(self.tables) - 1
        found_NV = torch.empty(len(rows_N), len(self.tables[0]))
        # A prefix is scored with the longest context that it has tokens for.
        for context in range(min(longest, 1), longest + 1):
            here_N = ends_N + 1 >= context if context == longest else ends_N + 1 == context
            table = self.tables[context]
            at = (rows_N[here_N], ends_N[here_N])
            places = tuple(inputs_BT[at[0], at[1] - back] for back in reversed(range(context)))
            found_NV[here_N] = table[places] if context else table.expand(int(here_N.sum()), -1)
        return found_NV


@lru_cache(maxsize=1)
def tables_of(text: Text) -> tuple[dict[str, float], list[Tensor]]:
    """Return δ by name and log-probabilities by order, from a text's training part.

    They are cached for the next seed.
    """
    tokens_S = np.asarray(text.tokens().parts["train"])
    deltas = {}
    tables = []
    for name, order in ORDERS.items():
        deltas[name] = best_delta(tokens_S, order, text.vocab_size)
        counts = counted(tokens_S, order, text.vocab_size)
        tables.append(torch.from_numpy(log_probabilities(counts, deltas[name])))
    return deltas, tables


def counts_study(task: Json, sequences: int, seed: int) -> Study:
    """Score unigram, bigram and trigram on the windows of a final evaluation with ``seed``.

    ``task``: parameters of ``Text``; ``sequences``: windows of the final evaluation. Metrics:
    ``loss`` and ``loss_by_position`` in nats, and δ, by name. ConfigError for more than 256
    symbols, whose trigrams would not fit into memory.
    """
    text = Text(**{**task, "prefixes": 0})
    require(
        text.vocab_size <= LARGEST,
        f"counts need at most {LARGEST} symbols; tokenizer {text.tokenizer!r} has more",
    )
    deltas, tables = tables_of(text)
    metrics = {}
    for name, order in ORDERS.items():
        scores = evaluate(CountModel(tables[:order]), text, sequences, seed, "final", detailed=True)
        metrics[name] = {
            k: scores[k] for k in ("loss", "loss_by_position", "position", "token_accuracy")
        }
        metrics[name]["delta"] = deltas[name]
    return metrics, {}
