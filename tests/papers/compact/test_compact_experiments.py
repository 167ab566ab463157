"""The experiments: what they plan can run, and their tables and measurements say what their records hold."""

import inspect
import math

import pandas as pd
import pytest
import torch

from entp_lib.config import ModelConfig, config_id
from entp_lib.experiments.experiment import select
from entp_lib.experiments.measurements import Check
from entp_lib.records.store import Record
from entp_lib.registry import STUDIES
from entp_lib.validation import ConfigError, from_dict
from entp_papers.compact import (
    EXPERIMENTS,
    abstraction,
    activations,
    capacity,
    graph,
    knowledge,
    last_token,
    length_seeds,
    lengths,
    walk_activations,
)
from entp_papers.compact.activated import walk_model
from entp_papers.compact.length_studies import check
from entp_papers.compact.memory_studies import configs
from entp_papers.compact.templates import Templates
from entp_papers.compact.wirings import TripletConfig


def computed(experiment, keep=lambda run: True):
    """Records of the smoke tier, computed on the spot."""
    records = []
    for run in experiment.plan("smoke", 0):
        if keep(run):
            metrics, curves = STUDIES.named(run.config.study)(**run.config.params)
            record = Record(experiment.name, experiment.version, run.config, metrics, curves, {}, "complete")
            records += experiment.labelled([record], [run])
    return records


@pytest.mark.parametrize("tier", ["smoke", "quick", "overnight", "gpu", "paper"])
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_plans_name_what_there_is_once_each(experiment, tier):
    runs = experiment.plan(tier, 0)
    nightly = experiment.name in (activations.NAME, walk_activations.NAME, length_seeds.NAME, last_token.NAME)
    assert runs or tier in ("overnight", "gpu", "paper") or (nightly and tier == "quick")
    assert len({config_id(run.config, experiment.version) for run in runs}) == len(runs)
    for run in runs:
        assert run.config.experiment == experiment.name and run.config.tier == tier
        inspect.signature(STUDIES.named(run.config.study)).bind(**run.config.params)


@pytest.mark.parametrize("tier", ["smoke", "quick", "overnight", "gpu", "paper"])
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_everything_planned_passes_its_own_checks(experiment, tier):
    for run in experiment.plan(tier, 0):
        p = run.config.params
        if run.config.study in ("compact_capacity", "compact_largest_library", "compact_shatter"):
            configs(p["model"], p["schedule"])
        elif run.config.study == "compact_triplets":
            from_dict(TripletConfig, p["model"])
            from_dict(graph.Synthetic, p.get("traits") or {})
        elif run.config.study == "compact_abstraction":
            from_dict(Templates, p["task"])
            assert p["width"] % p["n_heads"] == 0
        elif run.config.study == "compact_addition":
            names = ("positions", "format", "trained_digits", "tested_digits", "steps", "batch_size", "tested")
            check(*(p[name] for name in names))


def test_quick_has_what_the_fit_needs_and_twins_are_paired():
    sweep = [run for run in capacity.CAPACITY.plan("quick") if run.labels["part"] == "sweep"]
    assert len(sweep) >= 24
    runs = lengths.LENGTHS.plan("quick")
    sides = {"decoder": set(), "entp": set()}
    for run in runs:
        sides[run.labels["arm"]].add(str({k: v for k, v in run.config.params.items() if k != "architecture"}))
    assert sides["decoder"] == sides["entp"] and len(sides["entp"]) * 2 == len(runs)


def test_capacity_tables():
    records = computed(capacity.CAPACITY)
    assert len(capacity.points(records)) == 24 and set(capacity.forms(records).index) == {"min", "max"}
    assert list(capacity.table(records, "largest")["width"]) == [8]
    verdicts = {c.claim: c.verdict for c in capacity.measure(records) if isinstance(c, Check)}
    assert verdicts["CT-chance"] == "verified with correction" and verdicts["CT-one-layer"] == "verified"
    assert len(capacity.by_length(records)) == 8 and len(capacity.by_feed_forward(records)) == 1
    assert len(capacity.by_economy(records)) == 6
    assert capacity.measure(records[:5]) == []


def test_graph_tables():
    records = computed(knowledge.GRAPH)
    rows = knowledge.table(records, "wirings")
    assert len(rows) == 6 and rows.loc[rows["wiring"] == "published", "relation_gradient"].eq(0).all()
    found = {m.claim: m for m in knowledge.measure(records)}
    assert found["CT-wiring"].verdict == "verified" and len(found["CT-ceiling"].values) == 1
    assert len(knowledge.table(records, "walks")) == 3 and knowledge.width_and_depth(records).shape == (2, 2)
    assert set(knowledge.epochs_needed(records).index) == {"triplets", "walks"}


def test_abstraction_tables():
    records = computed(abstraction.ABSTRACTION)
    assert list(abstraction.table(records)["n_layers"]) == [1, 2, 2, 2]
    assert set(abstraction.by_position(records)["position"]) == set(range(1, 12))
    found = {m.claim: m for m in abstraction.measure(records)}
    assert found["CT-floor"].verdict == found["CT-templates"].verdict == "verified"
    assert len(found["CT-depth-2"].values) == 1 and "CT-depth-3" not in found  # no three layers at smoke
    assert len(found["CT-entp-depth"].values) == 1


def test_length_tables():
    records = computed(lengths.LENGTHS, lambda run: run.labels["positions"] in ("learned", "coupled", "t5"))
    shown = lengths.overview(records)
    assert shown.shape[1] == 4 and ("padded", "coupled") in shown.index
    assert {m.claim for m in lengths.measure(records)} == {"CT-coupling", "CT-relative", "CT-none", "CT-entp-length"}
    assert len(lengths.entp_gain(records)) == 1
    assert len(lengths.gain(records, "coupled", "decoder")) == 1 and lengths.gain(records, "none", "decoder") == []
    assert set(lengths.furthest(records, 0.0).columns) == {"decoder", "entp"}


def test_activation_tables():
    """Softmax two epochs later than the others at equal ends; deeper models with ReLU recall less."""
    runs = activations.ACTIVATION_RUNS.plan("overnight", 0)
    assert len(runs) == 5 * 2 * 3 * 4 and runs[0].config.params["model"]["width"] == 64
    records = []
    for run in runs:
        slow, deep = run.labels["activation"] == "softmax", run.labels["n_layers"] == 4
        most = 0.5 if run.labels["wiring"] == "published" else 1.0
        end = most * (0.8 if deep and run.labels["activation"] == "relu" else 1.0)
        accuracy = [0.0, 0.0 if slow else 0.95 * end, *[end] * 4] if not deep else [0.0, 0.0, *[end] * 4]
        curves = {"epoch": [2, 4, 8, 16, 32, 64], "accuracy": accuracy}
        records.append(Record(activations.NAME, 1, run.config, {"concept_ceiling": 0.5}, curves, {}))
    records = activations.ACTIVATION_RUNS.labelled(records, runs)
    found = {m.claim: m for m in activations.measure(records)}
    late = math.log(2) * 2 / 3  # twice the epochs at two of three depths
    assert found["CT-activation-speed"].values == pytest.approx([-late] * 5) and found["CT-activation-speed"].idle == ""
    assert found["CT-activation"].values == pytest.approx([0.1 / 9] * 5)
    assert found["CT-activation-depth"].values == pytest.approx([-0.05] * 5)
    assert found["CT-activation-steady"].values == pytest.approx([0] * 5)
    assert found["CT-activation-depth"].remark == "in the last epoch alone -0.0500, -0.0500 to -0.0500"
    assert found.keys() == {f"CT-activation{end}" for end in ("", "-steady", "-speed", "-depth")}
    shown = activations.overview(records)
    assert math.isnan(shown.loc[("described", 4), ("epochs", "relu")])
    one = shown.loc[("published", 1), "epochs"]
    assert one["softmax"] == 8 == 2 * one["gelu"]
    smoke = computed(activations.ACTIVATION_RUNS, lambda run: run.labels["n_layers"] > 1)
    assert activations.table(smoke)["reachable"].between(0.1, 1).all() and len(activations.table(smoke)) == 16


def test_walk_activation_tables():
    """RReLU at twice the epochs, level but for four layers; a run that never arrives bars the comparison of epochs."""
    runs = walk_activations.WALK_ACTIVATIONS.plan("overnight", 0)
    assert len(runs) == 5 * 3 * 2 and [runs[i].config.params["width"] for i in (0, 2, 4)] == [64, 32, 16]
    records = []
    for run in runs:
        slow = run.labels["activation"] == "rrelu"
        end = 0.9 - 0.01 * (slow and run.labels["n_layers"] == 4)
        curves = {"epoch": [2, 4, 8, 16, 32], "accuracy": [0.0, 0.0 if slow else 0.85, *[end] * 3]}
        records.append(Record(walk_activations.NAME, 1, run.config, {"ceiling": 0.9}, curves, {}))
    records = walk_activations.WALK_ACTIVATIONS.labelled(records, runs)
    found = {m.claim: m for m in walk_activations.measure(records)}
    assert found["CT-walks-speed"].values == pytest.approx([math.log(2)] * 5) and not found["CT-walks-speed"].idle
    assert found["CT-walks-level"].values == pytest.approx([0] * 5)
    assert found["CT-walks-depth"].values == pytest.approx([-0.01] * 5)
    assert len(found["CT-walks-depth"].records) == 10 and len(found["CT-walks-level"].records) == 20
    shown = walk_activations.overview(records)
    assert shown.loc[4, ("epochs", "rrelu")] == 8 and shown.loc[4, ("end", "rrelu")] == pytest.approx(0.89)
    records[0].curves["accuracy"][:] = [0.1] * 5
    barred = {m.claim: m.idle for m in walk_activations.measure(records)}
    assert barred["CT-walks-speed"] == "1 of 30 runs never recall nine tenths of what they can"
    assert barred["CT-walks-level"] == "" and walk_activations.measure([]) == []
    smoke = computed(walk_activations.WALK_ACTIVATIONS, lambda run: run.labels["n_layers"] < 4)
    assert walk_activations.table(smoke)["reachable"].between(0.1, 1).all() and len(walk_activations.table(smoke)) == 4


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_walk_models_differ_in_the_activation_alone(architecture):
    cfg = ModelConfig(architecture, 2, 2, 16, vocab_size=11, max_length=6)
    shared, softmax = walk_model(cfg, "gelu", 3), walk_model(cfg, "softmax", 3)
    for (name, p), (other, q) in zip(shared.named_parameters(), softmax.named_parameters(), strict=True):
        assert name == other and torch.equal(p, q)
    tokens_BT = torch.randint(0, 11, (3, 6), generator=torch.Generator().manual_seed(0))
    fast = softmax(tokens_BT)
    assert not torch.allclose(fast, shared(tokens_BT), atol=1e-6)
    softmax.entp_method = "reference"
    assert torch.allclose(fast, softmax(tokens_BT), atol=1e-5)
    block, x_TD = softmax.blocks[0], torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    hidden = torch.softmax(block.fc_in(block.ln_2(x_TD)), dim=-1)
    assert torch.allclose(block.residual(x_TD, torch.zeros_like(x_TD)), x_TD + block.fc_out(hidden), atol=1e-6)
    randomised = walk_model(cfg, "rrelu", 3)
    assert not torch.equal(randomised(tokens_BT), randomised(tokens_BT))
    randomised.eval()
    assert torch.equal(randomised(tokens_BT), randomised(tokens_BT))
    with pytest.raises(ConfigError, match="activation = 'rrely': must be one of .*did you mean 'rrelu'"):
        walk_model(cfg, "rrely", 3)


@pytest.mark.parametrize(
    ("steps", "epochs", "expected"),
    [
        ([1, 2, 3, 4], [4, 3, 2, 1], {"steps": True, "epochs": False}),
        ([1, 2, 3, 4], [1, 2, 2, 3], {"steps": True, "epochs": True}),
        ([1, 3, 2, 4], [1, 2, 3, 4], {"steps": False, "epochs": True}),
    ],
)
def test_capacity_by_batch_size_is_looked_at_at_equal_steps_and_at_equal_epochs(steps, epochs, expected):
    runs = [run for run in capacity.CAPACITY.plan("quick", 0) if run.labels["part"] == "batch"]
    best = {"steps": steps, "epochs": epochs}
    sizes = sorted({run.labels["batch_size"] for run in runs})
    records = [
        Record(
            "compact_capacity",
            1,
            run.config,
            {"best": best[run.labels["equal"]][sizes.index(run.labels["batch_size"])]},
            {},
            {},
        )
        for run in runs
    ]
    assert capacity.with_larger_batches(capacity.CAPACITY.labelled(records, runs)) == expected


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((1.0, 1.0, 1.0), "uninformative"),
        ((0.98, 0.95, 0.9), "same direction"),
        ((0.9, 0.95, 0.94), "not reproduced"),
    ],
)
def test_the_share_that_is_recalled_falls_only_where_it_could(shares, verdict):
    rows = [dict(size=size, seed=seed, best=s) for size, s in zip((3, 5, 7), shares, strict=True) for seed in range(5)]
    found = knowledge.share_by_size(pd.DataFrame(rows), "quick", ["a/b"])
    assert (found.found, found.runs, bool(found.why)) == (verdict, 5, verdict == "uninformative")


@pytest.mark.parametrize(
    ("one", "two", "why"),
    [
        (0.31, 0.8, ""),
        (0.31, 0.36, "no side is above guessing"),
        (0.97, 0.98, "a side is nearer to its ceiling than the margin"),
    ],
)
def test_depths_are_compared_where_one_of_them_does_more_than_guess(one, two, why):
    runs = abstraction.ABSTRACTION.plan("overnight", 0)
    records = []
    for run in runs:
        last, strongest = (one, 0.02) if run.labels["n_layers"] == 1 else (two, 0.5)
        heads = dict(strongest=strongest, accuracy=0.5, without=[[0.5]])
        metrics = dict(seen=dict(loss=1.0), floor=0.7, last=dict(seen=last, held_out=last), matching=dict(held_out=1.0))
        records.append(Record("compact_abstraction", 1, run.config, {**metrics, "heads": heads}, {}, {}))
    found = {m.claim: m for m in abstraction.measure(abstraction.ABSTRACTION.labelled(records, runs))}
    assert found["CT-depth-2"].idle == why and found["CT-depth-2"].values == pytest.approx([two - one] * 5)
    succeeded = two >= 0.95  # of others the paper says nothing
    assert found["CT-abstraction-head"].values == pytest.approx([0.48] * 5 * succeeded)
    assert "CT-depth-3" not in found and "CT-entp-depth" not in found


@pytest.mark.parametrize(("trained", "why"), [(1.0, ""), (0.3, ""), (0.01, "trained length not learned: ")])
def test_a_scheme_is_compared_where_it_has_learned_what_it_was_trained_on(trained, why):
    records = []
    for run in lengths.LENGTHS.plan("quick", 0):
        if run.labels["format"] == "padded" and run.labels["positions"] in ("learned", "coupled"):
            lead = 0.3 if run.labels["positions"] == "coupled" else 0.0
            lead += 0.001 * run.labels["seed"] * (run.labels["positions"] == "coupled")
            digits = run.config.params["tested_digits"]
            metrics = {
                "accuracy": {str(n): trained if n == digits[0] else 0.0 for n in digits},
                "token_accuracy": {str(n): 0.9 if n == digits[0] else 0.2 + lead for n in digits},
            }
            records.append(Record("compact_lengths", 1, run.config, metrics, {"loss": [1.0]}, {}))
    records = lengths.LENGTHS.labelled(records, [r for r in lengths.LENGTHS.plan("quick", 0)])
    found = {m.claim: m for m in lengths.measure(records)}
    coupling, entp = found["CT-coupling"].undecided, found["CT-entp-length"].undecided
    assert coupling == why + ("coupled (decoder), learned (decoder)" if why else "")
    assert entp == why + ("coupled (entp), coupled (decoder)" if why else "")
    assert found["CT-coupling"].values == pytest.approx([0.3 + 0.001 * seed for seed in range(5)])
    assert len(found["CT-entp-length"].values) == 5


def test_index_hints_are_compared_in_their_own_format():
    """Decoders alone have hinted text at ``overnight``; the table is blank for ENTP and keeps quick's other schemes."""
    runs = [r for r in lengths.LENGTHS.plan("overnight", 0) if r.labels["positions"] in ("learned", "fire")]
    hinted = [r for r in runs if r.labels["format"] == "hinted"]
    assert len(hinted) == 10 and {r.labels["arm"] for r in hinted} == {"decoder"}
    records = []
    for run in runs:
        lead = {"hinted": 0.2, "padded": -0.1}[run.labels["format"]] * (run.labels["positions"] == "fire")
        digits = run.config.params["tested_digits"]
        metrics = {name: {str(n): 0.5 + lead for n in digits} for name in ("accuracy", "token_accuracy")}
        records.append(Record("compact_lengths", 1, run.config, metrics, {"loss": [1.0]}, {}))
    records = lengths.LENGTHS.labelled(records, runs)
    found = {m.claim: m for m in lengths.measure(records)}
    assert found["CT-fire"].values == pytest.approx([0.2] * 5) and found["CT-fire"].undecided == ""
    shown = lengths.overview(records)
    assert (shown.loc[("hinted", "fire"), "entp"] == "").all() and shown.loc[("hinted", "fire"), ("decoder", 7)][
        0
    ] == "0"


@pytest.mark.parametrize(
    ("decoder", "entp", "why"),
    [
        (0.0, 1.0, ""),
        (0.01, 0.02, "no side is above guessing"),
        (0.97, 1.0, "a side is nearer to its ceiling than the margin"),
    ],
)
def test_more_seeds_of_relative_positions_are_compared_at_the_trained_length(decoder, entp, why):
    runs = length_seeds.LENGTH_SEEDS.plan("overnight", 0)
    planned = {(r.labels["positions"], r.labels["arm"]): [] for r in runs}
    for r in runs:
        planned[r.labels["positions"], r.labels["arm"]].append(r.config.model_seed)
    assert planned["t5", "entp"] == [1, 2, 3, 4, 5] and planned["none", "decoder"] == [1, 2] and len(runs) == 56
    assert planned["alibi", "longer"] == [1, 2, 3, 4, 5] and ("fire", "longer") not in planned
    of_seed_0 = {config_id(c, 1) for c in lengths.LENGTHS.configs("overnight")}
    assert not of_seed_0 & {config_id(r.config, 1) for r in runs}
    records = []
    for run in runs:
        share = {"decoder": decoder, "entp": entp, "longer": decoder / 2}[run.labels["arm"]]
        accuracy = {"5": share if run.labels["positions"] in length_seeds.RELATIVE else 0.5, "7": 0.0}
        metrics = {"accuracy": accuracy, "token_accuracy": accuracy}
        records.append(Record("compact_length_seeds", 1, run.config, metrics, {"loss": [1.0]}, {}))
    records = length_seeds.LENGTH_SEEDS.labelled(records, runs)
    found, compute = length_seeds.measure(records)
    assert found.values == pytest.approx([entp - decoder] * 5) and found.idle == why and len(found.records) == 30
    assert compute.values == pytest.approx([entp - decoder / 2] * 5) and len(compute.records) == 20
    assert length_seeds.measure(records[:3])[0].values == [] and length_seeds.measure([]) == []
    assert [m.claim for m in length_seeds.measure(select(records, arm=lengths.ARCHITECTURES))] == [found.claim]


def test_whole_sums_of_the_trained_length_stand_seed_by_seed():
    runs = [r for r in length_seeds.LENGTH_SEEDS.plan("overnight", 0) if r.config.model_seed < 3]
    records = []
    for run in runs:
        share = 0.1 * run.config.model_seed + 0.5 * (run.labels["arm"] == "longer")
        accuracy = {"5": share, "7": 0.9}
        metrics = {"accuracy": accuracy, "token_accuracy": accuracy}
        records.append(Record("compact_length_seeds", 1, run.config, metrics, {"loss": [1.0]}, {}))
    found = length_seeds.trained_length(length_seeds.LENGTH_SEEDS.labelled(records, runs))
    assert list(found.columns) == [1, 2] and len(found) == 3 * 2 + 2  # FIRE has no longer decoder
    assert found.loc[("t5", "longer")].tolist() == pytest.approx([0.6, 0.7])
    assert found.loc[("fire", "entp")].tolist() == pytest.approx([0.1, 0.2])
