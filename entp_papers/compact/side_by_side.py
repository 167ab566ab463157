"""Many models of one shape trained side by side, each on a library of its own.

One batched product does what R small ones would, and Adam works entry by entry, so every run takes the steps that it
takes alone, up to the order in which a matrix product adds. A run that has stopped improving keeps its result while
the others go on.

Letters: R runs, K sequences of a library, S sequences of a batch, T tokens, V symbols.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from entp_lib.tasks.base import generator_for
from entp_lib.validation import check_types, require
from entp_papers.compact import memory_model
from entp_papers.compact.memory_model import MemoryConfig


@dataclass(frozen=True)
class Schedule:
    """Adam over a library: ``epochs`` passes at most, counted every ``count_every`` epochs.

    ``steps`` > 0 sets the epochs by optimiser steps instead. ``patience`` > 0 ends a run after so many counts without
    a better one; ``until_all`` ends it as soon as every sequence is right.
    """

    epochs: int = 100
    steps: int = 0
    batch_size: int = 512
    rate: float = 1e-3
    count_every: int = 4
    patience: int = 0
    until_all: bool = False

    def __post_init__(self):
        check_types(self)
        for name in ("epochs", "batch_size", "count_every"):
            require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("steps", "patience"):
            require(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}: must not be negative")
        require(self.rate > 0, f"rate = {self.rate}: must be above 0")

    def passes(self, library: int) -> int:
        """Epochs over a library of so many sequences."""
        per_epoch = -(-library // self.batch_size)
        return -(-self.steps // per_epoch) if self.steps else self.epochs


@dataclass(frozen=True)
class Outcome:
    """Right sequences of each run at each count, the counts' epochs, each run's best count, when it ended (0: not)."""

    right_RC: Tensor
    epochs_C: list[int]
    best_R: Tensor
    ended_R: Tensor
    losses_RC: Tensor


def random_library(cfg: MemoryConfig, sequences: int, seed: int) -> Tensor:
    """(K, length) tokens, independent and uniform (§2.1.3)."""
    require(sequences >= 1, f"library = {sequences}: must hold at least 1 sequence")
    return torch.randint(cfg.symbols, (sequences, cfg.length), generator=generator_for("cpu", "library", seed))


def stacked(cfg: MemoryConfig, seeds: list[int]) -> tuple[memory_model.Weights, memory_model.Weights]:
    """Trained and frozen weights of one model per seed, with a first dimension R."""
    pairs = [
        (memory_model.trained_weights(cfg, g), memory_model.frozen_weights(cfg, g))
        for g in (generator_for("cpu", "memory", seed) for seed in seeds)
    ]
    return tuple({name: torch.stack([pair[i][name] for pair in pairs]) for name in pairs[0][i]} for i in (0, 1))


def train(cfg: MemoryConfig, schedule: Schedule, libraries_RKT: Tensor, seeds: list[int]) -> Outcome:
    """Train one model per library and seed and count the sequences whose last token it recalls.

    The order of an epoch depends on the run's seed and the epoch alone. Raises ConfigError where the libraries do not
    fit the configuration.
    """
    check(cfg, libraries_RKT, seeds)
    trained, frozen = stacked(cfg, seeds)
    for weight in trained.values():
        weight.requires_grad_(True)
    optimizer = torch.optim.Adam(list(trained.values()), lr=schedule.rate)
    logits = vmap(lambda t, f, x: memory_model.last_logits(cfg, t, f, x))
    runs, library, _ = libraries_RKT.shape
    progress = Progress(schedule, runs, library)
    for epoch in range(1, schedule.passes(library) + 1):
        order_RK = torch.stack([torch.randperm(library, generator=generator_for("cpu", s, epoch)) for s in seeds])
        total_R = torch.zeros(runs)
        for pick_RS in order_RK.split(schedule.batch_size, dim=1):
            batch_RST = libraries_RKT.gather(1, pick_RS[..., None].expand(-1, -1, cfg.length))
            logits_RSV = logits(trained, frozen, batch_RST[..., :-1])
            losses_RS = F.cross_entropy(logits_RSV.flatten(0, 1), batch_RST[..., -1].flatten(), reduction="none")
            loss_R = losses_RS.view(runs, -1).mean(1)
            optimizer.zero_grad(set_to_none=True)
            loss_R.sum().backward()
            optimizer.step()
            total_R += loss_R.detach() * pick_RS.shape[1] / library
        if epoch % schedule.count_every == 0 or epoch == schedule.passes(library):
            if progress.add(epoch, recalled(cfg, trained, frozen, libraries_RKT), total_R):
                break
    return progress.outcome()


@torch.no_grad()
def recalled(cfg: MemoryConfig, trained, frozen, libraries_RKT: Tensor, most: int = 4096) -> Tensor:
    """Number of sequences of each library whose last token has the largest logit, (R,)."""
    logits = vmap(lambda t, f, x: memory_model.last_logits(cfg, t, f, x))
    right_R = torch.zeros(len(libraries_RKT), dtype=torch.long)
    for part_RST in libraries_RKT.split(most, dim=1):
        right_R += (logits(trained, frozen, part_RST[..., :-1]).argmax(-1) == part_RST[..., -1]).sum(1)
    return right_R


class Progress:
    """The counts so far, and which runs have ended."""

    def __init__(self, schedule: Schedule, runs: int, library: int):
        self.schedule, self.library = schedule, library
        self.epochs, self.right, self.losses = [], [], []
        self.best_R = torch.zeros(runs, dtype=torch.long)
        self.since_R = torch.zeros(runs, dtype=torch.long)
        self.ended_R = torch.zeros(runs, dtype=torch.long)  # 0 while a run goes on

    def add(self, epoch: int, right_R: Tensor, losses_R: Tensor) -> bool:
        """Add a count; True once every run has ended."""
        going_R = self.ended_R == 0
        better_R = right_R > self.best_R
        self.since_R = torch.where(better_R, 0, self.since_R + 1)
        self.best_R = torch.where(going_R & better_R, right_R, self.best_R)
        ends_R = torch.zeros_like(going_R)
        if self.schedule.patience:
            ends_R |= self.since_R >= self.schedule.patience
        if self.schedule.until_all:
            ends_R |= right_R == self.library
        self.ended_R = torch.where(going_R & ends_R, epoch, self.ended_R)
        self.epochs.append(epoch)
        self.right.append(right_R)
        self.losses.append(losses_R)
        return bool((self.ended_R > 0).all())

    def outcome(self) -> Outcome:
        return Outcome(torch.stack(self.right, 1), self.epochs, self.best_R, self.ended_R, torch.stack(self.losses, 1))


def check(cfg: MemoryConfig, libraries_RKT: Tensor, seeds: list[int]) -> None:
    """Raise ConfigError where libraries, seeds and model do not fit together."""
    require(
        libraries_RKT.dim() == 3 and libraries_RKT.shape[2] == cfg.length,
        f"libraries of shape {tuple(libraries_RKT.shape)}: must be (runs, sequences, {cfg.length})",
    )
    require(len(seeds) == len(libraries_RKT), f"{len(seeds)} seeds for {len(libraries_RKT)} libraries: one each")
    high = int(libraries_RKT.max())
    require(high < cfg.symbols, f"token {high} in the library: the model can index only {cfg.symbols} symbols")
