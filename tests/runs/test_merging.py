"""Merging stores: nothing lost, nothing conflicting, what is damaged or foreign named and left out."""

import itertools
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from entp_lib.config import StudyConfig, config_id
from entp_lib.report.scale import merge_command
from entp_lib.runs import execution
from entp_lib.runs.merging import merge
from entp_lib.runs.records import Record, Store
from entp_lib.runs.shards import Shard, take
from entp_lib.runs.sweeps import sweep
from entp_lib.strict import ConfigError
from entp_lib.training.checkpoints import checkpoint_step
from entp_lib.training.loop import train

VERSIONS = {"test": 1}


@pytest.fixture
def place(tmp_path):
    """A function that makes a store of its own name, with records of the given values."""

    def make(name, values=(), **changes):
        made = Store(tmp_path / name, read_only=False)
        made.check_writable()
        for n in values:
            made.save(replace(a_record(n), **changes))
        return made

    return make


def a_record(n, status="complete", torch="2.13.0", **metrics):
    where = {"versions": {"torch": torch}, "steps": n, "wall_seconds": 1.0}
    config = StudyConfig("test", "smoke", "costs", {"n": n})
    return Record("test", 1, config, {"loss": float(n), **metrics}, {}, where, status)


def a_run(small_run, architecture, torch, n=0):
    where = {"versions": {"torch": torch}, "steps": 12}
    return Record("test", 1, small_run(architecture, n), {"loss": 1.0}, {}, where)


def ids(store):
    return sorted(r.config.params["n"] for r in store.all("test"))


def test_stores_are_joined_and_a_second_merge_changes_nothing(place, tmp_path):
    one, two, into = place("one", [1, 2]), place("two", [2, 3]), place("into", [4])
    done = merge([one.root, two.root], into, VERSIONS)
    assert (done.added, done.present, done.left_out, done.differing) == (3, 0, [], [])
    assert ids(into) == [1, 2, 3, 4]
    before = {p: p.stat().st_mtime_ns for p in (into.root / "records").rglob("*.json")}
    again = merge([two.root, one.root], into, VERSIONS)
    assert (again.added, again.present) == (0, 3)
    assert {p: p.stat().st_mtime_ns for p in (into.root / "records").rglob("*.json")} == before


def test_damaged_and_foreign_records_are_named_and_left_out(place):
    one, into = place("one", [1, 2, 3]), place("into")
    path = one.path("test", config_id(a_record(2).config, 1))
    path.write_text(path.read_text()[:-20])
    one.save(replace(a_record(5), experiment="theirs", config=StudyConfig("theirs", "smoke", "costs", {})))
    one.save(replace(a_record(6), version=7))
    done = merge([one.root], into, VERSIONS)
    assert done.added == 2 and ids(into) == [1, 3]
    lines = sorted(done.left_out)
    assert len(lines) == 3 and path.stem in "".join(lines) and "cannot be read" in "".join(lines)
    assert any("records of theirs, which is no experiment of this project (1)" in line for line in lines)
    assert any("records of version 7 of test, which is at 1 (1)" in line for line in lines)


def test_a_complete_record_beats_a_partial_one_and_the_furthest_partial_one_wins(place):
    one, two, into = place("one"), place("two"), place("into")
    config = a_record(1).config
    for store, steps in ((one, 5), (two, 9)):
        store.save(replace(a_record(1), status="partial", provenance={"steps": steps}))
        store.checkpoint_path("test", config_id(config, 1)).parent.mkdir(parents=True)
        store.checkpoint_path("test", config_id(config, 1)).write_bytes(bytes([steps]))
    assert merge([one.root, two.root], into, VERSIONS).files == 1
    assert into.find(config, 1).provenance["steps"] == 9
    assert into.checkpoint_path("test", config_id(config, 1)).read_bytes() == bytes([9])
    assert merge([one.root], into, VERSIONS).added == 0
    one.save(a_record(1))
    assert merge([one.root], into, VERSIONS).added == 1
    assert into.find(config, 1).status == "complete" and merge([two.root], into, VERSIONS).added == 0


def test_records_that_came_twice_with_other_numbers_are_told_and_the_first_is_kept(place):
    one, two, into = place("one", [1]), place("two"), place("into")
    two.save(replace(a_record(1), metrics={"loss": 1.25}))
    done = merge([one.root, two.root], into, VERSIONS)
    assert into.find(a_record(1).config, 1).metrics == {"loss": 1.0}
    (line,) = done.differing
    assert line.endswith("0.2 apart in metrics.loss")


def test_weights_come_along_and_damaged_ones_stay_behind(small_run, store, place):
    config = small_run()
    sweep([config], 1, store=store, jobs=1)
    weights, into = store.weights_path("test", config_id(config, 1)), place("into")
    assert merge([store.root], into, VERSIONS).files == 1
    assert into.weights_path("test", weights.name.split(".")[0]).read_bytes() == weights.read_bytes()
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00\x01")
    assert merge([store.root], place("other"), VERSIONS).files == 0


def test_weights_come_from_whichever_place_of_the_same_record_has_them(small_run, store, place):
    """As where an archive without weights is named before the folder that it was made from."""
    config = small_run()
    sweep([config], 1, store=store, jobs=1)
    bare, into, weights = place("bare"), place("into"), store.weights_path("test", config_id(config, 1))
    bare.save(store.find(config, 1))
    assert merge([bare.root, store.root], into, VERSIONS).files == 1
    assert into.weights_path("test", weights.name.split(".")[0]).read_bytes() == weights.read_bytes()


def test_weights_that_were_there_before_the_record_are_not_taken_for_its_own(place):
    source, into = place("one", [1]), place("into")
    (record,) = source.all("test")
    old = into.weights_path("test", record.id)
    old.parent.mkdir(parents=True)
    old.write_bytes(b"weights of another run")
    assert merge([source.root], into, VERSIONS).added == 1 and not old.exists()
    assert [p.read_bytes() for p in (into.root / "set_aside").iterdir()] == [b"weights of another run"]


def test_pairs_across_versions_of_torch_are_refused_before_anything_changes(small_run, place):
    one, two, into = place("one"), place("two"), place("into")
    one.save(a_run(small_run, "entp", "2.13.0+cpu"))
    two.save(a_run(small_run, "decoder", "2.11.0"))
    with pytest.raises(ConfigError, match=r"torch 2.11.0, its twin, entp, seed 0, with 2.13.0; --mixed"):
        merge([one.root, two.root], into, VERSIONS)
    assert into.all("test") == []
    assert merge([one.root], into, VERSIONS).added == 1  # alone it pairs with nothing
    with pytest.raises(ConfigError, match="--mixed"):
        merge([two.root], into, VERSIONS)
    assert merge([two.root], into, VERSIONS, mixed=True).added == 1
    another = place("another")
    another.save(a_run(small_run, "decoder", "2.11.0", n=1))  # another seed: no twin
    assert merge([another.root], into, VERSIONS).added == 1


def test_a_partial_record_does_not_hide_another_torch(small_run, place):
    """Here the decoder is complete and ENTP partial; there ENTP is complete, by another torch."""
    one, two = place("one"), place("two")
    for store, architecture, torch, status in (
        (one, "decoder", "2.13.0", "complete"),
        (one, "entp", "2.13.0", "partial"),
        (two, "entp", "2.11.0", "complete"),
    ):
        store.save(replace(a_run(small_run, architecture, torch), status=status))
    for n, places in enumerate(([one.root, two.root], [two.root, one.root])):
        with pytest.raises(ConfigError, match="--mixed"):
            merge(places, place(f"into{n}"), VERSIONS)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_checkpoint_that_is_further_along_is_kept(small_run, place, recorded):
    """A run that was killed leaves a checkpoint and no record, or an older one."""
    one, into = place("one"), place("into")
    ahead = into.checkpoint_path("test", config_id(small_run(), 1))
    for store, steps in ((one, 4), (into, 8)):
        path, asked = store.checkpoint_path("test", config_id(small_run(), 1)), itertools.count(1)
        train(small_run(), checkpoint=path, stop=lambda asked=asked, steps=steps: next(asked) > steps)
        if store is one or recorded:
            store.save(replace(a_run(small_run, "decoder", "2.13.0"), status="partial", provenance={"steps": 4}))
    was = checkpoint_step(ahead)
    assert was > checkpoint_step(one.checkpoint_path("test", ahead.stem)) > 0
    assert merge([one.root], into, VERSIONS).files == 0 and checkpoint_step(ahead) == was
    ahead.write_bytes(b"damaged")
    assert merge([one.root], into, VERSIONS).files == 1 and 0 < checkpoint_step(ahead) < was


def test_shards_are_merged_into_one_ledger_and_a_missing_one_is_told(place, monkeypatch):
    configs = [a_record(n).config for n in range(7)]
    stores = [place(name) for name in ("a", "b", "c")]
    for i, store in enumerate(stores, 1):
        for config in take(configs, 1, Shard(i, 3), store):
            store.save(a_record(config.params["n"]))
    into = place("into")
    done = merge([stores[0].root, stores[2].root], into, VERSIONS)
    assert done.missing == ["test smoke: shard 2/3 is missing, and with it 2 of 7 runs"]
    assert merge([stores[1].root], into, VERSIONS).missing == [] and ids(into) == list(range(7))
    monkeypatch.setattr("entp_lib.runs.shards.sources", lambda: "another")
    take(configs, 1, Shard(2, 3), stores[1])
    more = place("more")
    with pytest.raises(ConfigError, match="shard 1/3 was computed by other code .* than 2/3"):
        merge([s.root for s in stores], more, VERSIONS)
    merge([stores[0].root], more, VERSIONS)
    take(configs, 1, Shard(1, 3), stores[0])  # the same shard once more, by the other code
    with pytest.raises(ConfigError, match="shard 1/3 was computed by other code .* than 1/3"):
        merge([stores[0].root, stores[1].root], more, VERSIONS)
    with pytest.raises(ConfigError, match="shard 1/3 was computed by other code .* than 2/3"):
        merge([stores[1].root], more, VERSIONS)
    assert merge([stores[1].root], more, VERSIONS, mixed=True).added == 2


def test_a_folder_or_archive_of_several_results_brings_them_all(place, tmp_path):
    for name, values in (("one", [1, 2]), ("two", [2, 3]), ("three", [4])):
        place(f"all/{name}", values)
    done = merge([tmp_path / "all"], place("into"), VERSIONS)
    assert done.added == 4 and ids(place("into")) == [1, 2, 3, 4]
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "all", ".")
    assert merge([tmp_path / "all.tar.gz"], place("other"), VERSIONS).added == 4
    with pytest.raises(ConfigError, match="all.two is the store that records would come to"):
        merge([tmp_path / "all"], place("all/two"), VERSIONS)


def test_an_archive_is_a_place_too(place, tmp_path):
    one, into = place("one", [1, 2]), place("into")
    with tarfile.open(tmp_path / "one.tar.gz", "w:gz") as archive:
        archive.add(one.root, "campaign")
    shutil.rmtree(one.root)
    assert merge([tmp_path / "one.tar.gz"], into, VERSIONS).added == 2 and ids(into) == [1, 2]


def test_a_damaged_archive_loses_nothing_in_silence(place, tmp_path):
    """The header of a member in the middle, damaged, would merely end the list of members."""
    one, path = place("one", range(20)), tmp_path / "one.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        archive.add(one.root, "campaign")
    sound = path.read_bytes()
    assert merge([path], place("into"), VERSIONS).added == 20
    for n, header in enumerate(re.finditer(b"ustar", sound)):
        at = header.start()
        path.write_bytes(sound[:at] + b"U" + sound[at + 1 :])
        with pytest.raises(ConfigError, match="is no archive of results"):
            merge([path], place(f"into{n}"), VERSIONS)
    for kind in ("bz2", "xz"):
        with tarfile.open(tmp_path / f"one.tar.{kind}", f"w:{kind}") as archive:
            archive.add(one.root, "campaign")
        path = tmp_path / f"one.tar.{kind}"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is no archive of results"):
            merge([path], place(kind), VERSIONS)


@pytest.mark.parametrize("cut", [True, False])
def test_an_archive_without_a_checksum_is_read_to_its_end_or_refused(place, tmp_path, cut):
    """Cut between two members, or with a damaged header, it would merely have fewer of them."""
    one, path = place("one", range(6)), tmp_path / "one.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(one.root, "campaign")
    sound = path.read_bytes()
    for n, header in enumerate(list(re.finditer(b"ustar", sound))[1:]):
        at = header.start()
        path.write_bytes(sound[: at - at % 512] if cut else sound[:at] + b"U" + sound[at + 1 :])
        with pytest.raises(ConfigError, match="is no archive of results"):
            merge([path], place(f"into{n}"), VERSIONS)
    path.write_bytes(sound)
    assert merge([path], place("into"), VERSIONS).added == 6


def test_places_may_be_named_from_the_working_directory(place, tmp_path, monkeypatch):
    for name, value in (("one", 1), ("all/two", 2)):
        place(name, [value])
    monkeypatch.chdir(tmp_path)
    assert merge([Path("one"), Path("all")], place("into"), VERSIONS).added == 2
    with pytest.raises(ConfigError, match="^into is the store that records would come to"):
        merge([Path("into")], place("into"), VERSIONS)


def test_a_link_that_leads_nowhere_is_named_and_left_out(place):
    one = place("one", [1])
    (one.root / "records" / "test" / ("a" * 16 + ".json")).symlink_to("nowhere")
    done = merge([one.root], place("into"), VERSIONS)
    assert done.added == 1 and len(done.left_out) == 1 and "a link that leads nowhere" in done.left_out[0]


def test_a_shard_that_ended_before_its_runs_is_told(place):
    configs = [a_record(n).config for n in range(4)]
    one, two, into = place("one"), place("two"), place("into")
    for config in take(configs, 1, Shard(1, 2), one):
        one.save(a_record(config.params["n"]))
    first, _ = take(configs, 1, Shard(2, 2), two)
    two.save(a_record(first.params["n"]))
    done = merge([one.root, two.root], into, VERSIONS)
    assert done.added == 3 and len(done.missing) == 1
    assert done.missing[0].startswith("test smoke: shard 2/2 came without 1 of its 2 runs")
    for config in configs:
        two.save(a_record(config.params["n"]))
    assert merge([two.root], into, VERSIONS).missing == []


def test_the_checkpoint_of_a_cut_fresh_generation_comes_along(small_run, place):
    one, into = place("one"), place("into")
    asked = itertools.count(1)
    execution.run(small_run(), 1, store=one, generation="abcd1234", stop=lambda: next(asked) > 4)
    (left,) = one.fresh_checkpoints("test", config_id(small_run(), 1))
    assert merge([one.root], into, VERSIONS).files == 1
    assert checkpoint_step(into.checkpoint_path("test", config_id(small_run(), 1))) == checkpoint_step(left) > 0


def test_places_that_cannot_be_merged_are_a_line_each(place, tmp_path):
    into = place("into", [1])
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no archive")
    for name, message in (
        ("nowhere", "no such folder or archive"),
        ("empty", "holds no records"),
        ("text", "is no archive of results"),
        ("into", "is the store that records would come to"),
    ):
        with pytest.raises(ConfigError, match=message):
            merge([tmp_path / name], into, VERSIONS)


def test_the_command_says_what_it_did(place, tmp_path, capsys):
    one = place("one", [1])
    from types import SimpleNamespace

    options = SimpleNamespace(places=[str(one.root)], into=str(tmp_path / "into"), mixed=False)
    assert merge_command(options) == 1  # "test" is no experiment of this project
    said = capsys.readouterr()
    assert "records of test, which is no experiment of this project (1)" in said.err
    assert said.out == "0 records came in, 0 were here, 1 things were left out\n"
