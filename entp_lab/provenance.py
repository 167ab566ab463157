"""Where and with what a run was made: commit, sources, versions, device, threads, memory."""

import contextlib
import datetime
import functools
import hashlib
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from entp_lab import arithmetic, heap, paths
from entp_lab.configs import RunConfig
from entp_lib.kernels import UNNAMED
from entp_lib.kernels.processor import multiplies_bf16

if TYPE_CHECKING:
    from entp_lab.store import Record

PACKAGES = ("entp_lib", "entp_lab", "entp_papers")


def provenance(device: str, threads: int) -> dict[str, Any]:
    """Where and with what a run is made, as of its start: code, versions, machine, threads, start time (UTC).

    ``cpu_capability`` is the instruction set that torch uses; results differ with it in the last bits. ``arithmetic``
    says whether the process was started with all libraries held to AVX2 (``entp_lab.arithmetic``), ``multiplies_bf16``
    whether a run in bf16 has its products from the processor's own instructions, or in fp32 from rounded operands. Such
    a run adds ``kernels``, the names of what computes it.
    """
    libraries = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {
        **dict(zip(("commit", "dirty", "sources"), CODE, strict=True)),
        "versions": {"python": platform.python_version(), **libraries},
        "device": device_name(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "arithmetic": arithmetic.in_force(),
        "multiplies_bf16": multiplies_bf16(),
        "threads": threads,
        "cores": available_cores(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **({"cuda": torch.version.cuda} if device.startswith("cuda") else {}),
    }


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def sources(root: Path | None = None) -> str:
    """Sixteen hexadecimal digits that change with any source file of the packages, as this process first saw them."""
    digest, root = hashlib.sha256(), root or paths.root()
    found = (path for package in PACKAGES for path in (root / package).rglob("*"))
    for path in sorted(path for path in found if path.suffix in (".py", ".csv")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def git_environment() -> dict[str, str]:
    """This process's environment without git's variables, which lead to another repository inside of its hooks."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def git_state() -> tuple[str, bool | None]:
    """(commit, or ``ENTP_COMMIT``, and whether the code differs from it); ("unknown", None) outside of git."""
    if os.environ.get("ENTP_COMMIT"):
        return os.environ["ENTP_COMMIT"], None
    root = paths.root()
    run = functools.partial(subprocess.check_output, stderr=subprocess.DEVNULL, text=True, env=git_environment())
    # without optional locks: a status that refreshes the index would get in the way of a commit made meanwhile
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        top, commit = run([*git, "rev-parse", "--show-toplevel", "HEAD"]).split("\n")[:2]
        if Path(top).resolve() != root:  # unpacked inside another repository, whose commit says nothing of this code
            return "unknown", None
        return commit.strip()[:12], bool(run([*git, "status", "--porcelain", "--", *PACKAGES]).strip())
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown", None


CODE = (*git_state(), sources())  # of what this process imports: a commit or an edit made later is not what it runs


def processes(record: "Record") -> list[dict[str, Any]]:
    """Every process that worked on a record, in order, as their provenance; a run that was never cut has one."""
    return [*record.provenance.get("earlier_processes", []), record.provenance]


def arithmetic_of(record: "Record") -> str:
    """The arithmetic that a record was computed with; one without the field is taken at its ``cpu_capability``."""
    where = record.provenance
    portable = where.get("cpu_capability") == arithmetic.AVX2
    return where.get("arithmetic", arithmetic.AVX2 if portable else arithmetic.NATIVE)


def kernels_of(record: "Record") -> str:
    """The kernels that a run in bf16 ended with, ``UNNAMED`` for one without the field; empty for all other records."""
    half = isinstance(record.config, RunConfig) and record.config.train.precision == "bf16"
    return record.provenance.get("kernels", UNNAMED if half else "")


def pairs_apart(records: Iterable["Record"]) -> str:
    """Note on twins among ``records`` that were made apart, for a paired comparison; empty where none were.

    Twins share both seeds. Apart means another processor, another instruction set, other sources, another precision or
    other kernels; what an older record does not say counts as alike.
    """
    pairs: dict[tuple[int, int], list[list[dict[str, Any]]]] = {}
    for record in records:
        kind: dict[str, Any] = {}
        if isinstance(record.config, RunConfig):
            kind["precision"] = record.config.train.precision
        if kind.get("precision") == "bf16":
            kind["kernels"] = UNNAMED
        made = [kind | where for where in processes(record)]
        pairs.setdefault((record.config.model_seed, record.config.data_seed), []).append(made)
    said = []
    for name, words in (
        ("device", "processors"),
        ("cpu_capability", "instruction sets"),
        ("sources", "sources"),
        ("precision", "precisions"),
        ("kernels", "kernels"),
    ):
        made = [[{p[name] for p in of_run if p.get(name)} for of_run in found] for found in pairs.values()]
        apart = sum(len(found) > 1 and len(set().union(*found)) > 1 for found in made)
        lone = sum(len(found) == 1 and len(found[0]) > 1 for found in made)
        if apart:
            said.append(f"{apart} of {len(pairs)} pairs from different {words}")
        if lone:
            said.append(f"{lone} of {len(pairs)} runs continued with other {words}")
    return "; ".join(said)


def device_name(device: str) -> str:
    """The GPU's name, or the processor's."""
    if device.startswith("cuda"):
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
    heap.give_back()
    with contextlib.suppress(OSError):  # else the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int:
    """Peak bytes since ``reset_peak_memory``: allocated on the GPU, or resident in this process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
