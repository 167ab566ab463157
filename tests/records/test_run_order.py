"""Pairs are finished where they were begun, and one that was made apart says so beside its verdict."""

import dataclasses

import pytest

from entp_lib.config import config_id
from entp_lib.experiments import claims
from entp_lib.experiments.experiment import name_of
from entp_lib.records import sweeps
from entp_lib.records.provenance import pairs_apart, provenance
from entp_lib.records.store import Record, Store
from entp_lib.records.sweeps import run_order, sweep
from entp_lib.reports import ledger
from entp_lib.tasks.counting import IN_OTHER_ORDERS
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3


def made(config, **where):
    return Record(config.experiment, 1, config, {}, {}, {**provenance("cpu", 1), **where})


def test_twins_of_what_is_here_come_first_and_of_what_is_elsewhere_last(small_run):
    pairs = [[small_run(a, seed) for a in ("decoder", "entp")] for seed in range(4)]
    todo = {config_id(entp, 1): entp for _, entp in pairs}
    stored = [made(pairs[0][0], cpu_capability="other"), made(pairs[2][0]), made(pairs[3][0], device="another")]
    order = [config.model_seed for config in run_order(todo, stored, "cpu").values()]
    assert order == [2, 1, 0, 3]
    assert list(run_order(todo, [], "cpu")) == list(todo)


def test_runs_that_differ_in_more_than_the_architecture_are_pairs_too(small_run):
    """A claim may compare depths or lengths, which share their seed."""
    deep = [small_run("decoder", seed, model=dict(n_layers=4)) for seed in range(3)]
    todo = {config_id(c, 1): c for c in deep}
    stored = [made(small_run("decoder", 2)), made(small_run("decoder", 0), device="another")]
    assert [c.model_seed for c in run_order(todo, stored, "cpu").values()] == [2, 1, 0]


def test_a_device_that_is_not_there_is_a_line(small_run, store):
    with pytest.raises(ConfigError, match="finds no CUDA device here"):
        sweep([small_run()], 1, store=store, device="cuda:7", jobs=1)


def test_a_sweep_goes_by_it(small_run, store, monkeypatch):
    configs = [small_run(a, seed) for a in ("decoder", "entp") for seed in range(3)]
    sweep(configs[1:2], 1, store=store, jobs=1)
    seen = []
    original = sweeps.execute
    monkeypatch.setattr(sweeps, "execute", lambda config, *rest: seen.append(config) or original(config, *rest))
    done = sweep(configs, 1, store=store, jobs=1)
    first = seen[0]
    assert (first.model.architecture, first.model_seed, len(seen)) == ("entp", 1, 5)
    assert [r.config for r in done.records] == configs  # whatever the order of computing


def test_pairs_made_apart_say_so(small_run):
    pairs = [[made(small_run(a, seed), sources="one") for a in ("decoder", "entp")] for seed in range(3)]
    together = [record for pair in pairs for record in pair]
    resumed = made(small_run(), sources="two", earlier_processes=[{"sources": "one"}])
    assert pairs_apart([resumed, pairs[1][0]]) == "1 of 2 runs continued with other sources"
    assert pairs_apart([resumed, pairs[0][1]]) == "1 of 1 pairs from different sources"
    assert pairs_apart(together) == "" and pairs_apart([]) == ""
    pairs[1][1].provenance["cpu_capability"] = "NO AVX"
    assert pairs_apart(together) == "1 of 3 pairs from different instruction sets"
    pairs[0][0].provenance["sources"] = "two"
    del pairs[2][0].provenance["sources"]
    assert pairs_apart(together).endswith("; 1 of 3 pairs from different sources")


def test_it_stands_beside_the_verdict_in_the_ledger(monkeypatch):
    stored = COUNT3.stored(Store(), "quick")
    measurement = next(m for m in COUNT3.measure(stored) if m.claim == "F2-tokens")
    records = [r for r in stored if name_of(r) in measurement.records]
    assert ledger.caveats_of(COUNT3, records, measurement) == f"{IN_OTHER_ORDERS}; still improving after 1,200 steps"
    moved = [dataclasses.replace(r, provenance={**r.provenance}) for r in records]
    for record in moved:
        if record.config.model.architecture == "entp":
            record.provenance["device"] = "another processor"
    said = ledger.caveats_of(COUNT3, moved, measurement)
    assert said == f"{IN_OTHER_ORDERS}; 5 of 5 pairs from different processors; still improving after 1,200 steps"
    table = claims.judge([measurement], only_measured=True).assign(caveats=said)
    assert claims.readable(table)["verdict"].tolist() == [f"same direction ({said})"]


def test_no_claim_rests_on_seconds():
    """Seconds depend on who else uses the cores; they are shown, and decide nothing."""
    units = set(claims.reference_claims()["unit"].dropna())
    assert not [unit for unit in units if "second" in unit or unit in ("s", "ms", "hours")]
