"""Downstream of a language model: what starts from what, and tables that are right for records with known scores."""

import pytest

from entp_lib import paths
from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.experiment import Experiment, planned
from entp_lib.experiments.frames import published
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.store import Record, Store
from entp_lib.tasks import clutrr
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
