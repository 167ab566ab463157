"""Decoders with ENTP's multiply-adds: as many of them, the same seeds, the rules of equal steps."""

import pytest

from entp_lib.config import StudyConfig, config_id
from entp_lib.experiments import claims
from entp_lib.experiments.budgets import EQUAL_OPERATIONS, training_operations
from entp_lib.experiments.experiment import cost, own, spent
from entp_lib.experiments.frames import published, select
from entp_lib.records.store import Store
from entp_lib.records.sweeps import sweep
from entp_lib.registry import EXPERIMENTS
from entp_papers.entp.equal_operations import BUDGETS, COMPARISONS, OPERATIONS, budgets

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


@pytest.mark.parametrize("experiment", OPERATIONS, ids=NAMES)
def test_entp_is_the_one_that_its_own_experiment_planned(experiment):
    """Else its record would not be found, and ENTP would be trained once more."""
    for tier in ("smoke", "overnight"):
        runs = experiment.plan(tier, 0)
        assert runs[0].config.experiment == experiment.name  # whose records a fresh sweep computes again
        assert not experiment.plan("quick", 0)
        for run in runs:
            source = EXPERIMENTS[run.config.experiment]
            known = {config_id(c, source.version) for c in source.configs(tier)}
            assert source.version == experiment.version and config_id(run.config, experiment.version) in known


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


def test_claims_are_the_differences_to_entp(stored):
    records = stored[1]["match3_operations"]
    measured = {m.claim: m for m in EXPERIMENTS["match3_operations"].measure(records)}
    assert set(measured) == {"T2-operations", "T2-operations-sequences"}
    for claim, metric in (("T2-operations", "token_accuracy"), ("T2-operations-sequences", "sequence_accuracy")):
        entp, decoder = (
            {r.labels["seed"]: r.metrics[metric] for r in select(records, arm=arm)}
            for arm in ("entp", EQUAL_OPERATIONS)
        )
        assert measured[claim].values == pytest.approx([entp[seed] - decoder[seed] for seed in entp])
        assert set(measured[claim].records) == {f"{r.experiment}/{r.id}" for r in records}


def test_text_is_judged_beside_counts_of_bytes(stored):
    measured = {m.claim: m for m in EXPERIMENTS["openwebtext_operations"].measure(stored[1]["openwebtext_operations"])}
    assert set(measured) == {"T3-operations"}
    assert "bigram" in measured["T3-operations"].excluded_because  # after 12 steps nobody has passed it
    assert measured["T3-operations"].remark == "ENTP trained on 4 of 16 positions, the decoder on 16"


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_budgets_has_what_the_ledger_says(name):
    """Of what is stored overnight: each budget is ENTP's where its name says so, each lead that of its claim."""
    experiment, store = EXPERIMENTS[name], Store()
    sources = {run.config.experiment for run in experiment.plan("overnight", 0)} - {name}
    records = [r for source in sources for r in EXPERIMENTS[source].stored(store, "overnight")]
    measured = [
        m for source in sources for m in EXPERIMENTS[source].measure(EXPERIMENTS[source].stored(store, "overnight"))
    ]
    assert budgets(experiment, records).empty
    mine = experiment.stored(store, "overnight")
    known = claims.judge([*measured, *experiment.measure(mine)], only_measured=True).set_index("id")
    table = budgets(experiment, [*records, *mine]).reset_index()
    asked = [(c, claim, *question) for c in COMPARISONS[name] for claim, question in c.asked.items()]
    assert len(table) == 3 * len(asked)
    for comparison, *names, measure in asked:
        rows = table[(table["task"] == comparison.name) & (table["measure"] == measure)].set_index("equal")
        assert list(rows.index) == list(BUDGETS)
        assert rows.loc["steps", "steps"] == 1
        for budget in BUDGETS[1:]:
            assert rows.loc[budget, budget] == pytest.approx(1, abs=0.01)
        assert rows["steps"].is_monotonic_increasing and rows["multiply-adds"].is_monotonic_increasing
        for budget, claim in zip(BUDGETS, names, strict=False):
            assert rows.loc[budget, "ENTP's lead"].startswith(f"{known.loc[claim, 'our_value']:+.3f} (")
        assert rows["ENTP's lead"].nunique() == 3  # each of its own decoders


def test_the_overview_compares_at_the_same_claims():
    asked = {(a, b) for cs in COMPARISONS.values() for c in cs for a, (b, _) in c.asked.items()}
    rows = published("entp", "comparisons").dropna(subset="equal_multiply_adds")
    assert set(rows[["equal_steps", "equal_multiply_adds"]].itertuples(index=False, name=None)) == asked
    assert rows["equal_token_forwards"].isna().all()  # a footnote, where no decoder had as many multiply-adds


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
