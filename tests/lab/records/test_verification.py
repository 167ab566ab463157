"""Verification: a record that is true is computed again as it is, one that is not is found out."""

import re
from dataclasses import replace

import pytest
from made_up import computed, unchanged
from mistakes import one_line

from entp_lab import cli, provenance
from entp_lab.configs import StudyConfig
from entp_lab.experiment import with_train
from entp_lab.provenance import arithmetic_of
from entp_lab.runs import run
from entp_lab.store import RecordError, Store
from entp_lab.verify import BOUND, compare, report, verify
from entp_papers.entp.count3 import COUNT3

CLOSE = "as close as another processor comes"


@pytest.fixture
def record(small_run, store):
    return computed(small_run(), store)


def with_metrics(record, **metrics):
    return replace(record, metrics=record.metrics | metrics)


def with_loss(record, factor):
    return with_metrics(record, loss=record.metrics["loss"] * factor)


def with_provenance(record, **provenance):
    return replace(record, provenance=record.provenance | provenance)


def elsewhere(record, **changes):
    """The record as another processor might have made it."""
    return replace(with_provenance(record, device="another"), **changes)


def test_a_true_record_is_identical_and_its_store_unchanged(record, store):
    steps = []
    with unchanged(store.root):
        found = verify(record, store, lambda *step: steps.append(step))
    last = record.config.train.steps
    assert steps == [(step, last) for step in range(1, last + 1)]
    assert (found.outcome, found.largest, found.where) == ("identical", 0.0, "")


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ({}, {"loss": None}, "metrics.loss"),
        ({"more": 1}, {}, "metrics.more"),
        ({"words": "a"}, {"words": "b"}, "metrics.words"),
        ({"corpus": {"bytes": 10}}, {"corpus": {"bytes": 20}}, "metrics.corpus.bytes"),
    ],
)
def test_on_the_same_processor_every_number_and_text_has_to_be_the_same(record, one, other, where):
    found = compare(with_metrics(record, **one), with_metrics(record, **other))
    assert (found.outcome, found.where) == ("differs", where)
    assert compare(record, with_loss(record, 1 + BOUND / 4)).outcome == "differs"


def test_on_another_processor_a_trained_run_may_end_as_another_random_seed_does(record):
    siblings = [with_loss(record, factor) for factor in (0.9, 1.2)]
    assert compare(elsewhere(record), record).outcome == "identical"
    for factor, outcome in ((1.25, CLOSE), (1.6, "differs")):
        ended = with_loss(record, factor)
        assert compare(elsewhere(ended), record, siblings).outcome == outcome
        assert compare(ended, record, siblings).outcome == "differs"
    half = replace(record, config=with_train(record.config, precision="bf16"))
    newer = with_provenance(half, kernels="bf16-9")
    found = compare(with_loss(newer, 1.25), half, [with_loss(half, 0.9), with_loss(half, 1.2)])
    assert found.outcome == "made by other kernels, and as close"
    # without siblings
    assert compare(elsewhere(with_loss(record, 1.25)), record).outcome == "differs"
    for point, outcome in ((0, "differs"), (1, CLOSE)):
        loss = list(record.curves["loss"])
        loss[point] *= 1.1
        assert (
            compare(
                elsewhere(record, curves=record.curves | {"loss": loss}), record, siblings
            ).outcome
            == outcome
        )


def test_on_another_processor_what_is_not_trained_is_judged_by_each_number(record):
    study = replace(record, metrics={"mean": 0.5}, curves={"case": [1.0, 2.0]})
    for change, outcome in ((0.001, CLOSE), (0.2, "differs")):
        assert (
            compare(elsewhere(study, curves={"case": [1.0, 2.0 + change]}), study).outcome
            == outcome
        )


def too_wide(record):
    return replace(
        record, config=replace(record.config, model=replace(record.config.model, width=10**9))
    )


def a_study(**params):
    return lambda record: replace(record, config=StudyConfig("test", "smoke", "costs", params))


@pytest.mark.parametrize(
    ("forge", "named"),
    [
        (lambda record: with_provenance(record, threads=-3), "cannot be computed again"),
        (a_study(weights="../.."), "cannot be computed again"),
        (a_study(device="cuda"), "cannot be computed again"),
        (too_wide, "cannot be computed again: RuntimeError: "),
    ],
)
def test_a_record_that_no_run_makes_or_this_machine_cannot_is_one_line(record, store, forge, named):
    with one_line(RecordError, match=f"^record test/.*{re.escape(named)}"):
        verify(forge(record), store)


def test_what_a_record_says_of_its_making_is_printed_without_its_escapes(record):
    forged = with_provenance(record, device="\x1b[2J\x1b]0;title\x07")
    assert "\x1b" not in report([compare(forged, record)])


def test_times_that_a_clock_measured_are_no_difference(record):
    taken = []
    for time in (1.0, 2.0):
        curves = {"cpu_seconds": [time], "passes_per_second": [1 / time]}
        taken.append(replace(record, curves=curves))
    assert compare(*taken).outcome == "identical"


@pytest.mark.skipif(not provenance.has_avx2(), reason="no AVX2 here")
def test_a_record_is_computed_in_its_own_arithmetic(record, store):
    other = (
        provenance.NATIVE if provenance.arithmetic_here() == provenance.AVX2 else provenance.AVX2
    )
    apart = with_provenance(record, arithmetic=other)
    assert verify(apart, store).computed.provenance["arithmetic"] == other


@pytest.mark.parametrize(
    ("capability", "name"), [("AVX2", "AVX2"), ("AVX512", "native"), (None, "native")]
)
def test_the_arithmetic_of_older_records_is_that_of_their_processor(record, capability, name):
    assert arithmetic_of(replace(record, provenance={"cpu_capability": capability})) == name


def test_the_command_says_what_came_out(results, capsys):
    store = Store()
    record = run(COUNT3.configs("smoke", 1)[0], COUNT3.version, store=store)

    def status(sample):
        return cli.main(["verify", "count3", "--tier", "smoke", "--sample", sample])

    assert status("1") == 0
    assert "1 of 1: identical" in capsys.readouterr().out
    store.save(with_loss(record, 2.0))
    assert status("1") == 1
    assert "metrics.loss" in capsys.readouterr().out
    assert status("2") == 2
    assert "there are 1 records" in capsys.readouterr().err
