"""Zero-shot pronoun resolution (§7.3, Table 4): TinyWinoGrande, and this project's own items.

    Nora has two umbrellas and Paul has none, so when it rained _ lent one to a friend.
    Nora or Paul?

Each option is put in place of the blank, and the model chooses the one after which the rest of the
sentence is more likely. The rest is the same for both, so neither length nor frequency of an option
counts. The items of this project come in pairs with the same start and two endings, one for each
option.

Letters: B rows (two for each item), T tokens, N scored positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from entp_lab.statistics import proportion_interval
from entp_lab.studies import Study
from entp_lab.weights import trained_model
from entp_lib.data.tokenizers import Tokenizer
from entp_lib.tasks.text import Text
from entp_lib.validation import from_dict, one_of, require
from entp_papers.entp.downstream.clutrr import from_hub, tokenizer_of

HUB = "tinyBenchmarks/tinyWinogrande"
HUB_CONFIG = "winogrande_xl"
HUB_REVISION = "3224807642dea4a1da4fcd89c92450faf9672dcb"  # its 100 items once changed
ITEMS_AT_ONCE = 16
# Wrong answers among 100 items, for two seeds. Table 4 gives 43.5 ± 0.5 and 38.0 ± 1.0 %, with
# population standard deviations.
PUBLISHED_WRONG = {"decoder": (43, 44), "entp": (37, 39)}
PUBLISHED_ITEMS = 100

# Sentences about a and b, grouped by what decides them; each has an ending for a and one for b.
SENTENCES = pd.read_csv(Path(__file__).parent / "pronouns.csv")
PAIRS = {
    "stated": (
        ("Nora", "Paul"),
        ("Henry", "Lydia"),
        ("Olga", "Martha"),
        ("Oscar", "Felix"),
        ("Clara", "Hugo"),
    ),
    "agreement": (
        ("the farmer", "the horses"),
        ("the postman", "the dogs"),
        ("the captain", "the sailors"),
        ("the giant", "the children"),
    ),
    "reflexive": (("the king", "the queen"), ("the boy", "the girl"), ("the actor", "the actress")),
}


@dataclass(frozen=True)
class Item:
    """A sentence with a blank, two options, and the number of the right one."""

    sentence: str
    option1: str
    option2: str
    answer: int

    def __post_init__(self):
        _, *rest = self.sentence.split("_")
        require(
            len(rest) == 1 and bool(rest[0].strip()),
            f"sentence {self.sentence!r}: must have one blank, _, and end with what decides",
        )


def embedded() -> list[Item]:
    """Return items whose answer the sentence states, in words or by its grammar.

    Each option is right in half of them.
    """
    found = []
    for row in SENTENCES.itertuples():
        for a, b in PAIRS[row.group]:
            start = row.sentence.format(a=a, b=b)
            start = start[0].upper() + start[1:]
            found.append(Item(f"{start} {row.if_a}", a, b, 1))
            found.append(Item(f"{start} {row.if_b}", a, b, 2))
    return found


def items(source: str) -> list[Item]:
    """Return the items of a source: ``embedded``, or ``hub`` for TinyWinoGrande's 100.

    ConfigError for ``hub`` without the library or a network.
    """
    one_of("source", source, ("embedded", "hub"))
    if source == "embedded":
        return embedded()
    rows = from_hub(HUB, HUB_CONFIG, HUB_REVISION, "validation")
    return [
        Item(row["sentence"], row["option1"], row["option2"], int(row["answer"])) for row in rows
    ]


@torch.no_grad()
def scores(model: nn.Module, some_items: Sequence[Item], tokenizer: Tokenizer) -> pd.DataFrame:
    """Return a row for each item: both options' log-likelihoods, ``chosen``, ``right`` and ``cut``.

    An option's log-likelihood (nats) is that of the sentence after the blank. The start and the
    rest of a sentence are tokenised separately, so that the rest has the same tokens after both
    options. If an item is too long for the model (``cut``), each token is predicted from as many
    preceding tokens as the model takes.
    """
    model.eval()
    found = []
    for first in range(0, len(some_items), ITEMS_AT_ONCE):
        part = some_items[first : first + ITEMS_AT_ONCE]
        options = [(item, option) for item in part for option in (item.option1, item.option2)]
        rows = [windows(item, option, tokenizer, model.cfg.max_length) for item, option in options]
        values = likelihoods(model, [row for parts in rows for row in parts]).split(
            [len(x) for x in rows]
        )
        sums = torch.stack([x.sum() for x in values]).tolist()
        cut = [len(x) > 1 for x in rows]
        found += zip(sums[::2], sums[1::2], map(max, cut[::2], cut[1::2]), strict=True)
    table = pd.DataFrame(found, columns=["option1", "option2", "cut"])
    table["answer"] = [item.answer for item in some_items]
    table["chosen"] = 1 + (table["option2"] > table["option1"])
    table["right"] = table["chosen"] == table["answer"]
    return table


def windows(
    item: Item, option: str, tokenizer: Tokenizer, longest: int
) -> list[tuple[list[int], int]]:
    """Return rows of tokens, each with the number of its first tokens that are given.

    There is one row, or one per scored token if the sentence is over ``longest``.
    """
    before, _, after = item.sentence.partition("_")
    start, rest = (tokenizer.encode([text], False).tolist() for text in (before + option, after))
    ids = start + rest
    if len(ids) - 1 <= longest:
        return [(ids, len(start))]
    return [
        (ids[max(0, end - longest) : end + 1], min(end, longest))
        for end in range(len(start), len(ids))
    ]


def likelihoods(model: nn.Module, rows: Sequence[tuple[list[int], int]]) -> Tensor:
    """Return the log-likelihood of each row's tokens after the given ones, (B,)."""
    ids_BT = pad_sequence([torch.tensor(ids) for ids, _ in rows], batch_first=True)
    lengths_B, starts_B = torch.tensor([(len(ids), start) for ids, start in rows]).T
    places_T = torch.arange(ids_BT.shape[1] - 1)
    scored_BT = (places_T >= starts_B[:, None] - 1) & (places_T < lengths_B[:, None] - 1)
    logits_NV = model(ids_BT[:, :-1], scored_BT, starts_B)
    losses_N = F.cross_entropy(logits_NV.float(), ids_BT[:, 1:][scored_BT], reduction="none")
    rows_N = scored_BT.nonzero()[:, 0]
    return -torch.zeros(len(rows), dtype=torch.float64).index_add_(0, rows_N, losses_N.double())


def pronouns_study(weights: Path, source: str) -> Study:
    """Test a trained language model on the items of ``source``.

    Metrics have the error and its Wilson interval, curves all scores.
    """
    config, model = trained_model(weights)
    require(
        config.task == "text",
        f"weights: a run on task {config.task!r} is no language model; give one on 'text'",
    )
    table = scores(model, items(source), tokenizer_of(from_dict(Text, config.task_params)))
    wrong = int((~table["right"]).sum())
    low, high = proportion_interval(wrong, len(table))
    metrics = {
        "error": wrong / len(table),
        "low": low,
        "high": high,
        "wrong": wrong,
        "items": len(table),
        "cut": int(table["cut"].sum()),
        "architecture": config.model.architecture,
        "seed": config.model_seed,
    }
    return metrics, table.to_dict("list")
