"""One big run over several processes: the ranks that ``torchrun`` starts, each on one shard of every batch.

Rank 0 leads: it alone plans, reads and writes records, checkpoints and weights, and evaluates. It announces each run
and the others train along. A rank that fails before the last step ends its process, and torchrun the others.
"""

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from entp_lib.config import RunConfig, config_from, to_dict
from entp_lib.records import stopping
from entp_lib.tasks import Batch, Task
from entp_lib.training.loop import train
from entp_lib.training.shards import cut, shard_gradient, spread
from entp_lib.training.weights import MOMENTS
from entp_lib.validation import require

PATIENCE = datetime.timedelta(hours=24)  # the others wait as long as the leader evaluates; a dead one is seen at once
LEADING: list["Ranks"] = []  # at most one


def size() -> int:
    """How many ranks this process is one of; 0 where it is alone."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    count = int(os.environ["WORLD_SIZE"]) if all(os.environ.get(name) for name in names) else 1
    return count if count > 1 else 0


class Ranks:
    """The ranks of a process group, which must be there: one shard each; rank 0 leads."""

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.leads = self.rank == 0
        self.asked = self.agreed = False
        self.bound = False  # from a run's announcement until its loop ends, when none can do without the others

    def lead(self, mine: Any) -> Any:
        """The leader's value, on every rank."""
        message = [mine]
        dist.broadcast_object_list(message)
        return message[0]

    def share_start(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> int:
        """Bring every rank to the leader's weights, moments and step, which it returns."""
        self.asked = self.agreed = False
        step = self.lead(step)
        with torch.no_grad():
            for p in model.parameters():
                dist.broadcast(p.data, 0)
                if not step or not p.requires_grad:  # what is frozen has no moments
                    continue
                state = optimizer.state[p]
                for name in MOMENTS:
                    if not self.leads:
                        state[name] = torch.tensor(0.0, device=p.device) if name == "step" else torch.zeros_like(p)
                    dist.broadcast(state[name], 0)
        return step

    def check_same(self, model: torch.nn.Module) -> None:
        """RuntimeError where the ranks' weights are no longer the same."""
        mine = sum(p.detach().double().sum() for p in model.parameters())
        both = torch.stack([mine, -mine])
        dist.all_reduce(both, dist.ReduceOp.MAX)
        if both.isfinite().all() and both[0] != -both[1]:
            raise RuntimeError(f"the ranks' weights have parted by {float(both.sum()):g} in their sum")

    def to_stop(self, asked: bool) -> bool:
        """Whether all ranks stop now: a wish goes along with the next step's gradients, so that all stop together."""
        self.asked = asked
        return self.agreed

    def gradients(self, model: torch.nn.Module, task: Task, batch: Batch, config: RunConfig, step: int) -> torch.Tensor:
        part = cut(batch, config.model, self.size)[self.rank]
        flat = shard_gradient(model, task, part, len(batch.targets_N), config, step, self.rank)
        flat = torch.cat([flat, flat.new_tensor([float(self.asked)])])
        dist.all_reduce(flat)
        self.agreed = bool(flat[-1] > 0)
        return spread(model, flat[:-1])

    @contextlib.contextmanager
    def announced(self, config: RunConfig, device: str) -> Iterator[None]:
        """Within it the other ranks train ``config`` along."""
        self.lead((to_dict(config), device, torch.get_num_threads()))
        with self.together():
            yield

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Within it a failure before the last step ends this process, status 1, with a line that says why.

        The others cannot go on without it, and a group that is out of step cannot be taken down in order.
        """
        self.bound = True
        try:
            yield
        except BaseException as error:
            if not self.bound:
                raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            said = f"entp_lib: rank {self.rank} of {self.size}: {reason}; all ranks end"
            print(said, file=sys.stderr, flush=True)
            os._exit(1)

    def follow(self) -> int:
        """Train along with the leader until it ends; the exit status."""
        while (run := self.lead(None)) is not None:
            config, device, threads = run
            torch.set_num_threads(threads)
            with stopping.defer_signals(), self.together():
                train(config_from(config), device=own_device(device), team=self, stop=lambda: stopping.REQUEST.made)
        return 0


def own_device(device: str) -> str:
    """This rank's GPU where runs are on one. ConfigError where the machine has fewer than it has ranks."""
    if device == "cuda":
        place, here = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        require(place < here, f"rank {place} of this machine has no GPU: it has {here}; use --nproc-per-node {here}")
        torch.cuda.set_device(place)
    return device


@contextlib.contextmanager
def team() -> Iterator[Ranks | None]:
    """The ranks that this process is one of, joined; None where it is alone."""
    if not size():
        yield None
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE)
    joined = Ranks()
    LEADING[:] = [joined] if joined.leads else []
    try:
        yield joined
    finally:
        LEADING.clear()
        if joined.leads:
            joined.lead(None)
    dist.destroy_process_group()
