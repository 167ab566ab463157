"""Pairless bounds: the best score of a predictor that looks at no pair of elements, on Count3,
Count2 and Match3′.

Count3 counts ordered pairs (i, j). Pairs with i ≠ j come in twos, so the count has the parity of
its diagonal, k = #{i : 2 x_i + x_n = 0 (mod n)}, which looks at one element at a time. A predictor
that knows k, x_n and n, and gives the most frequent answer of each such cell, is right more often
than chance and looks at no pair. A model shows that it finds pairs only beyond that bound.

Match3′ has x_1 in the place of x_n. There one element can decide in a second way, too: s = #{i :
x_i + 2 x_1 = 0}, the pairs with x_1 itself. The bound knows both k and s, because either makes the
label 1 at once, and it stays 1. Count2 has no pairs: its bound knows x_n and n.

Letters: B sequences, n length of a prefix, C cells of what a predictor knows, A answers.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from entp_lab.configs import Json, StudyConfig
from entp_lab.experiment import Experiment, PlannedRuns, planned
from entp_lab.frames import select, summary
from entp_lab.store import Records, Store
from entp_lab.studies import Study
from entp_lib.tasks import Chain, Counting, Task, Triplets, build_task, generator_for
from entp_lib.tasks.chain import traces
from entp_lib.tasks.counting import next_symbols
from entp_lib.validation import require

NAME = "count3_bounds"
CHUNK = 4096  # sequences at a time: they stay in the processor's cache
MOST = 31  # counts above it share one cell
DECIDES = {  # the parameters that determine the distribution of a task
    "counting": ("length", "seed_length", "symbols", "first_scored", "order"),
    "triplets": ("length", "symbols", "modulus", "anchor", "output"),
    "chain": ("longest", "symbols"),
}
ENUMERATED = 2**20  # a task with at most this many sequences is enumerated
SIMULATED = 2**20  # the most sequences drawn for a task that has more, and
TOKENS = 2**25  # the most tokens drawn for it
ON_THE_SPOT = 2**14  # the same as SIMULATED, for a task without a record
BEYOND = 0.05  # token accuracy above the bound that an arm needs to show that it finds pairs


def every(symbols: int, length: int) -> Tensor:
    """Return all sequences of that many symbols, (symbols ** length, length)."""
    return torch.cartesian_prod(*[torch.arange(symbols)] * length).reshape(-1, length)


def prefixes(task: Task, sequences: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield for every scored length n: n, prefixes (B, n) and answers (B,).

    They come from all sequences if ``sequences`` is 0, else from that many drawn ones. There is no
    split for evaluation.
    """
    generator = generator_for("cpu", NAME)

    def symbols(length: int) -> Tensor:
        if not sequences:
            return every(task.symbols, length)
        return torch.randint(task.symbols, (sequences, length), generator=generator)

    if isinstance(task, Chain):
        for n in range(2, task.longest + 1):
            yield n, (x_Bn := symbols(n)), traces(x_Bn)[2]
    elif isinstance(task, Triplets):
        x_BT = symbols(task.length)
        labels_BT = torch.cat([task.labels(part) for part in x_BT.split(CHUNK)])
        for t in range(1, task.length + 1):
            yield t, x_BT[:, :t], labels_BT[:, t - 1]
    else:
        parts = (
            grown(part, task.length + 1, task.order)
            for part in symbols(task.seed_length).split(CHUNK)
        )
        x_BT = torch.cat([part.to(torch.int16) for part in parts])
        for n in range(task.first_scored, task.length + 1):
            yield n, x_BT[:, :n], x_BT[:, n].long()


def grown(x_BT: Tensor, length: int, order: int = 3) -> Tensor:
    """Continue prompts by Count3, or by Count2 (``order`` 2), to (B, length)."""
    while x_BT.shape[1] < length:
        x_BT = torch.cat([x_BT, next_symbols(x_BT, order)[:, None]], 1)
    return x_BT


def diagonal(x_Bn: Tensor, anchor_B: Tensor, modulus: int) -> Tensor:
    """Return k of each prefix, (B,): how many elements make a triple with themselves.

    These are the elements with 2 x_i + anchor = 0 (mod ``modulus``).
    """
    return ((2 * x_Bn.int() + anchor_B.int()[:, None]) % modulus == 0).sum(1)


def known(task: Task, x_Bn: Tensor) -> dict[str, Tensor]:
    """Return what each predictor knows about prefixes of one length, as a cell number, (B,).

    ``mode`` knows the length only; ``last`` also the element in every triple, x_n or Match3′'s x_1;
    ``pairless`` is the bound; ``single`` knows k, s and that element on any task.
    """
    n = x_Bn.shape[1]
    triplets = isinstance(task, Triplets)
    modulus = (task.modulus or n) if triplets else n
    anchor_B = x_Bn[:, 0 if triplets and task.anchor == "first" else -1].long()
    found = {"mode": 0 * anchor_B, "last": anchor_B}
    if isinstance(task, Counting) and task.order == 2:
        return found | {"pairless": anchor_B}
    k_B = diagonal(x_Bn, anchor_B, modulus).clamp(max=MOST)
    s_B = ((x_Bn.int() + 2 * anchor_B.int()[:, None]) % modulus == 0).sum(1).clamp(max=MOST)
    symbols = max(task.symbols, n)
    diagonal_B = k_B * symbols + anchor_B
    both_B = s_B * (MOST + 1) * symbols + diagonal_B
    return found | {"pairless": both_B if triplets else diagonal_B, "single": both_B}


def scores(fitted_CA: np.ndarray, tested_CA: np.ndarray) -> Json:
    """Score on ``tested_CA`` the predictor fitted to the counts ``fitted_CA``.

    It gives the most frequent answer of each cell. For the loss, a cell's counts are mixed with one
    observation of the frequencies over all cells, unless the two tables are the same.
    ``token_accuracy`` is the share right, ``loss`` is in nats.
    """
    overall_A = fitted_CA.sum(0) / fitted_CA.sum()
    right = np.take_along_axis(
        tested_CA, (fitted_CA + 1e-6 * overall_A).argmax(1)[:, None], 1
    ).sum()
    weight = 0 if fitted_CA is tested_CA else 1
    known_CA = (fitted_CA + weight * overall_A) / np.maximum(
        fitted_CA.sum(1, keepdims=True) + weight, 1
    )
    seen = tested_CA > 0
    with np.errstate(divide="ignore"):
        nats = -(tested_CA[seen] * np.log(known_CA[seen])).sum()
    total = tested_CA.sum()
    return {"token_accuracy": float(right / total), "loss": float(nats / total)}


def bounds_study(task: str, params: Json, sequences: int) -> Study:
    """Score every predictor of ``known`` on a task: exactly if ``sequences`` is 0, else simulated.

    Metrics, by predictor: ``token_accuracy`` and ``loss`` (nats), means over the scored lengths. A
    simulation fits and scores on the same sequences, which overrates the predictor;
    ``held_out_...`` are fitted on one half and scored on the other, both ways, which underrates it.
    Curves: ``n``, and by predictor the accuracy at n and ``<predictor>_loss``. ConfigError for a
    task that has no bound.
    """
    built = task_of(task, params)
    rows = []
    for n, x_Bn, answers_B in prefixes(built, sequences):
        parts = [known(built, part_Bn) for part_Bn in x_Bn.split(CHUNK)]
        answers = int(answers_B.max()) + 1
        for name in parts[0]:
            cell_B = torch.cat([part[name] for part in parts])
            index_B = (cell_B * answers + answers_B).numpy()
            shape = (int(cell_B.max()) + 1, answers)
            halves = [
                np.bincount(half, minlength=math.prod(shape)).reshape(shape)
                for half in np.array_split(index_B, 2)
            ]
            whole = halves[0] + halves[1]
            found = scores(whole, whole)
            if sequences:
                first, second = scores(*halves), scores(*halves[::-1])
                found |= {f"held_out_{name}": (first[name] + second[name]) / 2 for name in first}
            rows.append({"n": n, "predictor": name, **found})
    table = pd.DataFrame(rows)
    by_predictor = table.groupby("predictor", sort=False)
    curves = {"n": table["n"].unique().tolist()}
    for name, part in by_predictor:
        curves |= {
            name: part["token_accuracy"].tolist(),
            f"{name}_loss": part["loss"].tolist(),
        }
    return by_predictor.mean().drop(columns="n").to_dict("index"), curves


def task_of(task: str, params: Json) -> Task:
    """Return the task with only the settings that its bound depends on.

    ConfigError for a task that has no bound.
    """
    require(
        task in DECIDES, f"task = {task!r}: has no pairless bound; {', '.join(DECIDES)} have one"
    )
    built = build_task(task, params)
    for name in ("ascending", "either_way"):
        require(not getattr(built, name, False), f"{name} = True: has no pairless bound")
    return build_task(task, {name: getattr(built, name) for name in DECIDES[task]})


def study_of(
    task: str, params: Json, tier: str = "quick", simulated: int = SIMULATED
) -> StudyConfig:
    """Return the study of a task's bound: exact if sequences can be enumerated, else simulated."""
    built = task_of(task, params)
    # the parameter that says how many symbols are random
    drawn = {"counting": "seed_length", "chain": "longest"}.get(task, "length")
    few = built.symbols ** getattr(built, drawn) <= ENUMERATED
    decides = {name: getattr(built, name) for name in DECIDES[task]}
    sequences = 0 if few else min(simulated, TOKENS // built.length)
    return StudyConfig(
        NAME, tier, "pairless_bound", dict(task=task, params=decides, sequences=sequences)
    )


def lookup(task: str, params: Json) -> Study:
    """Return ``bounds_study`` of a task, from its record or else computed from fewer sequences."""
    study = study_of(task, params)
    record = Store(read_only=True).find(study, COUNT3_BOUNDS.version)
    if record is not None:
        return record.metrics, record.curves
    return on_the_spot(task, tuple(study.params["params"].items()))


@lru_cache(maxsize=64)
def on_the_spot(task: str, decides: tuple) -> Study:
    """Compute ``bounds_study`` of a task without a record, from fewer sequences, and cache it."""
    return bounds_study(**study_of(task, dict(decides), simulated=ON_THE_SPOT).params)


def whole_sequences(params: Json, sequences: int = 2**16) -> float:
    """Simulate the share of Match3′ sequences with all labels right by the pairless predictor."""
    right = True
    for _, x_Bn, answers_B in prefixes(task := task_of("triplets", params), sequences):
        cell_B = known(task, x_Bn)["pairless"].numpy()
        answers_B = answers_B.numpy()
        counts_CA = pd.crosstab(cell_B, answers_B)
        right &= counts_CA.idxmax(axis=1).reindex(cell_B).to_numpy() == answers_B
    return float(np.mean(right))


def within(scores: Iterable[float], task: str, params: Json, beyond: float = BEYOND) -> str:
    """Return why arms with these token accuracies say nothing about pairs, or "".

    The reason is that none is ``beyond`` above the pairless bound.
    """
    level = lookup(task, params)[0]["pairless"]["token_accuracy"]
    return (
        ""
        if max(scores) >= level + beyond
        else f"no model is {beyond} above the shortcut, {level:.3f}"
    )


def no_pairs_found(records: Records, arms: Sequence[str], metric: str = "token_accuracy") -> str:
    """Return why a comparison of arms says nothing about pairs, or "".

    The reason is that none is far enough above the pairless bound of their task.
    """
    runs = select(records, arm=tuple(arms))
    means = summary(runs).groupby("arm")[metric].mean()
    return within(means, runs[0].config.task, runs[0].config.task_params)


# length, seed_length, symbols and, where they are not the task's defaults, first_scored and order;
# of tasks with runs, planned runs, or the paper's
COUNTED = (
    (10, 4, 10),
    (10, 6, 10),
    (12, 8, 24),
    (16, 8, 24),
    (20, 8, 24),
    (24, 8, 24),
    (64, 16, 64),
    (6, 4, 6),
    (8, 4, 8),
    (14, 4, 14),
    (8, 3, 8),
    (5, 3, 10, 3),
    (8, 4, 10, 4),
    (16, 8, 64),
    (10, 4, 10, 5, 2),
    (5, 3, 10, 3, 2),
    (8, 4, 10, 4, 2),
)
MATCH3 = dict(length=8, symbols=11, modulus=11)
QUICK = (
    *(("counting", dict(zip(DECIDES["counting"], sizes, strict=False))) for sizes in COUNTED),
    ("triplets", MATCH3),
    ("triplets", MATCH3 | dict(modulus=0)),
    ("triplets", MATCH3 | dict(anchor="last")),
    ("triplets", MATCH3 | dict(output="count")),
    ("triplets", {}),
    ("chain", dict(longest=5, symbols=8)),
)
SMOKE = (
    ("counting", dict(length=6, seed_length=3, symbols=6)),
    ("triplets", dict(length=4, symbols=60)),
)


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan a study of the bound for every task that has runs, is planned or is the paper's."""
    tasks = {"smoke": SMOKE, "quick": QUICK}.get(tier, ())
    simulated = SIMULATED if tier == "quick" else 1000
    return [planned(study_of(*task, tier, simulated)) for task in tasks]


COUNT3_BOUNDS = Experiment(
    NAME,
    1,
    "What a predictor gets that looks at no pair",
    "03b_count3_details",
    plan,
    seeded=False,
)
