"""Verification: a record that is true is computed again as it is, one that is not is found out."""

import dataclasses
import re

import pytest

from entp_lab import cli
from entp_lab.configs import StudyConfig
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import run
from entp_lab.store import RecordError, Store
from entp_lab.verify import BOUND, compare, report, verify
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


def test_on_the_same_processor_every_number_and_text_has_to_be_the_same(record, store):
    found = verify(with_loss(record, 1 + BOUND / 4), store)
    assert (found.outcome, found.where) == ("differs", "metrics.loss")
    none = dataclasses.replace(record, metrics=record.metrics | {"loss": None})
    less = dataclasses.replace(record, metrics={k: v for k, v in record.metrics.items() if k != "loss"})
    texts = [dataclasses.replace(record, metrics=record.metrics | {"words": word}) for word in "ab"]
    sizes = [dataclasses.replace(record, metrics=record.metrics | {"corpus": {"bytes": n}}) for n in (10, 20)]
    for pair, where in (
        ((record, none), "metrics.loss"),
        ((record, less), "metrics.loss"),
        (texts, "metrics.words"),
        (sizes, "metrics.corpus.bytes"),
    ):
        assert (compare(*pair).outcome, compare(*pair).where) == ("differs", where)
    later = dataclasses.replace(record, curves=record.curves | {"seconds": [9.0] * len(record.curves["seconds"])})
    assert compare(record, later).outcome == compare(none, none).outcome == "identical"


def elsewhere(record, **changes):
    """The record as another processor might have made it."""
    return dataclasses.replace(record, provenance=record.provenance | {"device": "another"}, **changes)


def test_on_another_processor_a_trained_run_may_end_as_another_random_seed_does(record):
    siblings = [with_loss(record, factor) for factor in (0.9, 1.2)]
    assert compare(elsewhere(record), record).outcome == "identical"
    for factor, outcome in ((1.25, "as close as another processor comes"), (1.6, "differs")):
        ended = elsewhere(with_loss(record, factor))
        assert compare(ended, record, siblings).outcome == outcome
        assert compare(with_loss(record, factor), record, siblings).outcome == "differs"
    assert compare(elsewhere(with_loss(record, 1.25)), record).outcome == "differs"  # without siblings
    for point, outcome in ((0, "differs"), (1, "as close as another processor comes")):
        loss = list(record.curves["loss"])
        loss[point] *= 1.1
        curves = record.curves | {"loss": loss}
        assert compare(elsewhere(record, curves=curves), record, siblings).outcome == outcome


def test_on_another_processor_what_is_not_trained_is_judged_by_each_number(record):
    study = dataclasses.replace(record, metrics={"mean": 0.5}, curves={"case": [1.0, 2.0]})
    for change, outcome in ((0.001, "as close as another processor comes"), (0.2, "differs")):
        other = elsewhere(study, curves={"case": [1.0, 2.0 + change]})
        assert compare(other, study).outcome == outcome


FORGED = {
    "threads = -3": {"provenance": {"threads": -3}},
    "threads = 10000": {"provenance": {"threads": 10**25}},
    "weights = '../..'": {"params": {"weights": "../.."}},
    "cannot be computed again": {"params": {"device": "cuda"}},
}


@pytest.mark.parametrize("named", FORGED)
def test_a_record_that_no_run_makes_or_this_machine_cannot_is_one_line(record, store, named):
    change = FORGED[named]
    if "provenance" in change:
        forged = dataclasses.replace(record, provenance=record.provenance | change["provenance"])
    else:
        forged = dataclasses.replace(record, config=StudyConfig("test", "smoke", "costs", change["params"]))
    with pytest.raises(RecordError, match=f"^record test/.*{re.escape(named)}") as error:
        verify(forged, store)
    assert "\n" not in str(error.value)


def test_a_model_that_no_memory_holds_is_one_line(record, store):
    shape = dataclasses.replace(record.config.model, width=10**9)
    forged = dataclasses.replace(record, config=dataclasses.replace(record.config, model=shape))
    with pytest.raises(RecordError, match="^record test/.* cannot be computed again: RuntimeError: .*$"):
        verify(forged, store)


def test_what_a_record_says_of_its_making_is_printed_without_its_escapes(record):
    forged = elsewhere(record)
    forged.provenance["device"] = "\x1b[2J\x1b]0;title\x07"
    assert "\x1b" not in report([compare(forged, record)])


def test_costs_that_a_clock_measured_are_no_difference(record):
    """A record of what writing costs is what its study returns, but for times; so is one of passes per second."""
    study = dict(lengths=[4, 8], far=[2**10, 2**11], n_layers=2, width=8, rounds=1)
    taken = [dataclasses.replace(record, metrics=m, curves=c) for m, c in (costs_study(**study) for _ in range(2))]
    assert taken[0].curves["cpu_seconds"] != taken[1].curves["cpu_seconds"]
    assert compare(*taken).outcome == "identical"
    rates = [dataclasses.replace(record, curves={"passes_per_second": [rate]}) for rate in (10.0, 20.0)]
    assert compare(*rates).outcome == "identical"


def test_the_command_says_what_came_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    store = Store()
    assert COUNT3.name in EXPERIMENTS
    config = COUNT3.configs("smoke", 1)[0]
    record = run(config, COUNT3.version, store=store)
    command = ["verify", "count3", "--tier", "smoke"]
    assert cli.main([*command, "--sample", "1"]) == 0
    assert "1 of 1: identical" in capsys.readouterr().out
    store.save(with_loss(record, 2.0))
    assert cli.main([*command, "--sample", "1"]) == 1
    assert "differs" in (out := capsys.readouterr().out) and "metrics.loss" in out
    assert cli.main([*command, "--sample", "2"]) == 2
    assert "there are 1 complete records" in capsys.readouterr().err
