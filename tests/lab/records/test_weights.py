"""Weights of finished runs: found by name, refused where damaged or strange, with the tokenizer
that they need.
"""

import json
from dataclasses import replace

import pytest
import torch
from conftest import BRIEF
from made_up import computed, turn_bit, unchanged
from mistakes import refused

from entp_lab.configs import RunConfig, config_id
from entp_lab.store import Store
from entp_lab.weights import (
    beside,
    load_model,
    load_tokenizer,
    missing_weights,
    save_weights,
    weights_of,
)
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.data import cache, sources
from entp_lib.model import build_model
from entp_papers.entp import playground


@pytest.fixture
def store(results):
    """The project's store, which is the test's own."""
    return Store()


@pytest.fixture
def trained(small_run, store):
    """The record of a short Count3 run, whose weights are in the store."""
    return computed(small_run("entp", experiment="count3", steps=2, **BRIEF), store)


def test_damaged_weights_are_set_aside_and_the_command_that_makes_them_named(
    trained, store, caplog
):
    path = store.weights_path(trained.name)
    turn_bit(path)
    config = replace(trained.config, experiment="later", start_from=trained.name)
    with refused(f"the weights of {trained.name} are miss"):
        computed(config, store)
    kept = store.root / f"set_aside/count3-{path.name}"
    assert f"kept as {kept}" in caplog.text
    assert kept.exists()
    assert not path.exists()


def test_a_run_of_ones_own_starts_from_the_projects_weights(trained, store):
    own = store.own()
    config = replace(trained.config, experiment="later", start_from=trained.name)
    assert computed(config, own).experiment == "later"
    assert weights_of(own, trained.name) == store.weights_path(trained.name)


def test_a_store_that_is_only_read_keeps_damaged_weights_where_they_are(trained, store):
    path = store.weights_path(trained.name)
    path.write_bytes(path.read_bytes()[:-1])
    with unchanged(store.root), refused("weights .* cannot be read"):
        weights_of(Store(store.root, read_only=True), trained.name)


def test_a_run_is_loaded_by_its_name_its_beginning_and_its_file(trained, store):
    path = store.weights_path(trained.name)
    models = [load_model(name) for name in (trained.name, trained.name[:11], str(path), path)]
    for model in models:
        assert not model.training
        assert model.cfg == trained.config.model
        assert all(map(torch.equal, model.parameters(), models[0].parameters()))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("count3", "write experiment/id"),
        ("count3/ffff", "no run count3/ffff"),
        ("x/ffff", "runs of x here: none"),
    ],
)
def test_a_run_that_is_not_there_is_named(trained, name, said):
    with refused(said):
        load_model(name)


def test_missing_weights_name_a_command_that_knows_the_run(store):
    assert "train count3" in str(missing_weights(store, "count3/ffff"))
    assert "train own" not in str(missing_weights(store, "own/ffff"))


# Tokenizers: what a corpus taught them lies beside the weights, and a corpus that weights name is
# never looked at.


def text_run(corpus, tokenizer="characters", vocabulary=30):
    params = dict(
        corpus=str(corpus),
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        split="tail",
        held_out=0.2,
        context=8,
    )
    size = vocabulary or 256
    model = ModelConfig("entp", 1, 1, 8, vocab_size=size, max_length=8)
    return RunConfig("test", "smoke", "text", params, model, TrainConfig(2, 2, **BRIEF))


def test_weights_bring_the_tokenizer_that_they_were_trained_with(tmp_path, store):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\f".join(["the quick brown dog jumps over it"] * 40))
    record = computed(text_run(corpus), store)
    path = store.weights_path(record.name)
    learned = load_tokenizer(path, record.config)
    assert learned.decode(learned.encode(["dog"], ended=False)) == "dog"
    corpus.unlink()
    cache.tokens_of.cache_clear()
    assert playground.player(str(path)).tokens("dog").tolist() == list(
        learned.encode(["dog"], ended=False)
    )
    for text, problem in (
        ('{"state": 7}', "holds no tokenizer"),
        ('"state"', "holds no tokenizer"),
        ("{}", "holds no tokenizer"),
        ("[" * 100_000, "holds no tokenizer"),
        (json.dumps({"state": "x" * 31}), "has more characters"),
    ):
        beside(path).write_text(text)
        with refused(f"{beside(path).name}: {problem}"):
            playground.player(str(path))


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A function that writes weights of a run on a text without its tokenizer; the text may not be
    opened.
    """
    for module in (sources, cache):
        monkeypatch.setattr(module, "source_of", lambda *names: pytest.fail(f"it opened {names}"))

    def write(config):
        path = tmp_path / "strange.weights.safetensors"
        with monkeypatch.context() as patch:
            patch.setattr("entp_lab.weights.LEARNED", ())
            save_weights(path, config, build_model(config.model), f"test/{config_id(config, 1)}")
        return path

    return write


@pytest.mark.parametrize("corpus", ["openwebtext", "embedded", "/etc/passwd"])
def test_a_corpus_that_strange_weights_name_is_not_opened(strange, corpus):
    path = strange(text_run(corpus))
    with refused(f"{path}: their tokenizer {beside(path).name} is missing"):
        playground.player(str(path))


def test_weights_on_bytes_need_no_tokenizer(strange):
    path = strange(text_run("openwebtext", "bytes", 0))
    assert playground.player(str(path)).tokens("ab").tolist() == [97, 98]


def test_a_checkpoint_is_not_taken_for_weights(tmp_path):
    path = tmp_path / "run.safetensors"
    path.touch()
    with refused("is it a checkpoint"):
        load_model(path)
