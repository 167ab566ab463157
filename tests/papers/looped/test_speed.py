"""The benchmark of the looped computer runs what it says."""

from benchmarks.looped import thousand_programs


def test_programs_are_timed():
    assert thousand_programs(programs=3, steps=2, chunk=2) > 0
