"""A command of the library in a process that dies where a plan says: ``python -m benchmarks.hammer.victim PLAN …``.

PLAN is JSON: ``file`` and ``point`` name where (a file of which kind, when it is written or when it has its place),
``signal`` what then kills this process, or ``error`` what the disk says instead. Checkpoints are written at every step.
It says "ready" when the command begins.
"""

import json
import os
import sys
from pathlib import Path

from entp_lab import cli
from entp_lib import training as loop

KINDS = ("record", "checkpoint", "weights", "tokens")
POINTS = ("written", "in place")


def kind_of(path: str) -> str:
    """Kind of the project's files that a path is, or will be; "" for others."""
    name, parts = Path(path).name.lstrip("."), Path(path).parts
    if ".weights.safetensors" in name:
        return "weights"
    if ".safetensors" in name:
        return "checkpoint"
    if "corpora" in parts:
        return "tokens"
    return "record" if "records" in parts and ".json" in name else ""


def strike(plan: dict, kind: str, point: str, path: str) -> None:
    """Do what the plan says, if this is where it says so."""
    if (plan.get("file"), plan.get("point")) != (kind, point):
        return
    if "error" in plan:
        raise OSError(plan["error"], os.strerror(plan["error"]), path)
    os.kill(os.getpid(), plan["signal"])


def arm(plan: dict) -> None:
    """Put the plan between the library and the system."""
    loop.CHECKPOINT_SECONDS = 0.0
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if not os.path.isdir(path):
            strike(plan, kind_of(path), "written", path)
        sync(handle)

    def replaced(source, target, **options) -> None:
        replace(source, target, **options)
        strike(plan, kind_of(str(target)), "in place", str(target))

    os.fsync, os.replace = fsync, replaced


if __name__ == "__main__":
    arm(json.loads(sys.argv[1]))
    print("ready", flush=True)
    sys.exit(cli.main(sys.argv[2:]))
