"""Count3 with seeds held out in all their orders: is it a function that was learned, or a table of sets?

The function asks for the elements of a prefix, for the last one and for their number, not for the order of the others.
So the split by sequences of ``count3`` and ``count3_unseen`` keeps next to nothing apart: of the predictions scored
there nearly all are of a prefix that is, up to that order, a prefix of some training sequence (``seen``). Here a seed's
multiset goes to one side with all its orders; what is seen then is what different seeds have grown to alike.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.plans import PlannedRun, planned_study
from entp_lib.records.store import Record
from entp_lib.tasks import Counting, build_task
from entp_lib.tasks.counting import next_symbols
from entp_lib.validation import require
from entp_papers.entp.pilot_runs import COUNT3_LONG_ALL

CHUNK = 65_536  # training sequences at a time
SCORED = 4096  # sequences, as many as a run's final scores are of


def seen(task: Counting) -> pd.Series:
    """By prefix length: the share of held-out sequences whose prefix is one of training up to the order that counts.

    Exact, over all seeds (``symbols`` ** ``seed_length`` of them, so for reduced tasks alone).
    """
    seeds_BS = torch.cartesian_prod(*[torch.arange(task.symbols)] * task.seed_length).reshape(-1, task.seed_length)
    held_B = task.is_held_out(seeds_BS)
    x_BT, shares = seeds_BS, {}
    for n in range(task.seed_length, task.length + 1):
        if n >= task.first_scored:
            states_B = up_to_order(x_BT, task.vocab_size)
            known = torch.isin(states_B[held_B], states_B[~held_B].unique())
            shares[n] = known.float().mean().item()
        x_BT = torch.cat([x_BT, next_symbols(x_BT, task.order)[:, None]], dim=1)
    return pd.Series(shares)


def seen_by_split(experiments: Sequence[Sequence[Record]]) -> pd.DataFrame:
    """``seen`` by prefix length (rows), for the task of each experiment's records by both splits (columns)."""
    found = {}
    for records in experiments:
        task = build_task(records[0].config.task, records[0].config.task_params)
        for by in ("sequence", "multiset"):
            column = f"seeds of {task.seed_length}", {"sequence": "sequences", "multiset": "all orders"}[by]
            found[column] = seen(replace(task, held_out_by=by))
    return pd.DataFrame(found).sort_index()


def up_to_order(x_BT: Tensor, symbols: int) -> Tensor:
    """A number for each row of whole numbers, (B,), alike where the last elements and the multisets are.

    ConfigError where rows are too long or symbols too many for 64 bits.
    """
    n = x_BT.shape[1]
    require((n + 1) ** symbols * symbols < 2**63, f"{n} elements of {symbols} symbols: too many to be numbered")
    weights_V = (n + 1) ** torch.arange(symbols)
    return weights_V[x_BT].sum(1) * symbols + x_BT[:, -1]


def repeats_study(task: dict[str, Any], trained: int, scored: int) -> tuple[dict[str, Any], dict[str, list]]:
    """``seen`` for a task with too many seeds to be enumerated: by drawing ``trained`` sequences and ``scored`` more.

    ``task``: parameters of ``Counting`` without a split. What the order leaves alone is compared by 64-bit
    fingerprints: of all pairs of prefixes looked at, fewer than one in a million runs would take two for one.
    Metrics: the share of scored prefixes that are seen, over all lengths. Curves: ``n`` and ``seen``, the share there.
    """
    counting = Counting(**task)
    generator = torch.Generator().manual_seed(0)
    shape = (2, counting.vocab_size)
    weights_2V = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
    lengths = range(counting.first_scored, counting.length + 1)

    def fingerprints(size: int) -> Tensor:
        x_BT = counting.sequences(generator, size)
        return torch.stack([weights_2V[0][x_BT[:, :n]].sum(1) + weights_2V[1][x_BT[:, n - 1]] for n in lengths])

    scored_NB = fingerprints(scored)
    seen_NB = torch.zeros_like(scored_NB, dtype=torch.bool)
    for drawn in range(0, trained, CHUNK):
        trained_NB = fingerprints(min(CHUNK, trained - drawn))
        for row, others, seen_B in zip(scored_NB, trained_NB, seen_NB, strict=True):
            seen_B |= torch.isin(row, others)
    return {"seen": seen_NB.double().mean().item()}, {"n": list(lengths), "seen": seen_NB.double().mean(1).tolist()}


def plan_repeats(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """A simulation for each schedule at length 24, of as many training sequences as a run of it draws."""
    configs = {run.config.train.steps: run.config for run in COUNT3_LONG_ALL.plan(tier, 1)}
    runs = []
    for steps, config in sorted(configs.items()):
        params = {"task": config.task_params, "trained": steps * config.train.batch_size, "scored": SCORED}
        runs.append(planned_study(StudyConfig("count3_repeats", tier, "counting_repeats", params)))
    return runs


COUNT3_REPEATS = Experiment(
    "count3_repeats",
    1,
    "Count3 at length 24: how much of what is scored has come up in training",
    "03_count3",
    plan_repeats,
    no_claims,
    changeable=False,
    seeded=False,
)
