"""Fresh generations: what exists stays until its successor is complete, and a time limit does not begin them anew."""

import pytest
import torch

from entp_lib.runs import execution, generations
from entp_lib.runs.records import Record, Store
from entp_lib.runs.sweeps import SweepError, sweep
from entp_lib.training import loop


@pytest.fixture
def configs(small_run):
    return [small_run("decoder", seed, steps=40, eval_every=10) for seed in range(3)]


class Clock:
    """A clock that stands still until so many training steps were made, and then is past every deadline."""

    def __init__(self, steps):
        self.left = steps

    def cut(self, configs, store, monkeypatch, fresh=True):
        """A sweep whose time limit passes after ``steps`` steps."""
        real = loop.optimise

        def optimise(*arguments):
            self.left -= 1
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "optimise", optimise)
            patch.setattr(loop.time, "monotonic", lambda: 0.0 if self.left > 0 else 1e9)
            return sweep(configs, 1, store=store, jobs=1, time_limit=1e8, fresh=fresh)


def contents(store):
    return {p.name: p.read_text() for p in sorted((store.root / "records").glob("*/*.json"))}


def test_a_time_limit_never_replaces_a_complete_record(configs, store, monkeypatch):
    sweep(configs, 1, store=store, jobs=1)
    before = contents(store)
    cut = Clock(15).cut(configs, store, monkeypatch)
    assert [r.status for r in cut.records] == ["partial"] * 3
    assert [r.provenance["steps"] for r in cut.records] == [15, 0, 0]
    assert contents(store) == before
    again = sweep(configs, 1, store=store, jobs=1)
    assert (again.reused, again.computed) == (3, 0)


def test_a_fresh_generation_goes_on_where_it_was_cut_and_ends(configs, store, monkeypatch):
    old = sweep(configs, 1, store=store, jobs=1).records
    made = []
    real = loop.optimise
    monkeypatch.setattr(loop, "optimise", lambda *a: (made.append(a[5]), real(*a))[1])
    calls, part = 0, None
    while calls < 20 and (part is None or len(part.complete) < 3):
        part = Clock(25).cut(configs, store, monkeypatch)
        calls += 1
    assert calls == 5 and len(made) == 120  # 120 steps in all, none of them twice
    tokens = {r.provenance["generation"] for r in part.records}
    assert len(tokens) == 1 and all(r.metrics == o.metrics for r, o in zip(part.records, old, strict=True))
    assert all("generation" in text for text in contents(store).values())
    files = sorted(p.name.split(".", 1)[1] for p in store.root.glob("checkpoints/test/*"))
    assert files == ["weights.safetensors"] * 3
    after = sweep(configs, 1, store=store, jobs=1, fresh=True)  # the next one is another
    assert after.computed == 3 and {r.provenance["generation"] for r in after.records}.isdisjoint(tokens)


def test_other_sources_begin_another_generation(configs, store, monkeypatch):
    Clock(45).cut(configs, store, monkeypatch)
    assert len([r for r in store.all("test") if r.status == "complete"]) == 1
    monkeypatch.setattr(generations, "sources", lambda: "0123456789abcdef")
    assert sweep(configs, 1, store=store, jobs=1, fresh=True).computed == 3


@pytest.mark.parametrize("text", ["", "5", "null", "[]", '{"token": 1}', '{"sources": "x"}', "\ufeff{}"])
def test_a_damaged_token_begins_a_generation_anew(configs, store, monkeypatch, text):
    Clock(45).cut(configs[:1], store, monkeypatch)
    sweep(configs[:1], 1, store=store, jobs=1, fresh=True)
    path = generations.generation_path(store, "test", [r.id for r in store.all("test")])
    path.write_text(text, encoding="utf-8")
    assert sweep(configs[:1], 1, store=store, jobs=1, fresh=True).computed == 1 and not path.exists()


def test_a_run_without_fresh_takes_over_what_a_fresh_one_left(configs, store, monkeypatch):
    Clock(25).cut(configs[:1], store, monkeypatch)
    made, real = [], loop.optimise
    monkeypatch.setattr(loop, "optimise", lambda *a: (made.append(a[5]), real(*a))[1])
    assert sweep(configs[:1], 1, store=store, jobs=1).computed == 1 and made[0] == 26
    assert not list(store.root.glob("checkpoints/test/*fresh*"))


def test_a_failure_keeps_the_generation_open(configs, small_run, store, monkeypatch):
    """What was computed is not computed again when the failing run is tried once more."""
    bad = small_run(max_lr=1e30, warmup_steps=0)
    for reused in (0, 3):
        with pytest.raises(SweepError) as error:
            sweep([*configs, bad], 1, store=store, jobs=1, fresh=True)
        assert error.value.sweep.reused == reused and len(error.value.sweep.failures) == 1


def test_a_partial_record_replaces_only_a_partial_one(small_run, store):
    part = Record("test", 1, small_run(), {}, {"step": [1]}, {"steps": 1}, "partial")
    later = Record("test", 1, small_run(), {}, {"step": [1, 2]}, {"steps": 2}, "partial")
    whole = Record("test", 1, small_run(), {"loss": 1.0}, {"step": [1, 2, 3]}, {"steps": 3})
    found = []
    for record in (part, later, whole, later):
        store.save(record)
        found.append(store.find(record.config, 1).provenance["steps"])
    assert found == [1, 2, 3, 3]


def test_a_store_that_is_only_read_begins_no_generation(configs, store):
    sweep(configs, 1, store=store, jobs=1)
    before = sorted(store.root.rglob("*"))
    with pytest.raises(execution.RecordError, match="the store is read-only"):
        sweep(configs, 1, store=Store(store.root, read_only=True), fresh=True)
    assert sorted(store.root.rglob("*")) == before and torch.get_num_threads() == 1
