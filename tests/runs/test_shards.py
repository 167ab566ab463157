"""Shards of a plan: every run in exactly one, alike work in each, and notes that tell what is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.config import StudyConfig, config_id
from entp_lib.runs import shards
from entp_lib.runs.shards import Shard, gaps, notes, share, take
from entp_lib.strict import ConfigError


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "3/0", "a/b", "-1/3", "1/3/5", ""])
def test_a_shard_that_is_none_is_refused_in_a_line(text):
    with pytest.raises(ConfigError, match="--shard .*(write 3/16|must be from 1/3 to 3/3)"):
        Shard.parse(text)


def test_a_shard_is_read_and_written_alike():
    assert Shard.parse("3/16") == Shard(3, 16) and str(Shard(3, 16)) == "3/16"


def plan(size):
    return [StudyConfig("test", "smoke", f"study {i % 3}", {"n": i}) for i in range(size)]


@given(st.integers(0, 40), st.integers(1, 12), st.randoms())
def test_every_run_is_in_exactly_one_shard_whatever_the_order_of_the_plan(size, count, random):
    configs = plan(size)
    shares = [share(configs, 1, Shard(i, count)) for i in range(1, count + 1)]
    assert sorted(c.params["n"] for part in shares for c in part) == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    shuffled = random.sample(configs, len(configs))
    for i, part in enumerate(shares, 1):
        assert {c.params["n"] for c in share(shuffled, 1, Shard(i, count))} == {c.params["n"] for c in part}
        assert [c.params["n"] for c in part] == sorted(c.params["n"] for c in part)


def test_each_shard_has_as_many_of_an_architecture_as_any_other(small_run):
    configs = [small_run(architecture, seed) for seed in range(6) for architecture in ("decoder", "entp")]
    for i in (1, 2, 3):
        kinds = [c.model.architecture for c in share(configs, 1, Shard(i, 3))]
        assert sorted(kinds) == ["decoder"] * 2 + ["entp"] * 2


def everything(experiment, record_id):
    """Every run is complete."""
    return True


def test_notes_tell_which_shard_is_missing_and_which_came_twice(store):
    configs = plan(10)
    for i in (1, 3):
        take(configs, 1, Shard(i, 3), store)
    found, damaged = notes(store.root)
    assert [n.index for n in found] == [1, 3] and damaged == []
    assert {i for n in found for i in n.mine} < {config_id(c, 1) for c in configs} == set(found[0].plan)
    here = [(n, "here") for n in found]
    assert gaps(here, everything) == (["test smoke: shard 2/3 is missing, and with it 3 of 10 runs"], [])
    missing, twice = gaps([*here, (found[0], "there")], everything)
    assert twice == ["test smoke: shard 1/3 came from here and there"] and len(missing) == 1
    take(configs, 1, Shard(2, 2), store)
    missing, twice = gaps([(n, "here") for n in notes(store.root)[0]], everything)
    assert missing == ["test smoke: 1 of 10 runs are in no shard"] or "in no shard" in missing[0]
    assert twice == ["test smoke: shards of 2 and 3 overlap; each run's first complete record is kept"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"experiment": 3}'])
def test_a_file_that_is_no_note_is_named(store, text):
    folder = store.root / "shards"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(text)
    assert notes(store.root) == ([], [folder / "x.json"])


def test_a_renamed_note_is_no_note(store):
    take(plan(4), 1, Shard(1, 2), store)
    (path,) = (store.root / "shards").glob("*.json")
    path.rename(path.with_name("other.json"))
    assert shards.notes(store.root) == ([], [path.with_name("other.json")])
