"""Arithmetic is the processor's own, and a record that was made with AVX2 alone is computed again
so.
"""

import os

import pytest
from made_up import python

from entp_lab import provenance
from entp_lib.kernels import processor

needs_avx2 = pytest.mark.skipif(not provenance.has_avx2(), reason="no AVX2 here")
ASK = """
import os, torch
import entp_lab.provenance as a
print(a.arithmetic_here(), torch.backends.cpu.get_cpu_capability())
"""
LATE = f"""
import os, torch
import entp_lab.provenance as a
torch.ones(9).exp().sum()
os.environ |= a.VARIABLES
{ASK}
"""


def told(code=ASK, environment=None):
    return python("-c", code, env=environment, check=True).stdout.split()


@pytest.mark.parametrize(
    "modules", ["entp_lib entp_lab.registry torch entp_lab.runs", "torch entp_lib"]
)
def test_importing_changes_nothing_of_the_process(modules):
    code = "import os, threading; before = dict(os.environ)"
    for module in modules.split():
        code += f"; import {module}; print(before == dict(os.environ), threading.active_count())"
    assert told(code) == ["True", "1"] * len(modules.split())


@needs_avx2
def test_a_process_is_held_to_avx2_only_if_it_was_started_so():
    assert told(environment=provenance.environment_for("AVX2")) == ["AVX2", "AVX2"]
    assert told(environment=provenance.environment_for("native"))[0] == "native"
    name, capability = told(LATE, provenance.environment_for("native"))
    assert name == ("AVX2" if capability == "AVX2" else "native")


def test_the_environment_is_as_before_behind_new_processes(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    before = dict(os.environ)
    with pytest.raises(KeyError), provenance.for_new_processes("AVX2"):
        assert os.environ.items() >= provenance.VARIABLES.items()
        raise KeyError
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("flags", "isa", "expected"),
    [
        ({"avx512_bf16"}, None, True),
        ({"avx512_bf16"}, "AVX2", False),
        ({"amx_bf16"}, "AVX512_CORE_AMX", True),
        ({"avx2", "fma"}, None, False),
    ],
)
def test_bf16_products_need_the_instructions_and_leave_to_use_them(
    flags, isa, expected, monkeypatch
):
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(flags))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if isa:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    assert processor.multiplies_bf16() is expected
