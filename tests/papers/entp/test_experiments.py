"""Experiments: their runs fit, twins are paired, the best tier is chosen, derived tables
are right.
"""

import dataclasses
import inspect

import pytest
from made_up import record_of, sound

from entp_lab.budgets import EQUAL_OPERATIONS, training_operations
from entp_lab.configs import BEST_FIRST, TIERS, RunConfig, StudyConfig, config_id
from entp_lab.experiment import Experiment, no_claims, own
from entp_lab.frames import mean_table, paired, select, summary
from entp_lab.measurements import Measurement
from entp_lab.parameters import NotebookParameters
from entp_lab.plans import planned
from entp_lab.registry import EXPERIMENTS, STUDIES, build_task
from entp_lab.runs import sweep
from entp_lab.store import Record
from entp_lib.training import check_fit
from entp_lib.validation import ConfigError
from entp_papers.entp import count3, deciding, match3, pilot_runs
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
        assert scored in {config_id(c, owner.version) for c in owner.configs(config.tier)}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_run_fits_its_task_and_has_a_twin(experiment):
    for tier in TIERS:
        groups, fitted = {}, set()
        for c in (configs := planned_configs(experiment, tier, RunConfig)):
            if (key := str((c.task_params, c.model))) not in fitted:  # seeds alike
                check_fit(build_task(c.task, c.task_params), c.model)
            fitted.add(key)
            assert_its_own_or_planned_by_its_owner(c, experiment)
            assert c.model_seed == c.data_seed
            key = str(
                (
                    c.task_params,
                    c.train,
                    dataclasses.replace(c.model, architecture="entp", full_layers=None),
                )
            )
            arm = (c.model.architecture, c.model.full_layers)
            groups.setdefault(key, {}).setdefault(arm, []).append(c.model_seed)
        for arms in groups.values():  # the same seeds for every architecture
            assert len({tuple(sorted(seeds)) for seeds in arms.values()}) == 1
        asked = {c.model_seed for c in experiment.configs(tier, 3) if isinstance(c, RunConfig)}
        compared = asked - {pilot_runs.SEED}  # a gate or trial has its own, whatever is asked for
        assert not configs or len(compared) == 3 or asked == {pilot_runs.SEED}


@pytest.mark.parametrize("tier", ["quick", "overnight"])
def test_tiers_that_decide_have_five_pairs(tier):
    for name, experiment in EXPERIMENTS.items():
        seeds = len({c.model_seed for c in planned_configs(experiment, tier, RunConfig)})
        decides = experiment.measure is not no_claims
        assert seeds >= 5 or not decides or not seeds, name


@pytest.fixture
def made_up(small_run):
    """Make a record with given final scores; nothing is trained."""

    def make(
        architecture, seed, accuracy, tier="quick", curve=(0.1, 0.5, 0.9), seconds=(1.0, 2.0, 3.0)
    ):
        config = dataclasses.replace(small_run(architecture, seed), tier=tier)
        config = dataclasses.replace(config, task_params={**config.task_params, "order": 3})
        scores = {"token_accuracy": accuracy, "sequence_accuracy": accuracy / 2, "loss": 1.0}
        metrics = {**scores, "baseline": {**scores, "token_accuracy": 0.05}}
        curves = {"step": [10, 20, 30], "seconds": list(seconds), "token_accuracy": list(curve)}
        curves |= {
            "token_forwards": [x * 100 for x in seconds],
            "sequence_accuracy": [0.0, 0.1, 0.2],
        }
        cost = dict(
            steps=30,
            token_forwards=300,
            train_seconds=3.0,
            wall_seconds=4.0,
            peak_memory_bytes=1,
            device="x",
        )
        labels = planned(config, task="count3").labels
        return sound(Record("test", 1, config, metrics, curves, cost, labels=labels))

    return make


def best_tier(experiment, store):
    (tier,) = {record.config.tier for record in experiment.best(store)}
    return tier


def test_the_best_whole_tier_is_shown(made_up, store):
    runs = {tier: [made_up(a, 0, 0.5, tier) for a in ("decoder", "entp")] for tier in BEST_FIRST}
    plans = {tier: [planned(r.config) for r in found] for tier, found in runs.items()}
    fake = Experiment("test", 1, "", "", lambda tier, seeds: plans.get(tier, []), lambda r: [])
    assert fake.best(store) == []
    store.save(runs["quick"][0])
    assert fake.best(store) == []
    store.save(runs["quick"][1])
    assert best_tier(fake, store) == "quick"
    store.save(runs["gpu"][0])
    assert best_tier(fake, store) == "quick"
    store.save(runs["gpu"][1])
    assert best_tier(fake, store) == "gpu"
    assert {r.config.tier for r in fake.collect(NotebookParameters(), store).records} == {"gpu"}
    assert {
        r.config.tier for r in fake.collect(NotebookParameters(tier="quick"), store).records
    } == {"quick"}


def test_a_pair_is_shown_when_both_of_its_runs_are_complete(made_up, store):
    made = [made_up(a, seed, 0.5) for seed in range(3) for a in ("decoder", "entp")]
    plan = [planned(r.config) for r in made]
    fake = Experiment(
        "test", 1, "", "", lambda tier, seeds: plan if tier == "quick" else [], lambda r: []
    )
    for record in [*made[:3], *made[4:]]:
        store.save(record)
    whole = fake.whole_by("seed", "quick", store)
    assert {seed: [r.labels["arm"] for r in pair] for seed, pair in whole.items()} == {
        seed: ["decoder", "entp"] for seed in (0, 2)
    }
    assert fake.whole_by("seed", "overnight", store) == {}


@pytest.fixture
def by_tier(made_up):
    """Make an experiment with two seeds at gpu and five at quick, whose value is the accuracy of
    its decoders.
    """

    def plan(tier, seeds):
        own = {"gpu": 2, "quick": 5}.get(tier, 0)
        return [
            planned(made_up("decoder", s, 0.5, tier).config) for s in range(own and (seeds or own))
        ]

    def measure(records):
        values = [r.metrics["token_accuracy"] for r in records]
        return [Measurement("a", values, records[0].config.tier)] if records else []

    fake = Experiment("test", 1, "", "", plan, measure)

    def save(store, tier, seeds, accuracy=0.5):
        for seed in seeds:
            store.save(made_up("decoder", seed, accuracy, tier))

    return fake, save


def test_a_tier_without_enough_seeds_does_not_hide_one_that_has_them(by_tier, store):
    fake, save = by_tier
    save(store, "gpu", range(2))
    assert best_tier(fake, store) == "gpu"  # while nothing has enough
    save(store, "quick", range(5))
    assert best_tier(fake, store) == "quick" and len(fake.best(store)) == 5
    shown = fake.collect(NotebookParameters(tier="gpu"), store).complete
    assert [r.config.tier for r in shown] == ["gpu"] * 2
    assert [(m.tier, len(m.values)) for m in fake.measurements(shown, store)] == [("quick", 5)]


def test_further_seeds_count_up_to_the_pairs_of_a_verdict(by_tier, store):
    """Seeds that were run beyond a tier's own number are neither lost nor picked from."""
    fake, save = by_tier
    save(store, "quick", range(5))
    save(store, "gpu", range(4))
    assert len(fake.stored(store, "gpu")) == 2 and best_tier(fake, store) == "quick"
    save(store, "gpu", [4, 5, 6])
    assert [r.config.model_seed for r in fake.stored(store, "gpu")] == [0, 1, 2, 3, 4]
    assert best_tier(fake, store) == "gpu" and len(fake.stored(store, "gpu", 2)) == 2
    for tier in ("best", "gpu"):
        done = fake.collect(NotebookParameters(tier=tier), store)
        assert (done.computed, [r.config.model_seed for r in done.complete]) == (0, [0, 1, 2, 3, 4])
        assert [(m.tier, len(m.values)) for m in fake.measurements(done.complete, store)] == [
            ("gpu", 5)
        ]
    assert len(fake.collect(NotebookParameters(tier="gpu", seeds=2), store).complete) == 2


def test_a_claim_that_a_tier_lacks_is_told_by_the_highest_below_it(made_up, store):
    values = {"overnight": 0.7, "quick": 0.5}
    for tier, accuracy in values.items():
        store.save(made_up("decoder", 0, accuracy, tier))
    plan = {tier: [planned(made_up("decoder", 0, 0.5, tier).config)] for tier in ("gpu", *values)}

    def measure(records):
        return [
            Measurement("a", [r.metrics["token_accuracy"] for r in records], records[0].config.tier)
        ]

    def of_all_but_gpu(records):
        return measure(records) if records and records[0].config.tier != "gpu" else []

    fake = Experiment("test", 1, "", "", lambda tier, seeds: plan.get(tier, []), of_all_but_gpu)
    assert [m.values for m in fake.measurements([made_up("decoder", 0, 0.9, "gpu")], store)] == [
        [0.7]
    ]
    assert [m.values for m in fake.measurements(fake.stored(store, "quick"), store)] == [[0.5]]


def test_a_tier_without_runs_is_named(store):
    fake = Experiment("test", 1, "", "", lambda tier, seeds: [], lambda r: [])
    with pytest.raises(ConfigError, match="tier = "):
        fake.collect(NotebookParameters(tier="gpu"), store)


def test_pairs_are_differences_by_seed(made_up):
    records = [
        made_up("entp", 0, 0.9),
        made_up("entp", 1, 0.8),
        made_up("decoder", 1, 0.5),
        made_up("decoder", 0, 0.7),
    ]
    table = summary([*records, made_up("entp", 2, 0.99)])
    assert paired(table, "token_accuracy", "entp", "decoder").round(6).to_dict() == {0: 0.2, 1: 0.3}
    assert paired(table, "token_accuracy", "prefix_decoder", "decoder").empty
    assert mean_table(table, ["token_accuracy"]).loc["decoder", "token_accuracy"] == "0.500, 0.700"
    found = {m.claim: m for m in count3.COUNT3.measure(records)}
    assert sorted(found["F2-tokens"].values) == pytest.approx([0.2, 0.3])
    assert len(found["F2-tokens"].records) == 4 and not found["F2-tokens"].paper_settings
    assert "F2-prefix" not in found


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (dict(decoder=0.95, entp=0.96), dict.fromkeys(("T2-shared", "M3-count"), "")),
        (
            dict(decoder=0.94, entp=0.93),
            dict.fromkeys(("T2-shared", "M3-count"), "no model is 0.02 above the shortcut, 0.924"),
        ),
        (
            dict(decoder=0.615, entp=0.70),
            dict.fromkeys(("T2-shared", "M3-count"), "within 0.02 of the majority: decoder"),
        ),
        (
            dict(decoder=0.995, entp=0.999),
            {"M3-count": "a side is nearer to its ceiling than the margin"},
        ),
    ],
)
def test_match3_is_judged_by_its_design_at_every_tier(tokens, said):
    """An arm within two points of the majority bars its variant, as do two that find no pairs; so
    at every tier.

    A bar that held overnight alone would let shorter runs stand for those it bars.
    """
    for tier in ("overnight", "quick"):
        runs = [r for r in EXPERIMENTS["match3"].plan(tier) if r.labels["arm"] in tokens]
        records, mode = (
            [],
            {
                "token_accuracy": 0.6,
                "sequence_accuracy": 0.1,
                "token_accuracy_by_position": [0.6] * 4,
            },
        )
        for run in runs:
            at = tokens[run.labels["arm"]]
            course = dict(position=[1, 2, 3, 4], token_accuracy_by_position=[at] * 4)
            records.append(
                record_of(run, token_accuracy=at, sequence_accuracy=at, baseline=mode, **course)
            )
        found = {m.claim: m for m in match3.MATCH3.measure(records)}
        for claim, why in said.items():
            assert found[claim].undecided == why


def test_stored_records_carry_their_labels(made_up, store):
    records = [made_up(a, 0, 0.5) for a in ("decoder", "entp")]
    runs = [planned(r.config, colour=r.config.model.architecture[0]) for r in records]
    fake = Experiment(
        "test", 1, "", "", lambda tier, seeds: runs if tier == "quick" else [], lambda r: []
    )
    for r in records:
        store.save(r)
    for found in (fake.best(store), fake.collect(NotebookParameters(), store).complete):
        assert [r.labels["colour"] for r in found] == ["d", "e"]
    assert all(
        "colour" not in path.read_text() for path in (store.root / "records").rglob("*.json")
    )


# Decoders with ENTP's multiply-adds: as many of them, the same seeds, the rules of equal steps.


@pytest.mark.parametrize("tier", ["smoke", "overnight"])
@pytest.mark.parametrize("experiment", OPERATIONS, ids=lambda experiment: experiment.name)
def test_a_decoder_has_the_operations_and_seeds_of_its_entp(experiment, tier):
    runs = [run for run in experiment.plan(tier, 0) if isinstance(run.config, RunConfig)]
    decoders = select(runs, arm=EQUAL_OPERATIONS)
    assert decoders
    for run in decoders:
        alike = select(runs, comparison=run.labels["comparison"], seed=run.labels["seed"])
        decoder, (entp,) = (
            run.config,
            [r.config for r in alike if r.config.model.architecture == "entp"],
        )
        assert decoder.model.architecture == "decoder" and decoder.experiment == experiment.name
        # a whole number of steps: within half a step of ENTP's operations
        step = training_operations(decoder) / decoder.train.steps
        assert abs(training_operations(decoder) - training_operations(entp)) <= 0.51 * step
        assert (decoder.model_seed, decoder.data_seed) == (entp.model_seed, entp.data_seed)
        assert (decoder.train.max_lr, decoder.train.min_lr) == (
            entp.train.max_lr,
            entp.train.min_lr,
        )


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
