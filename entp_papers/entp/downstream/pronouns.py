"""Pronoun resolution without training for it (§7.3, Table 4): TinyWinoGrande, and items of this
project's own.

    Nora has two umbrellas and Paul has none, so when it rained _ lent one to a friend.     Nora or
    Paul?

Each option is put in place of the blank, and the model chooses the one after which it finds the
rest of the sentence likelier: the rest is the same for both, so neither length nor frequency of an
option counts. The items of this project come in pairs with one start and two endings, one for
either option.

Letters: B rows (two for each item), T tokens, N scored positions, V vocabulary.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from entp_lab.statistics import mcnemar, proportion_interval
from entp_lab.weights import trained_model
from entp_lib.data.sources import library
from entp_lib.data.tokenizers import Tokenizer
from entp_lib.tasks.text import Text
from entp_lib.validation import ConfigError, from_dict, one_of, require
from entp_papers.entp.downstream.clutrr import tokenizer_of

HUB, HUB_CONFIG = "tinyBenchmarks/tinyWinogrande", "winogrande_xl"
HUB_REVISION = "3224807642dea4a1da4fcd89c92450faf9672dcb"  # its 100 items once changed
ITEMS_AT_ONCE = 16
# Wrong answers of two seeds in 100, from Table 4: 43.5 ± 0.5 and 38.0 ± 1.0 %, population standard
# deviations.
PUBLISHED_WRONG, PUBLISHED_ITEMS = {"decoder": (43, 44), "entp": (37, 39)}, 100

HIGH_UP = "needed a chair to reach the top shelf."
# A sentence about a and b, how it ends if the blank is a, and how if it is b.
STATED = (
    (
        "{a} has two umbrellas and {b} has none, so when it rained _",
        "lent one to a friend.",
        "asked for one.",
    ),
    ("{a} is a much faster runner than {b}, so in the race _", "came first.", "came last."),
    ("{a} sold a boat to {b}, so now _", "has the money.", "has the boat."),
    ("{a} knows the way and {b} is new in town, so _", "led the walk.", "followed behind."),
    ("{a} slept well but {b} was up all night, so at noon _", "was wide awake.", "was very tired."),
    ("{a} gave {b} a violin lesson, in which _", "was the teacher.", "was the pupil."),
    ("{a} is tall and {b} is short, so _", "reached the top shelf with ease.", HIGH_UP),
    ("{a} owed ten coins to {b}, and on Friday _", "paid the debt.", "got the coins back."),
    (
        "{a} hid and {b} had to count to twenty, after which _",
        "kept still.",
        "went to look everywhere.",
    ),
    ("{a} broke a cup that belonged to {b}, so _", "said sorry.", "was angry."),
)
PEOPLE = (
    ("Nora", "Paul"),
    ("Henry", "Lydia"),
    ("Olga", "Martha"),
    ("Oscar", "Felix"),
    ("Clara", "Hugo"),
)
AGREEMENT = (
    ("{a} met {b}, and by then _", "was hungry.", "were hungry."),
    ("{b} stood next to {a}, because _", "was about to leave.", "were about to leave."),
    ("{a} could not see {b} until _", "was at the gate.", "were at the gate."),
)
ONE = ("the farmer", "the postman", "the captain", "the giant")
MANY = ("the horses", "the dogs", "the sailors", "the children")
REFLEXIVE = (
    ("{a} worked with {b} until _", "hurt himself.", "hurt herself."),
    ("{b} danced with {a}, and _", "enjoyed himself.", "enjoyed herself."),
)
MAN_AND_WOMAN = (("the king", "the queen"), ("the boy", "the girl"), ("the actor", "the actress"))
GROUPS = (
    (STATED, PEOPLE),
    (AGREEMENT, tuple(zip(ONE, MANY, strict=True))),
    (REFLEXIVE, MAN_AND_WOMAN),
)


@dataclass(frozen=True)
class Item:
    """A sentence with a blank, two options, and the number of the right one."""

    sentence: str
    option1: str
    option2: str
    answer: int

    def __post_init__(self):
        right = self.sentence.count("_") == 1 and self.sentence.partition("_")[2].strip()
        require(
            bool(right),
            f"sentence {self.sentence!r}: must have one blank, written _, and end with what decides",
        )


def embedded() -> list[Item]:
    """Items whose answer the sentence states, in words or by its grammar; as many for one option as
    for the other.
    """
    found = []
    for templates, pairs in GROUPS:
        for (template, for_a, for_b), (a, b) in itertools.product(templates, pairs):
            start = template.format(a=a, b=b)
            start = start[0].upper() + start[1:]
            found += [Item(f"{start} {for_a}", a, b, 1), Item(f"{start} {for_b}", a, b, 2)]
    return found


def items(source: str) -> list[Item]:
    """Return the items of ``embedded``, or of ``hub``: TinyWinoGrande's 100. ConfigError without
    the library or a network.
    """
    one_of("source", source, ("embedded", "hub"))
    if source == "embedded":
        return embedded()
    what = "source = 'hub' (source = 'embedded' needs neither library nor network)"
    datasets = library("datasets", what)
    try:
        rows = datasets.load_dataset(HUB, HUB_CONFIG, revision=HUB_REVISION, split="validation")
    except (OSError, ValueError, RuntimeError) as error:
        why = str(error).strip().split("\n")[0]
        raise ConfigError(f"{what}: {HUB} cannot be loaded ({why})") from error
    return [
        Item(row["sentence"], row["option1"], row["option2"], int(row["answer"])) for row in rows
    ]


@torch.no_grad()
def scores(model: nn.Module, some_items: Sequence[Item], tokenizer: Tokenizer) -> pd.DataFrame:
    """Return a row for each item: log-likelihood (nats) of what follows the blank by option,
    ``chosen``, ``right``, ``cut``.

    The start and the rest of a sentence are tokenised apart, so that the rest has the same tokens
    after both options. Tokens of an item too long for the model (``cut``) are predicted from as
    many before them as the model takes.
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
    """Rows of tokens and how many of them are given: one, or one a scored token where the whole is
    over ``longest``.
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
    """Log-likelihood of each row's tokens from its number on, given those before, (B,)."""
    ids_BT = pad_sequence([torch.tensor(ids) for ids, _ in rows], batch_first=True)
    lengths_B, starts_B = torch.tensor([(len(ids), start) for ids, start in rows]).T
    places_T = torch.arange(ids_BT.shape[1] - 1)
    scored_BT = (places_T >= starts_B[:, None] - 1) & (places_T < lengths_B[:, None] - 1)
    logits_NV = model(ids_BT[:, :-1], scored_BT, starts_B)
    losses_N = F.cross_entropy(logits_NV.float(), ids_BT[:, 1:][scored_BT], reduction="none")
    rows_N = scored_BT.nonzero()[:, 0]
    return -torch.zeros(len(rows), dtype=torch.float64).index_add_(0, rows_N, losses_N.double())


def pronouns_study(weights: Path, source: str) -> tuple[dict[str, Any], dict[str, list]]:
    """Return a trained language model on the items of ``source``: error with its Wilson interval,
    and all scores.
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
    }
    metrics |= {
        "cut": int(table["cut"].sum()),
        "architecture": config.model.architecture,
        "seed": config.model_seed,
    }
    return metrics, table.to_dict("list")


def compatible_tests(wrong_first: int, wrong_second: int, total: int) -> pd.DataFrame:
    """McNemar's p-value for every way in which two numbers of wrong answers to the same items may
    overlap.

    ``first_only`` and ``second_only`` count the items that only one of the two has wrong.
    """
    both = range(max(0, wrong_first + wrong_second - total), min(wrong_first, wrong_second) + 1)
    rows = [(wrong_first - shared, wrong_second - shared) for shared in reversed(both)]
    return pd.DataFrame(
        [(*row, mcnemar(*row)) for row in rows], columns=["first_only", "second_only", "p_value"]
    )
