"""The nine experiments: every planned run passes its study's checks, and measurements follow from their records."""

import inspect
import math

import pytest
from made_up import sound

from entp_lib.config import TIERS, config_id
from entp_lib.experiments.frames import select
from entp_lib.experiments.measurements import Check, Measurement
from entp_lib.records.store import Record
from entp_lib.registry import EXPERIMENTS, STUDIES
from entp_lib.reports.ledger import ledger
from entp_lib.validation import from_dict
from entp_papers.compact import EXPERIMENTS as NAMES
from entp_papers.compact import abstraction, activations, addition, capacity, graph, lengths
from entp_papers.compact.abstraction import ABSTRACTION
from entp_papers.compact.capacity import CAPACITY
from entp_papers.compact.graph_studies import TripletConfig
from entp_papers.compact.lengths import LENGTH_SEEDS, LENGTHS
from entp_papers.compact.memory import MemoryConfig, Schedule
from entp_papers.compact.positions import SCHEMES
from entp_papers.compact.templates import Templates


def records_of(experiment, tier, contents=lambda run: ({}, {}), **labels):
    """Labelled records of a tier's runs with these labels; ``contents``: metrics and curves of a run."""
    chosen = [run for run in experiment.plan(tier, 0) if not labels or select([run], **labels)]
    made = [Record(experiment.name, 1, run.config, *contents(run), {}, "complete") for run in chosen]
    return experiment.labelled(made, chosen)


def computed(run):
    return STUDIES.named(run.config.study)(**run.config.params)


@pytest.mark.parametrize("name", NAMES)
def test_everything_planned_passes_its_own_checks(name):
    experiment = EXPERIMENTS[name]
    for tier in TIERS:
        runs = experiment.plan(tier, 0)
        assert len({config_id(run.config, 1) for run in runs}) == len(runs)
        for run in runs:
            p, study = run.config.params, run.config.study
            assert (run.config.experiment, run.config.tier) == (name, tier)
            inspect.signature(STUDIES.named(study)).bind(**p)
            if study in ("compact_capacity", "compact_largest_library", "compact_shatter"):
                from_dict(MemoryConfig, p["model"]), from_dict(Schedule, p["schedule"])
            elif study == "compact_triplets":
                from_dict(TripletConfig, p["model"]), from_dict(graph.Synthetic, p.get("traits") or {})
            elif study == "compact_abstraction":
                from_dict(Templates, p["task"])
                assert p["width"] % p["n_heads"] == 0
            elif study == "compact_addition":
                fields = ("positions", "format", "trained_digits", "tested_digits", "steps", "batch_size", "tested")
                addition.check(*(p[field] for field in fields))


def test_capacity_of_smoke_runs():
    records = records_of(CAPACITY, "smoke", computed)
    assert len(capacity.points(records)) == 24 and set(capacity.forms(records).index) == {"min", "max"}
    assert list(capacity.table(records, "largest")["width"]) == [8]
    verdicts = {c.claim: c.verdict for c in capacity.measure(records) if isinstance(c, Check)}
    assert verdicts["CT-chance"] == "verified with correction" and verdicts["CT-one-layer"] == "verified"
    values = {m.claim: len(m.values) for m in capacity.measure(records) if isinstance(m, Measurement)}
    assert values.items() >= {"CT-length": 8, "CT-economy": 6, "CT-feed-forward": 1}.items()
    assert capacity.measure(records[:5]) == []


def test_triplets_by_activation():
    """Softmax two epochs later than the others at equal ends; deeper models with ReLU recall less."""

    def contents(run):
        slow, deep = run.labels["activation"] == "softmax", run.labels["n_layers"] == 4
        most = 0.5 if run.labels["wiring"] == "published" else 1.0
        end = most * (0.8 if deep and run.labels["activation"] == "relu" else 1.0)
        accuracy = [0.0, 0.0 if slow or deep else 0.95 * end, *[end] * 4]
        return {"concept_ceiling": 0.5}, {"epoch": [2, 4, 8, 16, 32, 64], "accuracy": accuracy}

    records = records_of(activations.ACTIVATION_RUNS, "overnight", contents)
    found = {m.claim.removeprefix("CT-activation"): m for m in activations.measure(records)}
    late = math.log(2) * 2 / 3  # twice the epochs at two of three depths
    assert found["-speed"].values == pytest.approx([-late] * 5) and found["-speed"].uninformative_because == ""
    assert found[""].values == pytest.approx([0.1 / 9] * 5) and found["-steady"].values == pytest.approx([0] * 5)
    assert found["-depth"].values == pytest.approx([-0.05] * 5) and "-0.0500, -0.0500 to" in found["-depth"].remark
    shown = activations.overview(records)
    assert math.isnan(shown.loc[("described", 4), ("epochs", "relu")])
    one = shown.loc[("published", 1), "epochs"]
    assert one["softmax"] == 8 == 2 * one["gelu"]


def test_walks_by_activation():
    """RReLU at twice the epochs, level but for four layers; a run that never arrives bars the comparison of epochs."""

    def contents(run):
        slow = run.labels["activation"] == "rrelu"
        end = 0.9 - 0.01 * (slow and run.labels["n_layers"] == 4)
        return {"ceiling": 0.9}, {"epoch": [2, 4, 8, 16, 32], "accuracy": [0.0, 0.0 if slow else 0.85, *[end] * 3]}

    records = records_of(activations.WALK_ACTIVATIONS, "overnight", contents)
    speed, level, depth = activations.measure_walks(records)
    assert speed.values == pytest.approx([math.log(2)] * 5) and not speed.uninformative_because
    assert level.values == pytest.approx([0] * 5) and depth.values == pytest.approx([-0.01] * 5)
    assert len(depth.records) == 10 and len(level.records) == 20
    shown = activations.overview(records)
    assert shown.loc[4, ("epochs", "rrelu")] == 8 and shown.loc[4, ("end", "rrelu")] == pytest.approx(0.89)
    records[0].curves["accuracy"][:] = [0.1] * 5
    speed, level, _ = activations.measure_walks(records)
    assert (
        "1 of 30 runs" in speed.uninformative_because
        and level.uninformative_because == ""
        and activations.measure_walks([]) == []
    )


@pytest.mark.parametrize(("one", "two", "why"), [(0.31, 0.8, ""), (0.31, 0.36, "no side is above guessing")])
def test_depths_are_compared_where_one_of_them_does_more_than_guess(one, two, why):
    def contents(run):
        last, strongest = (one, 0.02) if run.labels["n_layers"] == 1 else (two, 0.5)
        heads = dict(strongest=strongest, accuracy=0.5, without=[[0.5]])
        metrics = dict(seen=dict(loss=1.0), floor=0.7, last=dict(seen=last, held_out=last), matching=dict(held_out=1.0))
        return {**metrics, "heads": heads}, {}

    found = {m.claim: m for m in abstraction.measure(records_of(ABSTRACTION, "overnight", contents))}
    assert found["CT-depth-2"].uninformative_because == why and found["CT-depth-2"].values == pytest.approx(
        [two - one] * 5
    )
    assert found["CT-abstraction-head"].values == pytest.approx([0.48] * 5 * (two >= 0.95))  # of those that succeed
    assert found["CT-floor"].verdict == found["CT-templates"].verdict == "verified"
    assert "CT-depth-3" not in found and "CT-entp-depth" not in found


def sums(experiment, tier, share, tokens=lambda labels, factor: 0.5, **labels):
    """Records with ``share(labels, factor)`` whole sums right and so many ``tokens``; factor: over trained digits."""

    def contents(run):
        trained, tested = (run.config.params[name] for name in ("trained_digits", "tested_digits"))
        both = [{str(n): f(run.labels, n / trained) for n in sorted(tested, key=str)} for f in (share, tokens)]
        return dict(zip(("accuracy", "token_accuracy"), both, strict=True)), {"loss": [1.0]}

    return records_of(experiment, tier, contents, **labels)


def at_trained(labels, factor):
    return float(factor == 1)


@pytest.mark.parametrize(("trained", "why"), [(0.3, ""), (0.01, "trained length not learned: ")])
def test_a_scheme_is_compared_where_its_training_sums_are_learned(trained, why):
    def tokens(labels, factor):
        return 0.9 if factor == 1 else 0.2 + (labels["positions"] == "coupled") * (0.3 + 0.001 * labels["seed"])

    records = sums(LENGTHS, "quick", lambda _, factor: trained * (factor == 1), tokens, format="padded")
    found = {m.claim: m for m in lengths.measure(records)}
    assert found["CT-coupling"].undecided == why + ("coupled (decoder), learned (decoder)" if why else "")
    assert found["CT-entp-length"].undecided == why + ("coupled (entp), coupled (decoder)" if why else "")
    assert found["CT-coupling"].values == pytest.approx([0.3 + 0.001 * seed for seed in range(5)])
    assert len(found["CT-entp-length"].values) == 5


@pytest.mark.parametrize(("decoder", "entp", "why"), [(0.0, 1.0, ""), (0.01, 0.02, "no side is above guessing")])
def test_more_seeds_of_relative_positions_are_compared_at_the_trained_length(decoder, entp, why):
    def share(labels, factor):
        learned = {"decoder": decoder, "entp": entp, "longer": decoder / 2}[labels["arm"]]
        return (learned if labels["positions"] in lengths.RELATIVE else 0.5) * (factor == 1)

    records = sums(LENGTH_SEEDS, "overnight", share)
    assert not {config_id(c, 1) for c in LENGTHS.configs("overnight")} & {config_id(r.config, 1) for r in records}
    found, compute = lengths.measure_seeds(records)
    assert (
        found.values == pytest.approx([entp - decoder] * 5)
        and found.uninformative_because == why
        and len(found.records) == 30
    )
    assert compute.values == pytest.approx([entp - decoder / 2] * 5) and len(compute.records) == 20
    assert lengths.measure_seeds(records[:3])[0].values == [] and lengths.measure_seeds([]) == []
    assert [m.claim for m in lengths.measure_seeds(select(records, arm=lengths.ARCHITECTURES))] == [found.claim]
    shown = lengths.trained_length(records)
    assert list(shown.columns) == [1, 2, 3, 4, 5] and len(shown) == 3 * 2 + 2  # FIRE has no longer decoder
    assert shown.loc[("t5", "longer")].tolist() == pytest.approx([decoder / 2] * 5)


def test_tables_of_lengths_have_the_formats_of_each_tier_and_digits_in_order():
    shown = {tier: lengths.overview(sums(LENGTHS, tier, at_trained)) for tier in ("overnight", "quick")}
    assert set(shown["overnight"].index.unique("format")) == {"padded", "hinted"}
    assert set(shown["quick"].index.unique("format")) == set(addition.FORMATS) and len(shown["quick"]) == 14
    assert (shown["overnight"].loc[("hinted", "learned"), "entp"] == "").all()  # the decoder alone was trained
    for tier, digits in (("overnight", [5, 7, 10, 15]), ("quick", [2, 3, 4, 6])):
        assert list(shown[tier].columns) == [(a, n) for a in lengths.ARCHITECTURES for n in digits]
    assert shown["overnight"].loc[("padded", "none"), ("entp", 5)].startswith("1.00")
    assert sorted(scheme for family in lengths.FAMILIES.values() for scheme in family) == sorted(SCHEMES)


def test_a_pair_of_a_higher_tier_hides_no_five_of_quick(store):
    """A notebook's verdicts are the ledger's, unless somebody asked for fewer runs."""
    quick, night = (sums(LENGTHS, tier, at_trained) for tier in ("quick", "overnight"))
    for r in (*quick, *night):
        store.save(sound(r))
    found = {m.claim: (m.tier, len(m.values)) for m in LENGTHS.measurements(night, store)}
    assert found["CT-coupling"] == ("overnight", 5) and found["CT-relative"] == found["CT-none"] == ("quick", 5)
    rows = ledger(store).set_index("id").loc[list(found)]
    assert rows["tier"].to_dict() == {claim: tier for claim, (tier, _) in found.items()}
    fewer = [r for r in night if r.labels["seed"] < 3]
    asked = {m.claim: (m.tier, len(m.values)) for m in LENGTHS.measurements(fewer, store)}
    assert asked["CT-coupling"] == ("overnight", 3) and asked["CT-relative"] == ("overnight", 1)
