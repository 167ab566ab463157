"""Whether this processor can multiply in bf16."""

import os
import re
from functools import cache
from pathlib import Path


@cache
def processor_flags() -> frozenset[str]:
    """Return this processor's instruction sets as Linux names them; empty if unknown."""
    try:
        found = re.search("^flags.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return frozenset(found[0].split() if found else ())


def multiplies_bf16() -> bool:
    """Tell whether bf16 products run in bf16: the processor can, and oneDNN is allowed to."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
    allowed = any(name in limit for name in ("DEFAULT", "ALL", "BF16", "FP16", "AMX"))
    return allowed and bool({"avx512_bf16", "amx_bf16"} & processor_flags())
