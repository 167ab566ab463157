"""Instruction set of CPU arithmetic: AVX2 unless asked otherwise, so that a record recomputes bit for bit elsewhere.

Libraries choose kernels by processor, and AVX-512 sums in another order than AVX2. They read their variables once, when
they load or are first used: the package asks for AVX2 before it loads any. ``ENTP_ARITHMETIC=native``, or ``--native``,
leaves the choice to them; so do processors without AVX2, among them all ARM ones.
"""

import contextlib
import os
import sys
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path

VARIABLE = "ENTP_ARITHMETIC"
AVX2, NATIVE = "AVX2", "native"
# What ATen, oneDNN, MKL and NumPy's OpenBLAS read.
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
set_in_time = False


@cache
def processor_flags() -> frozenset[str]:
    """Instruction sets of this processor by Linux's names; none where the system does not say."""
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return frozenset()
    return frozenset(flags.split())


def has_avx2() -> bool:
    """Whether this processor has AVX2 and FMA; False where Linux does not say."""
    return {"avx2", "fma"} <= processor_flags()


def choose(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask the libraries for AVX2, unless ``ENTP_ARITHMETIC`` says native or a variable of theirs is set already."""
    global set_in_time
    before = all(environment.get(name) == value for name, value in VARIABLES.items())
    if environment.get(VARIABLE) != NATIVE and has_avx2():
        for name, value in VARIABLES.items():
            environment.setdefault(name, value)
    set_in_time = before or not {"torch", "numpy"} & sys.modules.keys()


def in_force() -> str:
    """``AVX2`` where every library was asked for it in time, else ``native``."""
    return AVX2 if set_in_time and all(os.environ.get(n) == v for n, v in VARIABLES.items()) else NATIVE


def multiplies_bf16() -> bool:
    """Whether matrix products of bf16 run in bf16: the processor has the instructions, and oneDNN may use them."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()  # set by ``choose``, too late or in time
    limited = not any(name in allowed for name in ("DEFAULT", "ALL", "BF16", "FP16", "AMX"))
    return not limited and bool({"avx512_bf16", "amx_bf16"} & processor_flags())


def environment_for(name: str) -> dict[str, str]:
    """This process's environment for another process that is to compute with the arithmetic ``name``."""
    rest = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return rest | {VARIABLE: name} | (VARIABLES if name == AVX2 else {})


def for_new_processes(name: str) -> contextlib.AbstractContextManager:
    """Within it processes that start compute with the arithmetic ``name``; this one stays as it is."""
    from unittest import mock  # which only these need

    return mock.patch.dict(os.environ, environment_for(name), clear=True)


def restart_native() -> None:
    """Start this command again with native arithmetic, in this process's place; nothing where it is native already."""
    if os.environ.get(VARIABLE) != NATIVE:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-m", "entp_lib", *sys.argv[1:]], environment_for(NATIVE))
