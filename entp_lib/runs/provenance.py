"""Where and with what a run was made: commit, versions, device, threads, memory."""

import contextlib
import datetime
import importlib.metadata
import logging
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from entp_lib import paths

log = logging.getLogger(__name__)


def provenance(device: str, threads: int) -> dict[str, Any]:
    """Where and with what a run was made: commit, versions, device, threads, start time (UTC)."""
    commit, dirty = git_state()
    return {
        "commit": commit,
        "dirty": dirty,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "numpy")},
        },
        "device": device_name(device),
        "threads": threads,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def git_state() -> tuple[str, bool | None]:
    """(commit, whether the code differs from it); ("unknown", None) where there is no repository.

    A machine that gets the files without the repository may be told the commit by ``ENTP_COMMIT``.
    """
    if os.environ.get("ENTP_COMMIT"):
        return os.environ["ENTP_COMMIT"], None
    git = ["git", "-C", str(paths.root())]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run(
            [*git, "status", "--porcelain", "--", "entp_lib"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown", None
    return commit.stdout.strip()[:12], bool(changes.stdout.strip())


def device_name(device: str) -> str:
    """The GPU's name, or the processor's."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def reset_peak_memory(device: str) -> None:
    """Start counting the peak anew, where the system can."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        log.debug("peak memory is that of the whole process: this system cannot reset it")


def peak_memory(device: str) -> int:
    """Peak bytes since ``reset_peak_memory``: allocated on the GPU, or resident in this process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    except OSError:
        log.debug("no /proc here")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
