"""Instruction set of CPU arithmetic: which one is in force here, and processes that are held to AVX2.

Libraries choose kernels by processor, and AVX-512 sums in another order than AVX2. This package leaves the choice to
them, and a record says what was in force. They read their variables once, when they load or are first used: only a
process that starts with these is held to AVX2, as one is that computes a record again which was made so.
"""

import contextlib
import os
from collections.abc import Iterator

from entp_lib.kernels.processor import processor_flags

AVX2, NATIVE = "AVX2", "native"
# What ATen, oneDNN, MKL and NumPy's OpenBLAS read.
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}


def has_avx2() -> bool:
    """Whether this processor has AVX2 and FMA; False where Linux does not say."""
    return {"avx2", "fma"} <= processor_flags()


def in_force() -> str:
    """``AVX2`` where this process was started with every library held to it, else ``native``."""
    import torch  # which the command line's help does without

    held = all(os.environ.get(name) == value for name, value in VARIABLES.items())
    return AVX2 if held and torch.backends.cpu.get_cpu_capability() == AVX2 else NATIVE


def environment_for(name: str) -> dict[str, str]:
    """This process's environment for another process that is to compute with the arithmetic ``name``."""
    rest = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return rest | (VARIABLES if name == AVX2 else {})


@contextlib.contextmanager
def for_new_processes(name: str) -> Iterator[None]:
    """Within it processes that start compute with the arithmetic ``name``; this one stays as it is."""
    before = dict(os.environ)
    changed = environment_for(name)
    try:
        os.environ.clear()
        os.environ.update(changed)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
