"""One big run over several processes: the ranks that ``torchrun`` starts, each on one shard of every batch.

Rank 0 leads: it alone plans, reads and writes records, checkpoints and weights, and evaluates. It announces each run,
the others train along, and what ends a rank ends them all, with its reason.
"""

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from entp_lib.config import RunConfig, config_from, to_dict
from entp_lib.records import stopping
from entp_lib.records.store import RecordError
from entp_lib.training.loop import train
from entp_lib.training.shards import LeaderError, Team
from entp_lib.validation import ConfigError, require

PATIENCE = datetime.timedelta(hours=24)  # the others wait as long as the leader evaluates; a dead one is seen at once
FAILURE = "entp/failure"
LEADING: list["Ranks"] = []  # at most one


class Broken(BaseException):
    """The ranks no longer keep step, so that none of them can go on; the message is the reason."""


def size() -> int:
    """How many ranks this process is one of; 0 where it is alone."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    count = int(os.environ["WORLD_SIZE"]) if all(os.environ.get(name) for name in names) else 1
    return count if count > 1 else 0


def current() -> "Ranks | None":
    """The ranks that this process leads, if it does."""
    return LEADING[0] if LEADING else None


class Ranks(Team):
    """The ranks of a process group, and a place where one that fails leaves its reason for the others."""

    def __init__(self, store: dist.Store):
        super().__init__()
        self.store = store
        self.waiting = False  # whether the others wait for the start of a run that was announced

    @contextlib.contextmanager
    def announced(self, config: RunConfig, device: str) -> Iterator[None]:
        """Within it the other ranks train ``config`` along.

        They hear of an error; Broken where they are in the middle of a step that cannot be ended without this rank.
        """
        self.lead(lambda: (to_dict(config), device, torch.get_num_threads()))
        self.waiting = True
        try:
            yield
        except Exception as error:
            if self.bound:
                raise Broken(f"{type(error).__name__}: {error}") from error
            if self.waiting:
                self.release(error)
            raise

    def share_start(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> int:
        step = super().share_start(model, optimizer, step)
        self.waiting = False
        return step

    def release(self, error: Exception) -> None:
        super().release(error)
        self.waiting = False

    def follow(self) -> int:
        """Train along with the leader until it ends; the exit status."""
        while True:
            run = self.lead(lambda: None)
            if run is None:
                return 0
            config, device, threads = run
            torch.set_num_threads(threads)
            with contextlib.suppress(LeaderError), stopping.defer_signals():
                train(config_from(config), device=own_device(device), team=self, stop=stopping.REQUEST.made)

    def end_all(self, reason: str) -> None:
        """End this process, status 1, with a line that says why: the reason of the first rank that failed."""
        mine = f"rank {self.rank} of {self.size}: {reason.splitlines()[0]}"
        first = mine
        with contextlib.suppress(RuntimeError):  # whoever keeps it may be gone as well
            first = self.store.compare_set(FAILURE, "", mine).decode() or mine
        print(f"entp_lib: {first}; all ranks end", file=sys.stderr, flush=True)
        os._exit(1)  # a group that is out of step cannot be taken down in order


def own_device(device: str) -> str:
    """This rank's GPU where runs are on one. ConfigError where the machine has fewer than it has ranks."""
    if device != "cuda":
        return device
    place, here = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    require(place < here, f"rank {place} of this machine has no GPU: it has {here}; use --nproc-per-node {here}")
    torch.cuda.set_device(place)
    return device


@contextlib.contextmanager
def team() -> Iterator[Ranks | None]:
    """The ranks that this process is one of, joined; None where it is alone.

    Ends the process, status 1, with a line that names the first rank to fail, where they can no longer keep step.
    """
    if not size():
        yield None
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store, rank, world = next(dist.rendezvous("env://", timeout=PATIENCE))
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    joined = Ranks(store)
    if joined.leads:
        LEADING.append(joined)
    try:
        yield joined
    except Exception as error:
        if joined.leads and not joined.bound and isinstance(error, (ConfigError, RecordError, OSError)):
            joined.lead(lambda: None)  # a mistake that the leader found before or between runs: it will say so
            raise
        joined.end_all(f"{type(error).__name__}: {error}")
    except BaseException as error:
        if joined.bound or isinstance(error, Broken):
            joined.end_all(str(error) or type(error).__name__)
        if joined.leads:
            joined.lead(lambda: None)
        raise
    else:
        if joined.leads:
            joined.lead(lambda: None)
    finally:
        LEADING.clear()
    dist.destroy_process_group()
