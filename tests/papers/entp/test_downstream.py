"""Downstream of a language model: what starts from what, and tables that are right for records with known scores."""

import dataclasses

import pandas as pd
import pytest

from entp_lib import paths
from entp_lib.config import ModelConfig, RunConfig, StudyConfig, TrainConfig
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import published
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.experiments.plans import planned
from entp_lib.records.loading import weights_of
from entp_lib.records.store import Record, Store
from entp_lib.records.sweeps import sweep
from entp_lib.statistics import mcnemar
from entp_lib.tasks import clutrr
from entp_lib.training.loop import check_fit
from entp_lib.training.weights import trained_model
from entp_lib.validation import ConfigError
from entp_papers.entp.downstream import experiment as downstream

VERSION = 3  # of the made-up text experiment


@pytest.fixture
def pretrainings(tmp_path, monkeypatch):
    """A function that lists the configurations of tiny language models of bytes, at a tier."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    (tmp_path / "text.txt").write_text("Agnes read three chapters to her son Carl.\n\n" * 100, encoding="utf-8")
    params = dict(corpus=str(tmp_path / "text.txt"), tokenizer="bytes", context=96, split="tail", held_out=0.2)
    train = TrainConfig(steps=2, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=4, final_eval_sequences=4)

    def build(tier="smoke", seeds=1):
        return [
            RunConfig("made_up", tier, "text", params, ModelConfig(name, 2, 2, 16, 256, 96), train, seed, seed)
            for seed in range(seeds)
            for name in downstream.ARCHITECTURES
        ]

    return build


@pytest.fixture
def few_stories(monkeypatch):
    monkeypatch.setattr(clutrr, "EMBEDDED", {"validation": 16, "test": 32})
    for function in (clutrr.encoded, clutrr.held_out):
        function.cache_clear()
    yield
    for function in (clutrr.encoded, clutrr.held_out):
        function.cache_clear()


def test_every_run_starts_from_its_own_twin(pretrainings):
    """Same architecture, seeds, tier and tokenizer; both protocols; nothing but those differs between twins."""
    begun = pretrainings("gpu", seeds=2)
    configs = [downstream.fine_tuning(run, VERSION, p) for p in downstream.PROTOCOLS for run in begun]
    assert len(configs) == 8 and len({str(c) for c in configs}) == 8
    by_name = {downstream.record_name(run, VERSION): run for run in begun}
    for config in configs:
        run = by_name[config.start_from]
        assert (config.tier, config.model_seed, config.data_seed) == ("gpu", run.model_seed, run.data_seed)
        assert config.model.architecture == run.model.architecture and config.model.vocab_size == 256 + 21
        fair = config.task_params["protocol"] == "fair"
        assert config.task_params.get("subset_seed", 0) == (config.model_seed if fair else 0)
        check_fit(clutrr.Clutrr(**config.task_params), config)


def test_from_language_models_to_measurements(pretrainings, few_stories, store):
    begun = pretrainings()
    sweep(begun, VERSION, store=store, jobs=1)
    configs = [downstream.fine_tuning(run, VERSION, p) for p in downstream.PROTOCOLS for run in begun]
    done = sweep(configs, 1, store=store, jobs=1).records
    protocols = [r.config.task_params["protocol"] for r in done]
    runs = [planned(r.config, protocol=p) for r, p in zip(done, protocols, strict=True)]
    records = [dataclasses.replace(r, labels=run.labels) for r, run in zip(done, runs, strict=True)]
    path = weights_of(store, configs[0].start_from)
    _, model = trained_model(path)
    assert model.embedding.weight.shape == (256, 16)
    assert sweep(configs, 1, store=store, jobs=1).reused == 4
    table = downstream.errors(records)
    assert set(table["protocol"]) == set(downstream.PROTOCOLS) and len(table) == 4
    assert table.select_dtypes("number").to_numpy().min() >= 0
    assert downstream.by_chain(records).groupby("protocol")["sequences"].sum().tolist() == [64, 64]
    assert [len(m.values) for m in downstream.measure_clutrr(records)] == [1, 1]
    assert all(r.metrics["stories"]["train"]["examples"] == 40 for r in records)
    studies = [downstream.pronouns(run, VERSION) for run in begun]
    found = sweep(studies, 1, store=store, jobs=1).records
    assert downstream.pronoun_errors(found)["architecture"].tolist() == ["decoder", "entp"]
    (measured,) = downstream.measure_pronouns(found)
    assert measured.values == [pytest.approx(found[0].metrics["error"] - found[1].metrics["error"])]
    assert downstream.measure_clutrr([]) == downstream.measure_pronouns([]) == []


def test_language_models_are_trained_where_missing_records_need_them_and_nowhere_else(
    pretrainings, few_stories, monkeypatch
):
    def language_models(tier, seeds=0):
        return [planned(config, schedule=downstream.TABLE_8) for config in pretrainings(tier)]

    made_up = Experiment("made_up", VERSION, "", "", language_models, lambda records: [])
    monkeypatch.setattr(downstream, "OPENWEBTEXT", made_up)
    parameters, store = NotebookParameters(tier="smoke"), Store(paths.results() / "smoke")
    weights = [store.weights_path("made_up", made_up_id) for made_up_id in ids(pretrainings())]
    downstream.train_missing(parameters)
    assert all(path.exists() for path in weights)
    scored = downstream.PRONOUNS.collect(parameters).records
    assert len(downstream.DOWNSTREAM.collect(parameters).records) == 4
    for path in weights:
        path.unlink()
    downstream.train_missing(parameters)
    assert not any(path.exists() for path in weights)  # as in a fresh clone: all records, no weights
    assert downstream.DOWNSTREAM.collect(parameters).computed == downstream.PRONOUNS.collect(parameters).computed == 0
    store.path("pronouns", scored[0].id).unlink()
    downstream.train_missing(parameters)
    needed = f"{scored[0].config.params['weights'].split('/')[1]}.weights.safetensors"
    assert [path.name for path in weights if path.exists()] == [needed]
    assert downstream.PRONOUNS.collect(parameters).records[0].metrics == scored[0].metrics


def ids(runs):
    return [downstream.record_name(run, VERSION).split("/")[1] for run in runs]


def fine_tuned(run, protocol, accuracies, right):
    """A record with given validation accuracies and right answers on the test set by length of chain."""
    config = downstream.fine_tuning(run, VERSION, protocol)
    groups = {f"chain of {k}": {"sequences": 10, "right": n} for k, n in right.items()}
    share = sum(right.values()) / (10 * len(right))
    test = {rule: {"sequence_accuracy": share, "groups": groups} for rule in ("last", "highest_accuracy")}
    test["last"] = {"sequence_accuracy": 0.0, "groups": {name: g | {"right": 0} for name, g in groups.items()}}
    metrics = {"test": test, "baseline": {"sequence_accuracy": 0.1}}
    labels = planned(config, protocol=protocol).labels
    return Record("downstream", 1, config, metrics, {"sequence_accuracy": list(accuracies)}, {}, labels=labels)


@pytest.fixture
def made_up(pretrainings):
    decoder, entp = pretrainings("smoke")
    return [
        fine_tuned(decoder, "authors", (0.5, 0.7, 0.6), {2: 8, 10: 2}),
        fine_tuned(entp, "authors", (0.5, 0.8, 0.75), {2: 9, 10: 5}),
        fine_tuned(entp, "fair", (0.4, 0.4, 0.4), {2: 4, 10: 4}),
    ]


def test_errors_by_each_way_of_reporting(made_up):
    table = downstream.errors(made_up).set_index(["architecture", "protocol"])
    row = table.loc["decoder", "authors"]
    assert row["best of evaluations"] == pytest.approx(0.3) and row["last evaluation"] == pytest.approx(0.4)
    assert row["test, chosen on validation"] == pytest.approx(0.5)
    assert row["test, chosen on validation, trained lengths"] == pytest.approx(0.2)  # chains of 2 alone
    assert row["most frequent answer"] == pytest.approx(0.9)
    assert (downstream.errors(made_up, "last")["test, chosen on validation"] == 1).all()
    for table_of in (downstream.errors, downstream.by_chain):
        with pytest.raises(ConfigError, match="checkpoint rule = "):
            table_of(made_up, "best")


def test_gaps_pair_within_a_protocol(made_up):
    table = downstream.errors(made_up)
    assert downstream.gaps(table, "authors", downstream.PUBLISHED).tolist() == [pytest.approx(0.1)]
    assert downstream.gaps(table, "fair", downstream.FAIR).empty
    with pytest.raises(ConfigError, match="protocol = "):
        downstream.gaps(table, "unfair", downstream.FAIR)
    tests = downstream.paired_tests(made_up)
    assert tests.loc[("authors", downstream.FAIR), "mean"] == pytest.approx(0.2)
    assert tests.loc[("fair", downstream.FAIR), "pairs"] == 0


def pronoun_record(name, seed, right):
    metrics = {"architecture": name, "seed": seed, "error": 1 - sum(right) / len(right), "items": len(right)}
    metrics |= {"wrong": len(right) - sum(right), "low": 0.0, "high": 1.0}
    params = {"weights": "made_up/0123456789abcdef", "source": "embedded"}
    config = StudyConfig("pronouns", "smoke", "pronouns", params, seed, seed)
    return Record("pronouns", 1, config, metrics, {"right": right}, {})


def test_pronouns_are_compared_item_by_item():
    records = [
        pronoun_record("decoder", 0, [True, True, False, False, True, True]),
        pronoun_record("entp", 0, [True, False, True, True, True, True]),
        pronoun_record("entp", 1, [True] * 6),  # without a twin
    ]
    table = downstream.pronoun_tests(records)
    expected = {"seed": [0], "decoder wrong alone": [2], "entp wrong alone": [1], "p_value": [mcnemar(2, 1)]}
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected))
    (measured,) = downstream.measure_pronouns(records)
    assert measured.values == [pytest.approx(1 / 3 - 1 / 6)]


def test_the_authors_logs_give_their_table():
    """Means and population standard deviations of the best evaluations, as Table 4 rounds them."""
    table = published("entp", "downstream").query(
        "benchmark == 'CLUTRR' and n_train == 10_000 and rule == 'best of evaluations'"
    )
    assert len(table) == 8
    for _, part in table.groupby("architecture"):
        printed, logged = part[part["seed"].isna()].iloc[0], part.dropna(subset="seed")["error"]
        assert logged.mean() == pytest.approx(printed["error"], abs=5e-4)
        assert logged.std(ddof=0) == pytest.approx(printed["sd"], abs=5e-5)
    tests = downstream.authors_tests()
    assert set(tests["pairs"]) == {2, 3}
    assert (tests["decoder − ENTP"] - (tests["decoder"] - tests["entp"])).abs().drop(index=7500).max() < 1e-9
    assert tests.loc[(1250, "best of evaluations"), "decoder − ENTP"] < 0
