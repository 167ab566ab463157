"""What a step frees is there for the next one, without new pages of the system, until it is given
back.
"""

import platform

import pytest
from made_up import environment_without, python

MEASURE = """
import resource, torch
from entp_lab.provenance import prepare_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [torch.zeros(2**24) for _ in range(3)]  # 64 MiB each, more than glibc keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 2**20

faults()
by_default = faults()
prepare_memory("cpu")
[faults() for _ in range(9)]  # until its places are found
kept, held = faults(), resident()
prepare_memory("cpu")
print(by_default, kept, held - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_that_was_freed_is_used_again_and_can_be_given_back():
    environment = environment_without("MALLOC_", "GLIBC_")
    done = python("-c", MEASURE, env=environment, check=True)
    by_default, kept, given = map(int, done.stdout.split())
    assert 8 * kept < by_default  # 49,152 pages of 4 KiB, or 96 huge ones
    assert given >= 150  # MiB
