"""Abstract templates and what follows from them (§2.3): the task, and its exact Bayes floor by position.

A template such as ABCABCAB is a sequence of variables in order of first appearance, all of them present, the last one
not new. One sequence holds several instantiations of one template, each with digits of its own for the variables, and
then, for each of them, its digits in order of first appearance; there are no separators:

    12312312 45645645 78978978 15915915 123 456 789 159

The first token has nothing before it and is not predicted. Of 43 predictions of the paper's 44 tokens most are certain
once the template is known: the entropy of the rest, 0.686 nats a prediction, is the 0.68 at which its losses end.

Letters: M templates, B batch, T tokens.
"""

import functools
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from entp_lib.experiments.studies import at_least
from entp_lib.tasks.base import Batch, Task, generator_for
from entp_lib.validation import check_types, require


@functools.lru_cache(maxsize=16)
def all_templates(length: int, variables: int) -> tuple[tuple[int, ...], ...]:
    """Every template in ascending order; of length 8 over 3 variables there are S(8, 3) - S(7, 2) = 903."""
    found = [(0,)]
    for _ in range(length - 1):
        found = [(*t, v) for t in found for v in range(min(max(t) + 2, variables))]
    return tuple(t for t in found if max(t) == variables - 1 and t[-1] in t[:-1])


@dataclass(frozen=True)
class Templates(Task):
    """Sequences of ``instances`` instantiations of a template and their variables; evaluation has templates of its own.

    ``held_out``: share of the templates that training never sees. ``scored``: ``all`` positions; ``sampled`` trains on
    ``sample`` positions drawn for each sequence (ENTP runs a prefix for each) and is evaluated on all; ``last`` scores
    the last token of the last instantiation, ``matching`` the variables at the end. ``seen`` evaluates on the
    templates of training.
    """

    template_length: int = 8
    variables: int = 3
    instances: int = 4
    digits: int = 9
    held_out: float = 0.2
    scored: Literal["all", "sampled", "last", "matching"] = "all"
    sample: int = 8
    seen: bool = False

    def __post_init__(self):
        check_types(self)
        at_least(1, variables=self.variables)
        require(
            self.template_length > self.variables,
            f"template_length = {self.template_length}: must exceed variables = {self.variables}, "
            "as the last symbol must have appeared before",
        )
        require(self.template_length <= 12, f"template_length = {self.template_length}: must be at most 12")
        require(self.instances >= 2, f"instances = {self.instances}: must be at least 2, one to learn from")
        require(
            self.digits >= self.variables,
            f"digits = {self.digits}: must be at least variables = {self.variables}, each of which has its own",
        )
        require(0 <= self.held_out < 1, f"held_out = {self.held_out}: must be a share from 0, below 1")
        count = len(all_templates(self.template_length, self.variables))
        apart = round(self.held_out * count)
        require(
            self.held_out == 0 or 0 < apart < count,
            f"held_out = {self.held_out}: of {count} templates, one side would have none",
        )
        require(1 <= self.sample <= self.length, f"sample = {self.sample}: must be from 1 to {self.length} positions")

    @property
    def vocab_size(self) -> int:
        return self.digits

    @property
    def length(self) -> int:
        return self.instances * (self.template_length + self.variables) - 1

    @property
    def last_prefix(self) -> int:
        """Length of the prefix after which the last token of the last instantiation comes."""
        return self.instances * self.template_length - 1

    def sides(self) -> tuple[Tensor, Tensor]:
        """Templates (M, length) to train on and to evaluate on: a fixed choice, the same where nothing is held out."""
        found = torch.tensor(all_templates(self.template_length, self.variables))
        if self.held_out == 0:
            return found, found
        order = torch.randperm(len(found), generator=generator_for("cpu", "templates"))
        apart = round(self.held_out * len(found))
        return found[order[apart:]], found[order[:apart]]

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        device = generator.device
        options = dict(generator=generator, device=device)
        templates = self.sides()[int(evaluating and not self.seen)].to(device)
        chosen_Bl = templates[torch.randint(len(templates), (size,), **options)]
        # the first of a random order of the digits: different ones for each instantiation's variables
        order = torch.rand(size, self.instances, self.digits, **options).argsort(-1)[..., : self.variables]
        index = chosen_Bl[:, None].expand(-1, self.instances, -1)
        text_BT = torch.cat([order.gather(2, index).flatten(1), order.flatten(1)], 1)
        if self.scored == "sampled" and not evaluating:
            scored_BT = torch.rand(size, self.length, **options).argsort(-1).argsort(-1) < self.sample
        else:
            where_T, last = torch.arange(self.length, device=device), self.last_prefix
            scored = {"last": where_T == last - 1, "matching": where_T >= last}.get(self.scored, where_T >= 0)
            scored_BT = scored.expand(size, -1).clone()
        return Batch(text_BT[:, :-1], text_BT[:, 1:], scored_BT, torch.ones(size, dtype=torch.long, device=device))

    def variant(self, **changes) -> "Templates":
        return Templates(**{**vars(self), **changes})


def floor_by_position(task: Templates, templates: Tensor) -> list[float]:
    """Expected entropy in nats of each prediction, for one who knows the templates and all else about the task.

    Within the first instantiation the next symbol is that of a template that fits so far; a new variable's digit is
    any that is not used yet. After the first, the template is known. Returns ``task.length`` numbers.
    """
    rows = [tuple(t) for t in templates.tolist()]
    first, later = [], []
    for j in range(task.template_length):
        total, certain = 0.0, 0.0
        prefixes: dict[tuple[int, ...], list[int]] = {}
        for row in rows:
            prefixes.setdefault(row[:j], []).append(row[j])
            used = len(set(row[:j]))
            certain += math.log(task.digits - used) if row[j] == used else 0.0
        for prefix, nexts in prefixes.items():
            used = len(set(prefix))
            for symbol in set(nexts):
                count = nexts.count(symbol)
                ways = task.digits - used if symbol == used else 1
                total -= count * math.log(count / len(nexts) / ways)
        first.append(total / len(rows))
        later.append(certain / len(rows))
    by_position = first + later * (task.instances - 1) + [0.0] * (task.instances * task.variables)
    return by_position[1:]


def bayes_floor(task: Templates, templates: Tensor) -> float:
    """Mean of ``floor_by_position``: [ln M + instances · ln(9 · 8 · 7) - ln 9] / 43 with the paper's numbers."""
    return sum(floor_by_position(task, templates)) / task.length
