"""Experiments: their runs fit, twins are paired, the best tier is chosen, derived tables
are right.
"""

import dataclasses
import inspect

import pytest
from made_up import record_of, sound

from entp_lab.budgets import EQUAL_OPERATIONS, training_operations
from entp_lab.configs import BEST_FIRST, TIERS, RunConfig, StudyConfig, config_id
from entp_lab.experiment import Experiment, no_claims, own, planned
from entp_lab.frames import select
from entp_lab.measurements import Measurement
from entp_lab.parameters import NotebookParameters
from entp_lab.registry import EXPERIMENTS, STUDIES, build_task
from entp_lab.runs import sweep
from entp_lab.store import Record
from entp_lib.training import check_fit
from entp_lib.validation import ConfigError
from entp_papers.entp import deciding, match3, pilot_runs
from entp_papers.entp.equal_operations import COMPARISONS

OPERATIONS = [EXPERIMENTS[name] for name in COMPARISONS]  # at equal multiply-adds


def planned_configs(experiment, tier, kind):
    """Return the configurations of runs (RunConfig) or of studies (StudyConfig), each planned once
    and at its own tier.
    """
    configs = [c for c in experiment.configs(tier, 0) if isinstance(c, kind)]
    assert len({config_id(c, experiment.version) for c in configs}) == len(configs)
    assert {c.tier for c in configs} <= {tier}
    return configs


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_studies_name_what_there_is(experiment):
    for config in (
        c for tier in ("smoke", "quick") for c in planned_configs(experiment, tier, StudyConfig)
    ):
        assert_its_own_or_planned_by_its_owner(config, experiment)
        inspect.signature(STUDIES.named(config.study)).bind(**config.params)


def assert_its_own_or_planned_by_its_owner(config, experiment):
    """Check that a run that an experiment only compares with is exactly one of those that another
    experiment plans.
    """
    if config.experiment != experiment.name:
        owner = EXPERIMENTS[config.experiment]
        scored = config_id(config, experiment.version)
        assert experiment in (*OPERATIONS, pilot_runs.COUNT3_LONG_ALL, deciding.MATCH3_OWN_RATES)
        owned = [*owner.configs(config.tier), *owner.configs(config.tier, config.model_seed + 1)]
        assert scored in {config_id(c, owner.version) for c in owned}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
@pytest.mark.parametrize("tier", TIERS)
def test_every_run_fits_its_task_and_has_a_twin(experiment, tier):
    seeds_of = {}
    configs = planned_configs(experiment, tier, RunConfig)
    for config in {str((c.task_params, c.model)): c for c in configs}.values():
        check_fit(build_task(config.task, config.task_params), config.model)
    for c in configs:
        assert_its_own_or_planned_by_its_owner(c, experiment)
        assert c.model_seed == c.data_seed
        alike = dataclasses.replace(c.model, architecture="entp", full_layers=None)
        arms = seeds_of.setdefault(str((c.task_params, c.train, alike)), {})
        arms.setdefault((c.model.architecture, c.model.full_layers), []).append(c.model_seed)
    for arms in seeds_of.values():  # the same seeds for every architecture
        assert len({tuple(sorted(seeds)) for seeds in arms.values()}) == 1
    asked = {c.model_seed for c in experiment.configs(tier, 3) if isinstance(c, RunConfig)}
    compared = asked - {pilot_runs.SEED}  # a gate or trial has its own, whatever is asked for
    assert not configs or len(compared) == 3 or asked == {pilot_runs.SEED}


@pytest.mark.parametrize("tier", ["quick", "overnight"])
def test_tiers_that_decide_have_five_pairs(tier):
    for name, experiment in EXPERIMENTS.items():
        seeds = {c.model_seed for c in planned_configs(experiment, tier, RunConfig)}
        pairs = seeds - {pilot_runs.SEED}  # trial runs alone decide nothing
        assert len(pairs) >= 5 or not pairs or experiment.measure is no_claims, name


@pytest.fixture
def made_up(small_run):
    """Make a record with a given final score; nothing is trained."""

    def make(architecture, seed, accuracy, tier="quick"):
        config = dataclasses.replace(small_run(architecture, seed), tier=tier)
        scores = {"token_accuracy": accuracy, "sequence_accuracy": accuracy / 2}
        metrics = {**scores, "baseline": {**scores, "token_accuracy": 0.05}}
        labels = planned(config, task="count3").labels
        return sound(Record("test", 1, config, metrics, {"step": [10]}, {}, labels=labels))

    return make


@pytest.fixture
def fake(made_up):
    """Make an experiment of decoders and ENTPs with so many seeds by tier, five where asked for."""

    def make(measured=BEST_FIRST, **seeds_of):
        def plan(tier, seeds):
            own = seeds_of.get(tier, 0)
            every = range(own and (seeds or own))
            arms = ("decoder", "entp")
            return [planned(made_up(a, seed, 0.5, tier).config) for seed in every for a in arms]

        def measure(records):
            tier = records[0].config.tier
            values = [r.metrics["token_accuracy"] for r in records if r.labels["arm"] == "decoder"]
            return [Measurement("a", values, tier)] if tier in measured else []

        return Experiment("test", 1, "", "", plan, measure)

    return make


@pytest.fixture
def save(made_up, store):
    """Store pairs of some seeds at a tier."""

    def put(tier, seeds, accuracy=0.5, arms=("decoder", "entp")):
        for seed in seeds:
            for arm in arms:
                store.save(made_up(arm, seed, accuracy, tier))

    return put


def shown(experiment, store, **parameters):
    return experiment.collect(NotebookParameters(**parameters), store).complete


def best_tier(experiment, store):
    (tier,) = {record.config.tier for record in experiment.best(store)}
    return tier


def test_the_best_whole_tier_is_shown(fake, save, store):
    experiment = fake(quick=1, gpu=1)
    assert experiment.best(store) == []
    save("quick", [0])
    save("gpu", [0], arms=["decoder"])
    assert best_tier(experiment, store) == "quick"
    save("gpu", [0])
    for tier in ("best", "quick"):
        found = {r.config.tier for r in shown(experiment, store, tier=tier)}
        assert found == {"gpu" if tier == "best" else "quick"}


def test_a_pair_is_shown_when_both_of_its_runs_are_complete(fake, save, store):
    save("quick", [0, 2])
    save("quick", [1], arms=["decoder"])
    whole = fake(quick=3).whole_by("seed", "quick", store)
    assert {seed: [r.labels["arm"] for r in pair] for seed, pair in whole.items()} == {
        seed: ["decoder", "entp"] for seed in (0, 2)
    }


def test_a_tier_without_enough_seeds_does_not_hide_one_that_has_them(fake, save, store):
    experiment = fake(gpu=2, quick=5)
    save("gpu", range(2))
    assert best_tier(experiment, store) == "gpu"  # while nothing has enough
    save("quick", range(5))
    assert {r.config.tier for r in shown(experiment, store)} == {"quick"}
    few = shown(experiment, store, tier="gpu")
    assert {r.config.tier for r in few} == {"gpu"}
    assert [m.tier for m in experiment.measurements(few, store)] == ["quick"]


def test_further_seeds_count_up_to_the_pairs_of_a_verdict(fake, save, store):
    """Seeds that were run beyond a tier's own number are neither lost nor picked from."""
    experiment = fake(gpu=2, quick=5)
    save("quick", range(5))
    save("gpu", range(4))
    assert len(experiment.stored(store, "gpu")) == 4 and best_tier(experiment, store) == "quick"
    save("gpu", [4, 5, 6])
    for tier in ("best", "gpu"):
        found = shown(experiment, store, tier=tier)
        assert {r.config.model_seed for r in found} == {0, 1, 2, 3, 4}
        (measured,) = experiment.measurements(found, store)
        assert (measured.tier, len(measured.values)) == ("gpu", 5)
    assert len(shown(experiment, store, tier="gpu", seeds=2)) == 4


def test_a_claim_that_a_tier_lacks_is_told_by_the_highest_below_it(fake, save, store):
    experiment = fake(measured=("overnight", "quick"), gpu=1, overnight=1, quick=1)
    for tier, accuracy in {"overnight": 0.7, "quick": 0.5, "gpu": 0.9}.items():
        save(tier, [0], accuracy)
    told = {
        tier: [m.values for m in experiment.measurements(experiment.stored(store, tier), store)]
        for tier in ("gpu", "quick")
    }
    assert told == {"gpu": [[0.7]], "quick": [[0.5]]}


def test_a_tier_without_runs_is_named(fake, store):
    with pytest.raises(ConfigError, match="tier = "):
        shown(fake(), store, tier="gpu")


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
            scores = dict(token_accuracy=at, sequence_accuracy=at, baseline=mode)
            course = dict(position=[1, 2], token_accuracy_by_position=[at, at])
            records.append(record_of(run, **scores, **course))
    found = {m.claim: m for m in match3.MATCH3.measure(records)}
    assert found["M3-count"].undecided == why


# Decoders with ENTP's multiply-adds: as many of them, the same seeds, the rules of equal steps.


@pytest.mark.parametrize("tier", ["smoke", "overnight"])
@pytest.mark.parametrize("experiment", OPERATIONS, ids=lambda experiment: experiment.name)
def test_a_decoder_has_the_operations_and_seeds_of_its_entp(experiment, tier):
    runs = [run for run in experiment.plan(tier, 0) if isinstance(run.config, RunConfig)]
    decoders = select(runs, arm=EQUAL_OPERATIONS)
    assert decoders
    for run in decoders:
        alike = select(runs, comparison=run.labels["comparison"], seed=run.labels["seed"])
        decoder = run.config
        (entp,) = [r.config for r in alike if r.config.model.architecture == "entp"]
        # a whole number of steps: within half a step of ENTP's operations
        step = training_operations(decoder) / decoder.train.steps
        assert abs(training_operations(decoder) - training_operations(entp)) <= 0.51 * step
        assert decoder.data_seed == entp.data_seed and decoder.train.max_lr == entp.train.max_lr


def test_entp_is_neither_paid_for_nor_trained_twice(store):
    experiment = EXPERIMENTS["match3_operations"]
    runs = experiment.plan("smoke", 0)
    done = sweep([run.config for run in runs], experiment.version, store=store, jobs=1)
    records = experiment.labelled(done.complete, runs)
    mine = own(experiment, records)
    assert {r.experiment for r in mine} == {experiment.name} and len(mine) < len(records)
    again = sweep(experiment.configs("smoke"), experiment.version, store=store, jobs=1, fresh=True)
    before = {r.id: r.provenance for r in records}
    for record in again.complete:
        assert (record.provenance == before[record.id]) == (record.experiment != experiment.name)
