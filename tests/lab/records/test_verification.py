"""Verification: a record that is true is computed again as it is, one that is not is found out."""

import dataclasses

import pytest

from entp_lab import cli
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import run
from entp_lab.store import Store
from entp_lab.verify import BOUND, OTHER_KERNELS, compare, report, verify
from entp_papers.encoder_decoder.computing import costs_study
from entp_papers.entp.count3 import COUNT3


@pytest.fixture
def record(small_run, store):
    return run(small_run(), 1, store=store)


def with_loss(record, factor):
    return dataclasses.replace(record, metrics=record.metrics | {"loss": record.metrics["loss"] * factor})


def test_a_true_record_is_identical_and_its_store_unchanged(record, store):
    before = sorted(store.root.rglob("*"))
    steps = []
    found = verify(record, store, steps.append)
    assert steps == list(range(1, record.config.steps + 1))
    assert (found.outcome, found.largest, found.where) == ("identical", 0.0, "")
    assert found.computed.provenance["started"] and sorted(store.root.rglob("*")) == before


@pytest.mark.parametrize(("factor", "outcome"), [(1 + BOUND / 4, "within the bound"), (1 + 3 * BOUND, "differs")])
def test_a_record_that_is_not_what_its_configuration_gives_is_found(record, store, factor, outcome):
    found = verify(with_loss(record, factor), store)
    assert (found.outcome, found.where) == (outcome, "metrics.loss")


def test_a_run_in_bf16_by_other_kernels_is_judged_by_its_scores_at_the_end(record):
    half = dataclasses.replace(record.config, train=dataclasses.replace(record.config.train, precision="bf16"))
    now = dataclasses.replace(record, config=half, provenance=record.provenance | {"kernels": "new"})
    before = dataclasses.replace(record, config=half, curves={name: [9.0] for name in record.curves})
    assert compare(before, now).outcome == OTHER_KERNELS and "1 of 1 records are made by other" in report(
        [compare(before, now)]
    )
    assert compare(with_loss(before, 1.5), now).outcome == "differs"
    assert compare(dataclasses.replace(before, provenance=now.provenance), now).outcome == "differs"


def test_what_is_missing_or_told_otherwise_counts(record):
    less = dataclasses.replace(record, metrics={k: v for k, v in record.metrics.items() if k != "loss"})
    assert compare(record, less).outcome == "differs" and compare(record, less).where == "metrics.loss"
    none = dataclasses.replace(record, metrics=record.metrics | {"loss": None})
    assert compare(record, none).outcome == "differs" and compare(none, none).outcome == "identical"
    other = dataclasses.replace(record, metrics=record.metrics | {"words": "a"})
    changed = dataclasses.replace(record, metrics=record.metrics | {"words": "b"})
    assert compare(other, changed).outcome == "within the bound" and compare(other, changed).where == "texts"
    texts = [dataclasses.replace(record, curves=record.curves | {"case": [word] * 3}) for word in "ab"]
    assert compare(*texts).outcome == "within the bound" and compare(*texts).where == "texts"
    sizes = [dataclasses.replace(record, metrics=record.metrics | {"corpus": {"bytes": n}}) for n in (10, 20)]
    assert compare(*sizes).where == "metrics.corpus.bytes"
    later = dataclasses.replace(record, curves=record.curves | {"seconds": [9.0] * len(record.curves["seconds"])})
    assert compare(record, later).outcome == "identical"


def test_costs_that_a_clock_measured_are_no_difference(record):
    """A record of what writing costs is what its study returns, but for times; so is one of passes per second."""
    study = dict(lengths=[4, 8], far=[2**10, 2**11], n_layers=2, width=8, rounds=1)
    taken = [dataclasses.replace(record, metrics=m, curves=c) for m, c in (costs_study(**study) for _ in range(2))]
    assert taken[0].curves["cpu_seconds"] != taken[1].curves["cpu_seconds"]
    assert compare(*taken).outcome == "identical"
    rates = [dataclasses.replace(record, curves={"passes_per_second": [rate]}) for rate in (10.0, 20.0)]
    assert compare(*rates).outcome == "identical"


def test_where_another_processor_computed_a_run_the_report_says_what_that_may_do(record):
    where = record.provenance | {"device": "another processor"}
    for stored, said in ((with_loss(record, 2.0), False), (with_loss(record, 2.0), True)):
        stored = dataclasses.replace(stored, provenance=where) if said else stored
        text = report([compare(stored, record)])
        assert ("as another seed would" in text) == said and "0 within 0.02 in every number, 1 not" in text


def test_the_command_says_what_came_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    store = Store()
    assert COUNT3.name in EXPERIMENTS
    config = COUNT3.configs("smoke", 1)[0]
    record = run(config, COUNT3.version, store=store)
    command = ["verify", "count3", "--tier", "smoke"]
    assert cli.main([*command, "--sample", "1"]) == 0
    assert "1 of 1 records are identical" in capsys.readouterr().out
    store.save(with_loss(record, 2.0))
    assert cli.main([*command, "--sample", "1"]) == 1
    assert "differs" in (out := capsys.readouterr().out) and "metrics.loss" in out
    assert cli.main([*command, "--sample", "2"]) == 2
    assert "there are 1 complete records" in capsys.readouterr().err
