"""Where and with what a run was made: commit, sources, versions, device, arithmetic, threads, memory.

Libraries choose kernels by processor, and AVX-512 sums in another order than AVX2. This package leaves them the choice,
and a record states what was in use. Libraries read the variables that restrict them once, when they load or are first
used, so that a process is held to AVX2 only if it starts with them. Computing a record made with AVX2 again starts such
a process.
"""

import ast
import contextlib
import ctypes
import datetime
import functools
import hashlib
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from entp_lab import paths
from entp_lab.configs import RunConfig
from entp_lab.store import Record, Records
from entp_lib.kernels import UNNAMED
from entp_lib.kernels.processor import multiplies_bf16, processor_flags
from entp_lib.validation import Json

PACKAGES = ("entp_lib", "entp_lab", "entp_papers")
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3  # the numbers of parameters of mallopt(3)
KEPT_BYTES = 2**30
AVX2 = "AVX2"
NATIVE = "native"
# Variables by which ATen, oneDNN, MKL and NumPy's OpenBLAS are held to AVX2.
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}


def provenance(device: str, threads: int, modules: tuple[str, ...] = ()) -> Json:
    """Return where and with what a run is made, as of its start (UTC). ``modules``: the modules that it loads.

    ``cpu_capability`` is the instruction set that torch uses; the last bits of results depend on it. ``arithmetic``:
    whether the process was started with all libraries held to AVX2. ``multiplies_bf16``: whether bf16 products use the
    processor's own instructions; otherwise rounded operands are multiplied in fp32.
    """
    commit, dirty = COMMIT
    found = {
        "commit": commit,
        "dirty": dirty,
        "sources": sources(modules),
        "versions": {
            "python": platform.python_version(),
            "torch": importlib.metadata.version("torch"),
            "numpy": importlib.metadata.version("numpy"),
        },
        "device": device_name(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "arithmetic": arithmetic_here(),
        "multiplies_bf16": multiplies_bf16(),
        "threads": threads,
        "cores": available_cores(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    if device.startswith("cuda"):
        found["cuda"] = torch.version.cuda
    return found


def has_avx2() -> bool:
    """Say whether this processor has AVX2 and FMA; False if that is unknown."""
    return {"avx2", "fma"} <= processor_flags()


def arithmetic_here() -> str:
    """Return ``AVX2`` where this process was started with every library held to it, else ``native``."""
    held = all(os.environ.get(name) == value for name, value in VARIABLES.items())
    return AVX2 if held and torch.backends.cpu.get_cpu_capability() == AVX2 else NATIVE


def environment_for(name: str) -> dict[str, str]:
    """Return the environment of a new process that is to compute with the arithmetic ``name``."""
    rest = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return rest | (VARIABLES if name == AVX2 else {})


@contextlib.contextmanager
def for_new_processes(name: str) -> Iterator[None]:
    """Let processes started within the block compute with the arithmetic ``name``; this one does not change."""
    before = dict(os.environ)
    changed = environment_for(name)
    os.environ.clear()
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def available_cores() -> int:
    """Return the number of cores this process may use; in a container it may be less than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def source_files(root: Path) -> dict[str, bytes]:
    """Read the packages' modules and tables, by their path below ``root``."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in (root / package).rglob("*")
        # editors leave links that begin with a dot and lead nowhere
        if path.suffix in (".py", ".csv") and not path.name.startswith(".")
    }


@functools.cache
def imports(code: bytes) -> list[tuple[str, str]]:
    """Return the module and name of each import in a module's code; the name is empty for ``import module``."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
    return found


def loaded_files(modules: Iterable[str], files: Mapping[str, bytes]) -> set[str]:
    """Return which of ``files`` are loaded when ``modules`` are imported, and the tables in the same folders.

    A package's ``__init__`` that is only passed on the way to a module is left out.
    """
    known = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in files
    }
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        path = known.get(waiting.pop())
        if path is None or path in found:
            continue
        found.add(path)
        folder = Path(path).parent
        found |= {
            other for other in files if other.endswith(".csv") and Path(other).parent == folder
        }
        for module, name in imports(files[path]):
            whole = f"{module}.{name}"
            waiting.append(whole if whole in known else module)
    return found


@functools.cache
def sources(modules: tuple[str, ...]) -> str:
    """Return sixteen hexadecimal digits, a hash of all files that ``modules`` load from this project's packages.

    The files are those at the start of the process, since later edits are not what it runs.
    """
    digest = hashlib.sha256()
    for path in sorted(loaded_files(modules, FILES)):
        digest.update(f"{path}\n".encode())
        digest.update(hashlib.sha256(FILES[path]).digest())
    return digest.hexdigest()[:16]


def git_environment() -> dict[str, str]:
    """Return this process's environment without git's variables, which in a git hook name another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def git_state() -> tuple[str, bool | None]:
    """Return the commit, or ``ENTP_COMMIT``, and whether the code differs from it; ("unknown", None) outside of git."""
    if os.environ.get("ENTP_COMMIT"):
        return os.environ["ENTP_COMMIT"], None
    root = paths.root()

    def git(*arguments: str) -> str:
        # refreshing the index could disturb a commit in progress
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, env=git_environment()
        )

    try:
        top, commit = git("rev-parse", "--show-toplevel", "HEAD").split("\n")[:2]
        if Path(top).resolve() != root:  # unpacked inside another repository
            return "unknown", None
        return commit.strip()[:12], bool(git("status", "--porcelain", "--", *PACKAGES).strip())
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown", None


COMMIT = git_state()
FILES = source_files(paths.root())  # source files as this process imported them


def processes(record: Record) -> list[Json]:
    """Return the provenance of every process that worked on a record, in order; an uninterrupted run has one."""
    return [*record.provenance.get("earlier_processes", []), record.provenance]


def arithmetic_of(record: Record) -> str:
    """Return the arithmetic of a record; without the field it follows from ``cpu_capability``."""
    where = record.provenance
    portable = where.get("cpu_capability") == AVX2
    return where.get("arithmetic", AVX2 if portable else NATIVE)


def precision_of(record: Record) -> str:
    """Return the precision of a training run, empty for a study."""
    return record.config.train.precision if isinstance(record.config, RunConfig) else ""


def kernels_of(record: Record) -> str:
    """Return the kernels that a bf16 run ended with, ``UNNAMED`` without the field; empty for other records."""
    return record.provenance.get("kernels", UNNAMED if precision_of(record) == "bf16" else "")


def pairs_apart(records: Records) -> str:
    """Describe the pairs among ``records`` whose two runs were made differently; empty if there are none.

    A pair shares both seeds; studies form no pairs. The processor, instruction set, precision, sources or kernels may
    differ. Fields that an older record lacks count as equal.
    """
    pairs = defaultdict(list)
    for record in records:
        known = {"precision": precision_of(record), "kernels": kernels_of(record)}
        made = [known | where for where in processes(record)]
        seeds = record.config.model_seed, record.config.data_seed
        pairs[seeds].append(made)
    is_paired = all(isinstance(record.config, RunConfig) for record in records)
    notes = []
    for name, words in (
        ("device", "processors"),
        ("cpu_capability", "instruction sets"),
        ("sources", "sources"),
        ("precision", "precisions"),
        ("kernels", "kernels"),
    ):
        mixed = [
            runs
            for runs in pairs.values()
            if len({where[name] for run in runs for where in run if where.get(name)}) > 1
        ]
        apart = sum(len(runs) > 1 for runs in mixed)
        continued = len(mixed) - apart
        if apart:
            which = f"{apart} of {len(pairs)} pairs" if is_paired else "records"
            notes.append(f"{which} from different {words}")
        if continued:
            notes.append(f"{continued} of {len(pairs)} runs continued with other {words}")
    return "; ".join(notes)


def device_name(device: str) -> str:
    """Return the GPU's name, or the processor's."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return line_of("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def line_of(path: str, beginning: str) -> str:
    """Return what follows the colon in a line of a file of /proc; empty if there is no such line."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(beginning):
                return line.partition(":")[2].strip()
    return ""


def prepare_memory(device: str) -> None:
    """Reset the peak of memory, where the system can, and have freed memory used again.

    By default glibc returns large buffers to the system and asks for them again, and the system hands out zeroed pages
    one fault at a time (docs/journal/engine.md has the cost for a training step). Here buffers of up to a GiB come from
    the heap. It is trimmed once, so that resident memory is in use. Other C libraries are left alone.
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(AttributeError):
        libc = ctypes.CDLL(None)
        for limit in (TRIM_THRESHOLD, MMAP_THRESHOLD):
            libc.mallopt(limit, KEPT_BYTES)
        libc.malloc_trim(0)
    with contextlib.suppress(OSError):  # else the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int:
    """Return the peak bytes since ``prepare_memory``: allocated on the GPU, or resident in this process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    if resident := line_of("/proc/self/status", "VmHWM"):
        return int(resident.split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
