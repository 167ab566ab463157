"""One large run on the processes that ``torchrun`` starts: each computes a share of every batch, and torch sums up."""

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from entp_lab.stopping import Cut
from entp_lib.tasks import Batch
from entp_lib.training import Hook, TrainingState, trainable_parameters
from entp_lib.validation import require

PATIENCE = datetime.timedelta(hours=24)  # the other ranks wait while rank 0 computes a study


class Ranks(Hook):
    """Hook of ``train`` by which the ranks of torch's process group together compute the run named ``run``."""

    run = ""

    def __init__(self):
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def begin(self, state: TrainingState) -> None:
        """Raise ConfigError unless this rank is at the same step of the same run as rank 0."""
        mine = self.run, state.step
        first = [mine]
        dist.broadcast_object_list(first)
        require(
            first == [mine],
            f"rank {self.rank} begins step {state.step} of another run or step than rank 0: "
            "all ranks must see the same results",
        )

    def on_batch(self, batch: Batch) -> Batch:
        """Return this rank's sequences of a batch."""
        rows = len(batch.scored_BT)
        return batch.rows(slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size))

    def before_update(self, model: nn.Module, loss: Tensor) -> Tensor:
        """Sum gradients and losses over the ranks; each rank has divided its own by the count of the whole batch."""
        trained = trainable_parameters(model).values()
        pieces = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained]
        flat = torch.cat([*pieces, loss[None].to(pieces[0].dtype)])
        dist.all_reduce(flat)
        for p, piece in zip(trained, flat[:-1].split([p.numel() for p in trained]), strict=True):
            p.grad = piece.view_as(p)
        return flat[-1]

    def any_asks(self, asked: bool) -> bool:
        """Say whether any rank asks to stop, so that all stop after the same step."""
        found = torch.tensor(float(asked))
        dist.all_reduce(found)
        return bool(found)

    @contextlib.contextmanager
    def together(self, device: str) -> Iterator[None]:
        """Compute on this rank's GPU, if any; an error ends this process, and torchrun then ends the others."""
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        try:
            yield
        except Cut:  # all ranks are cut at the same step
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            print(
                f"entp_lib: rank {self.rank} of {self.size}: {reason}; all ranks end",
                file=sys.stderr,
            )
            # in an orderly exit gloo's threads may abort if another rank has left already
            os._exit(1)


def joined() -> Ranks | None:
    """Join the process group that ``torchrun`` describes; None where this process is alone."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or not os.environ.get("MASTER_ADDR"):
        return None
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    return Ranks()
