"""Downstream of a language model: what starts from what; pronouns are scored by the rest of their
sentence.
"""

from collections import Counter

import pytest
import torch
from conftest import BRIEF

from entp_lab import paths
from entp_lab.configs import RunConfig
from entp_lab.experiment import TWINS, Experiment, planned
from entp_lab.frames import published
from entp_lab.parameters import NotebookParameters
from entp_lab.store import Store
from entp_lib.config import ARCHITECTURES, ModelConfig, TrainConfig
from entp_lib.data.tokenizers import Bytes
from entp_papers.entp.downstream import experiment as downstream
from entp_papers.entp.downstream import pronouns as module


@pytest.fixture
def pretrainings(tmp_path, monkeypatch):
    """Return a function that lists the configurations of tiny language models of bytes,
    at a tier.
    """
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    text = tmp_path / "text.txt"
    text.write_text("Agnes read three chapters to her son Carl.\n\n" * 100, encoding="utf-8")
    task = dict(corpus=str(text), tokenizer="bytes", context=96, split="tail", held_out=0.2)

    def build(tier):
        return [
            RunConfig(
                "made_up",
                tier,
                "text",
                task,
                ModelConfig(name, 2, 2, 16, 256, 96),
                TrainConfig(2, **BRIEF),
            )
            for name in TWINS
        ]

    return build


@pytest.fixture
def planned_anew():
    """Plans start from the runs on text and are kept for the process: neither those of before nor
    those of now.
    """
    downstream.DOWNSTREAM.plan.cache_clear()
    downstream.PRONOUNS.plan.cache_clear()
    yield
    downstream.DOWNSTREAM.plan.cache_clear()
    downstream.PRONOUNS.plan.cache_clear()


def test_language_models_are_trained_where_missing_records_need_them_and_nowhere_else(
    pretrainings, few_stories, planned_anew, monkeypatch
):
    def language_models(tier, seeds=0):
        return [planned(config, schedule=downstream.TABLE_8) for config in pretrainings(tier)]

    made_up = Experiment("made_up", 3, "", "", language_models, lambda records: [])
    monkeypatch.setattr(downstream, "OPENWEBTEXT", made_up)
    parameters = NotebookParameters(tier="smoke")
    store = Store(paths.results() / "smoke")
    weights = [
        store.weights_path(downstream.record_name(config)) for config in pretrainings("smoke")
    ]
    downstream.train_missing(parameters)
    assert all(path.exists() for path in weights)
    scored = downstream.PRONOUNS.collect(parameters).complete
    assert len(downstream.DOWNSTREAM.collect(parameters).complete) == 4
    for path in weights:
        path.unlink()
    downstream.train_missing(parameters)
    # as in a fresh clone: all records, no weights
    assert not any(path.exists() for path in weights)
    assert downstream.DOWNSTREAM.collect(parameters).reused == 4
    assert downstream.PRONOUNS.collect(parameters).reused == len(scored)
    store.path(scored[0].name).unlink()
    downstream.train_missing(parameters)
    needed = f"{scored[0].config.params['weights'].split('/')[1]}.weights.safetensors"
    assert [path.name for path in weights if path.exists()] == [needed]
    assert downstream.PRONOUNS.collect(parameters).complete[0].metrics == scored[0].metrics


def test_the_authors_logs_give_their_table():
    """Means and population standard deviations of the best evaluations, as Table 4 rounds them."""
    best = "benchmark == 'CLUTRR' and n_train == 10_000 and rule == 'best of evaluations'"
    for _, part in published("entp", "downstream").query(best).groupby("architecture"):
        printed = part[part["seed"].isna()].iloc[0]
        logged = part.dropna(subset="seed")["error"]
        assert logged.mean() == pytest.approx(printed["error"], abs=5e-4)
        assert logged.std(ddof=0) == pytest.approx(printed["sd"], abs=5e-5)


# Pronouns: what is scored is the rest of the sentence, items are balanced, and the published
# difference is noise.


@torch.no_grad()
def by_hand(model, start, rest):
    """Log-likelihood of the rest, a token at a time, each from a prefix of its own."""
    ids = [*start.encode()]
    total = 0.0
    for token in rest.encode():
        row = torch.tensor([ids])
        scored = torch.zeros_like(row, dtype=torch.bool)
        scored[0, -1] = True
        logits = model(row, scored, torch.tensor([len(start.encode())]))
        total += float(logits[0].log_softmax(-1)[token])
        ids.append(token)
    return total


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_are_the_likelihood_of_the_rest_given_each_option(small_model, architecture):
    items = [
        module.Item("Ann met _ today.", "Bob", "a rather long option", 1),
        module.Item("The _ ran.", "dogs", "dog", 2),
    ]
    subject = small_model(architecture, vocab_size=256, max_length=100)
    table = module.scores(subject, items, Bytes())
    for item, row in zip(items, table.itertuples(), strict=True):
        start, rest = item.sentence.split("_")
        for number, option in ((1, item.option1), (2, item.option2)):
            assert row[number] == pytest.approx(by_hand(subject, start + option, rest), rel=1e-5)
        assert row.chosen == (1 if row.option1 >= row.option2 else 2)
        assert row.right == (row.chosen == item.answer)


def test_embedded_items_are_balanced_and_decided_by_their_last_words():
    items = module.embedded()
    assert len(items) >= 100
    assert len({i.sentence for i in items}) == len(items)
    answers = [item.answer for item in items]
    assert answers.count(1) == answers.count(2) == len(items) / 2
    starts = Counter()
    for item in items:
        named, _ = item.sentence.split("_")
        starts[named, item.option1, item.option2] += 1
        assert item.option1.lower() in named.lower()
        assert item.option2.lower() in named.lower()
    assert set(starts.values()) == {2}  # every start with both endings
