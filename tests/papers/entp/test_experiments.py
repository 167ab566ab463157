"""Experiments: their runs fit, twins are paired, the best tier is chosen."""

import inspect
import json
from collections import defaultdict
from dataclasses import replace

import pytest
from made_up import record_of, sound
from mistakes import refused

from entp_lab.configs import BEST_FIRST, TIERS, RunConfig, StudyConfig, config_id
from entp_lab.experiment import (
    TRIAL_SEED,
    Closed,
    Experiment,
    close,
    list_of_runs,
    no_claims,
    planned,
)
from entp_lab.frames import select
from entp_lab.measurements import Measurement
from entp_lab.parameters import NotebookParameters
from entp_lab.registry import EXPERIMENTS, STUDIES, build_task
from entp_lab.store import RecordError, Store
from entp_lib.training import check_fit

every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


def configs_of(experiment, tier, kind, seeds=0):
    """Return the configurations of runs (RunConfig) or of studies (StudyConfig) of a tier."""
    return [config for config in experiment.configs(tier, seeds) if isinstance(config, kind)]


@every_experiment
def test_studies_name_what_there_is(experiment):
    """At smoke scale all are run."""
    for config in configs_of(experiment, "quick", StudyConfig):
        inspect.signature(STUDIES.named(config.study)).bind(**config.params)


@every_experiment
@pytest.mark.parametrize("tier", TIERS)
def test_runs_are_planned_once_and_those_of_others_as_these_plan_them(experiment, tier):
    """A run that an experiment only compares with is exactly one that another experiment plans."""
    ids = [config_id(config, experiment.version) for config in experiment.configs(tier)]
    assert len(set(ids)) == len(ids)
    for config in experiment.configs(tier):
        assert config.tier == tier
        if config.experiment != experiment.name:
            owner = EXPERIMENTS[config.experiment]
            planned = [*owner.configs(tier), *owner.configs(tier, config.model_seed + 1)]
            assert config in planned


@every_experiment
@pytest.mark.parametrize("tier", TIERS)
def test_every_run_fits_its_task_and_has_a_twin(experiment, tier):
    configs = configs_of(experiment, tier, RunConfig)
    seeds_of = defaultdict(lambda: defaultdict(set))
    fitted = set()
    for c in configs:
        task = json.dumps(c.task_params)
        if (task, c.model) not in fitted:
            check_fit(build_task(c.task, c.task_params), c.model)
            fitted.add((task, c.model))
        assert c.model_seed == c.data_seed
        alike = replace(c.model, architecture="entp", full_layers=None)
        kind = (c.model.architecture, c.model.full_layers)
        seeds_of[task, str(c.train), alike][kind] |= {c.model_seed} - {TRIAL_SEED}
    for by_kind in seeds_of.values():  # the same seeds for every architecture
        seeds, *others = by_kind.values()
        assert all(other == seeds for other in others)
    asked = {c.model_seed for c in configs_of(experiment, tier, RunConfig, seeds=3)}
    compared = asked - {TRIAL_SEED}  # a gate or trial has its own, whatever is asked for
    assert not configs or len(compared) == 3 or asked == {TRIAL_SEED}


@every_experiment
@pytest.mark.parametrize("tier", ["quick", "overnight"])
def test_tiers_that_decide_have_five_pairs(experiment, tier):
    seeds = {c.model_seed for c in configs_of(experiment, tier, RunConfig)}
    pairs = seeds - {TRIAL_SEED}  # trial runs alone decide nothing
    assert len(pairs) >= 5 or not pairs or experiment.measure is no_claims


# Closed experiments: their runs are listed beside their records.


CLOSED = sorted(path.parent.name for path in list_of_runs("x").parent.parent.glob("*/runs.jsonl"))


@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_experiment_lists_every_record_that_it_has(name):
    experiment = EXPERIMENTS[name]
    configs = experiment.configs("quick") + experiment.configs("overnight")
    listed = {config_id(c, 1) for c in configs if c.experiment == name}
    assert listed == {record.id for record in Store().all(name)}


@pytest.fixture
def listed(monkeypatch, tmp_path):
    """Have lists of runs in a folder of the test's own; the list of chain_of_thought's."""
    folder = tmp_path / "chain_of_thought.jsonl"
    monkeypatch.setattr("entp_lab.experiment.list_of_runs", lambda name: tmp_path / f"{name}.jsonl")
    return folder


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_a_closed_plan_is_the_plan_that_was_closed(listed, seeds):
    planned_before = EXPERIMENTS["chain_of_thought"].plan("quick", seeds)
    assert "10 runs" in close(EXPERIMENTS["chain_of_thought"])
    closed = Closed("chain_of_thought")
    assert closed("quick", seeds) == planned_before


def test_a_listed_run_that_was_lost_is_named(listed):
    listed.write_text('{"run": "chain_of_thought/0123456789abcdef"}\n')
    with pytest.raises(RecordError, match="abcdef.json, a run of chain_of_thought, is missing"):
        Closed("chain_of_thought")("overnight")


# Which tier is shown, of an experiment of pairs with so many seeds by tier.


@pytest.fixture
def store(results):
    """Return the project's store, which is the test's own."""
    return Store()


@pytest.fixture
def fake(small_run):
    """Make an experiment of decoders and ENTPs with so many seeds by tier."""

    def make(measured=BEST_FIRST, **seeds_of):
        def plan(tier, seeds):
            pairs = (seeds or seeds_of[tier]) if tier in seeds_of else 0
            return [
                planned(replace(small_run(arm, seed), tier=tier))
                for seed in range(pairs)
                for arm in ("decoder", "entp")
            ]

        def measure(records):
            tier = records[0].config.tier
            values = [r.metrics["token_accuracy"] for r in select(records, arm="decoder")]
            return [Measurement("a", values, tier)] if tier in measured else []

        return Experiment("test", 1, "", "", plan, measure)

    return make


@pytest.fixture
def save(fake, store):
    """Store made-up pairs of some seeds at a tier."""

    def put(tier, seeds, accuracy=0.5, arms=("decoder", "entp")):
        for run in fake(**{tier: 9}).plan(tier):
            if run.labels["seed"] in seeds and run.labels["arm"] in arms:
                store.save(sound(record_of(run, token_accuracy=accuracy)))

    return put


def shown(experiment, **parameters):
    """Return the records of a notebook with these parameters, and their tiers."""
    records = experiment.collect(NotebookParameters(**parameters)).complete
    return records, {r.config.tier for r in records}


def test_the_best_whole_tier_is_shown(fake, save, store):
    experiment = fake(quick=1, gpu=1)
    assert experiment.best(store) == []
    save("quick", [0])
    save("gpu", [0], arms=["decoder"])
    assert {r.config.tier for r in experiment.best(store)} == {"quick"}
    save("gpu", [0])
    assert shown(experiment)[1] == {"gpu"}
    assert shown(experiment, tier="quick")[1] == {"quick"}
    with refused("tier = "):
        shown(fake(), tier="gpu")


def test_a_tier_without_enough_seeds_does_not_hide_one_that_has_them(fake, save, store):
    experiment = fake(gpu=2, quick=5)
    save("gpu", range(2))
    assert shown(experiment)[1] == {"gpu"}  # while nothing has enough
    save("quick", range(5))
    assert shown(experiment)[1] == {"quick"}
    few, tiers = shown(experiment, tier="gpu")
    assert tiers == {"gpu"}
    assert [m.tier for m in experiment.measurements(few)] == ["quick"]


def test_further_seeds_count_up_to_the_pairs_of_a_verdict(fake, save, store):
    """Seeds that were run beyond a tier's own number are neither lost nor picked from."""
    experiment = fake(gpu=2, quick=5)
    save("quick", range(5))
    save("gpu", range(4))
    assert len(experiment.stored(store, "gpu")) == 4
    assert shown(experiment)[1] == {"quick"}
    save("gpu", [4, 5, 6])
    for tier in ("best", "gpu"):
        found, _ = shown(experiment, tier=tier)
        assert {r.config.model_seed for r in found} == {0, 1, 2, 3, 4}
        (measured,) = experiment.measurements(found)
        assert (measured.tier, len(measured.values)) == ("gpu", 5)
    assert len(shown(experiment, tier="gpu", seeds=2)[0]) == 4


@pytest.mark.parametrize(("tier", "accuracy"), [("gpu", 0.7), ("quick", 0.5)])
def test_a_claim_that_a_tier_lacks_is_told_by_the_highest_below_it(
    fake, save, store, tier, accuracy
):
    experiment = fake(measured=("overnight", "quick"), gpu=1, overnight=1, quick=1)
    save("overnight", [0], 0.7)
    save("quick", [0], 0.5)
    save("gpu", [0], 0.9)
    (told,) = experiment.measurements(experiment.stored(store, tier))
    assert told.values == [accuracy]


@pytest.mark.parametrize(
    ("decoder", "entp", "why"),
    [
        (0.95, 0.96, ""),
        (0.94, 0.93, "no model is 0.02 above the shortcut, 0.924"),
        (0.615, 0.70, "within 0.02 of the majority: decoder"),
        (0.995, 0.999, "a side is nearer to its ceiling than the margin"),
    ],
)
@pytest.mark.parametrize("tier", ["overnight", "quick"])
def test_match3_is_judged_by_its_design_at_every_tier(decoder, entp, why, tier):
    """A bar that held overnight alone would let shorter runs stand for those it bars."""
    tokens = dict(decoder=decoder, entp=entp)
    mode = dict(token_accuracy=0.6, sequence_accuracy=0.1, token_accuracy_by_position=[0.6, 0.6])
    records = []
    for run in EXPERIMENTS["match3"].plan(tier):
        if at := tokens.get(run.labels["arm"]):
            record = record_of(
                run,
                token_accuracy=at,
                sequence_accuracy=at,
                baseline=mode,
                position=[1, 2],
                token_accuracy_by_position=[at, at],
            )
            records.append(record)
    found = {m.claim: m for m in EXPERIMENTS["match3"].measure(records)}
    assert found["M3-count"].undecided == why
