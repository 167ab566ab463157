"""Decoders with ENTP's multiply-adds: as many of them, the same seeds, the rules of equal steps."""

import pytest

from entp_lib.config import StudyConfig
from entp_lib.experiments.budgets import EQUAL_OPERATIONS, training_operations
from entp_lib.experiments.experiment import cost, own, spent
from entp_lib.records.store import Store
from entp_lib.records.sweeps import sweep
from entp_lib.registry import EXPERIMENTS
from entp_papers.entp.equal_operations import OPERATIONS

NAMES = [experiment.name for experiment in OPERATIONS]


def pairs_of(experiment, tier):
    """Each decoder with the ENTP that it is compared with, as planned."""
    runs = [run for run in experiment.plan(tier, 0) if not isinstance(run.config, StudyConfig)]
    for run in runs:
        if run.labels["arm"] == EQUAL_OPERATIONS:
            same = [
                other
                for other in runs
                if other.labels["comparison"] == run.labels["comparison"]
                and other.labels["seed"] == run.labels["seed"]
                and other.config.model.architecture == "entp"
            ]
            assert len(same) == 1
            yield run.config, same[0].config


@pytest.mark.parametrize("tier", ["smoke", "overnight"])
@pytest.mark.parametrize("experiment", OPERATIONS, ids=NAMES)
def test_a_decoder_has_the_operations_and_seeds_of_its_entp(experiment, tier):
    found = list(pairs_of(experiment, tier))
    assert found
    for decoder, entp in found:
        assert decoder.model.architecture == "decoder" and decoder.experiment == experiment.name
        # a whole number of steps: within half a step of ENTP's operations
        step = training_operations(decoder) / decoder.train.steps
        assert abs(training_operations(decoder) - training_operations(entp)) <= 0.51 * step
        assert (decoder.model_seed, decoder.data_seed) == (entp.model_seed, entp.data_seed)
        assert (decoder.train.max_lr, decoder.train.min_lr) == (entp.train.max_lr, entp.train.min_lr)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The store with the smoke runs of Match3′ and text, and their records."""
    store = Store(tmp_path_factory.mktemp("operations"), read_only=False)
    found = {}
    for name in ("match3_operations", "openwebtext_operations"):
        experiment = EXPERIMENTS[name]
        runs = experiment.plan("smoke", 0)
        done = sweep([run.config for run in runs], experiment.version, store=store, jobs=1)
        found[name] = experiment.labelled(done.complete, runs)
    return store, found


def test_entp_is_neither_paid_for_nor_trained_twice(stored):
    store, found = stored
    experiment, records = EXPERIMENTS["match3_operations"], found["match3_operations"]
    mine = own(experiment, records)
    assert {r.experiment for r in mine} == {experiment.name} and len(mine) < len(records)
    assert cost(experiment, "smoke", store) == pytest.approx(sum(map(spent, mine)))
    again = sweep(experiment.configs("smoke"), experiment.version, store=store, jobs=1, fresh=True)
    before = {r.id: r.provenance for r in records}
    for record in again.complete:
        same = record.provenance["started"] == before[record.id]["started"]
        assert same == (record.experiment != experiment.name)
