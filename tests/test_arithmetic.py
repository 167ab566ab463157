"""Arithmetic is AVX2's on every processor that has it, and a record is computed again in its own."""

import dataclasses
import subprocess
import sys

import pytest

from entp_lib import arithmetic
from entp_lib.records.execution import run
from entp_lib.records.provenance import arithmetic_of
from entp_lib.records.verification import verify

needs_avx2 = pytest.mark.skipif(not arithmetic.has_avx2(), reason="no AVX2 here")
ASK = "import entp_lib.arithmetic as a, torch; print(a.in_force(), torch.backends.cpu.get_cpu_capability())"


def told(code=ASK, environment=None):
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return found.stdout.split()


@needs_avx2
def test_avx2_unless_native_is_asked_for():
    assert told() == ["AVX2", "AVX2"]
    assert told(environment=arithmetic.environment_for("native"))[0] == "native"


@needs_avx2
def test_a_library_that_came_first_is_not_said_to_have_been_asked():
    rest = {k: v for k, v in arithmetic.environment_for("native").items() if k != arithmetic.VARIABLE}
    assert told("import numpy\n" + ASK, rest)[0] == "native"


@needs_avx2
def test_variables_that_are_set_stay():
    environment = {"ATEN_CPU_CAPABILITY": "default"}
    arithmetic.choose(environment)
    assert environment["ATEN_CPU_CAPABILITY"] == "default" and environment["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_a_processor_without_avx2_is_asked_for_nothing(monkeypatch):
    monkeypatch.setattr(arithmetic, "has_avx2", lambda: False)
    environment = {}
    arithmetic.choose(environment)
    assert environment == {}


def test_records_without_the_field_are_taken_at_their_instruction_set(small_run, store):
    record = run(small_run(), 1, store=store)
    assert arithmetic_of(record) == record.provenance.pop("arithmetic")
    for capability, name in (("AVX2", "AVX2"), ("AVX512", "native"), (None, "native")):
        record.provenance["cpu_capability"] = capability
        assert arithmetic_of(record) == name


@needs_avx2
def test_verify_computes_in_the_records_own_arithmetic(small_run, store):
    record = run(small_run(), 1, store=store)
    other = arithmetic.NATIVE if arithmetic.in_force() == arithmetic.AVX2 else arithmetic.AVX2
    elsewhere = dataclasses.replace(record, provenance=record.provenance | {"arithmetic": other})
    assert verify(record, store).computed.provenance["arithmetic"] == arithmetic.in_force()
    assert verify(elsewhere, store).computed.provenance["arithmetic"] == other


@pytest.mark.parametrize(
    ("flags", "isa", "expected"),
    [
        ({"avx512_bf16"}, None, True),
        ({"avx512_bf16"}, "AVX2", False),
        ({"amx_bf16"}, "AVX512_CORE_AMX", True),
        ({"avx2", "fma"}, None, False),
    ],
)
def test_bf16_products_need_the_instructions_and_leave_to_use_them(flags, isa, expected, monkeypatch):
    monkeypatch.setattr(arithmetic, "processor_flags", lambda: frozenset(flags))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if isa:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    assert arithmetic.multiplies_bf16() is expected
