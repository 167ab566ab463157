"""The text experiment: arms differ in what they say, minima and paired differences are those of the
curves.
"""

import numpy as np
import pytest
import torch
from conftest import everywhere
from made_up import record_of
from mistakes import refused

from entp_lab.budgets import EQUAL_FORWARDS
from entp_lab.frames import published, select
from entp_lab.registry import EXPERIMENTS
from entp_lib.config import SIZES
from entp_papers.entp.language import tables

OPENWEBTEXT = EXPERIMENTS["openwebtext"]


LOSSES = {
    (tables.TABLE_8, "decoder"): [3.0, 2.0, 2.4],
    (tables.TABLE_8, "entp"): [3.2, 1.8, 2.5],
    (tables.SWAPPED, "decoder"): [3.0, 2.5, 2.0],
    (tables.SWAPPED, "entp"): [3.0, 2.5, 2.1],
    (tables.TABLE_8, EQUAL_FORWARDS): [2.0, 1.5, 1.4],
}


@pytest.fixture
def records():
    """Make one seed of quick, ENTP ahead at its lowest and behind at the end."""
    found = []
    for run in OPENWEBTEXT.plan("quick", 1):
        if losses := LOSSES.get((run.labels["schedule"], run.labels["arm"])):
            *_, last = losses
            record = record_of(
                run,
                dict(step=[10, 20, 30], train_loss=[3.0, 2.0, 1.0], loss=losses),
                loss=last,
                position=[1, 2],
                loss_by_position=[last + 1, last - 1],
                baseline={"loss": 3.0},
            )
            found.append(record)
    return found


def test_minima_are_those_of_the_curves(records):
    table = tables.minima(records).set_index(["schedule", "arm"])
    row = table.loc[(tables.TABLE_8, "entp")]
    assert row["lowest validation loss"] == 1.8
    assert row["last validation loss"] == 2.5


def test_counts_are_those_of_the_text():
    tokens = np.array([0, 1, 0, 1, 1, 2])
    single, pairs, triples = (tables.counted(tokens, order, 3) for order in (1, 2, 3))
    assert single.tolist() == [2, 3, 1]
    assert pairs[1].tolist() == [1, 1, 1]
    assert triples[0, 1].tolist() == [1, 1, 0]
    assert (pairs.sum(), triples.sum()) == (5, 4)
    shares = np.exp(tables.log_probabilities(pairs, 0.5))
    assert shares.sum(-1) == pytest.approx(1)
    assert shares[0, 1] == pytest.approx(2.5 / 3.5)


def test_a_count_model_takes_the_longest_context_that_a_prefix_has():
    tokens = np.random.default_rng(0).integers(0, 3, 200)
    counts = [tables.counted(tokens, order, 3) for order in (1, 2, 3)]
    by_order = [torch.from_numpy(tables.log_probabilities(c, 0.1)) for c in counts]
    unigrams, bigrams, trigrams = by_order
    inputs = torch.tensor([[2, 0, 1, 1]])
    every = everywhere(inputs)
    after_2, after_20, after_01, after_11 = tables.CountModel(by_order)(inputs, every)
    assert torch.equal(after_2, bigrams[2])
    assert torch.equal(after_20, trigrams[2, 0])
    assert torch.equal(after_01, trigrams[0, 1])
    assert torch.equal(after_11, trigrams[1, 1])
    by_itself = tables.CountModel([unigrams])(inputs, every)
    assert torch.equal(by_itself, unigrams.expand(4, -1))


def test_counts_are_scored_on_the_windows_of_the_run_and_find_structure(tmp_path):
    path = tmp_path / "text.txt"
    words = np.random.default_rng(0).choice(["abc ", "abd "], (60, 20))
    path.write_text("\n\n".join("".join(row) for row in words))
    task = dict(corpus=str(path), split="tail", held_out=0.1, context=12, prefixes=3)
    metrics, _ = tables.counts_study(task, 64, 0)
    unigram, bigram, trigram = (metrics[name]["loss"] for name in tables.ORDERS)
    assert unigram > bigram > trigram - 0.05
    assert bigram < 0.6
    assert metrics["trigram"]["loss_by_position"][0] == metrics["bigram"]["loss_by_position"][0]
    with refused("at most 256 symbols"):
        tables.counts_study(task | {"tokenizer": "gpt2"}, 64, 0)


@pytest.mark.parametrize(
    ("above", "barred"), [(0.01, set()), (-9.0, set(tables.CLAIMS)), (None, set())]
)
def test_table_3_informs_only_below_the_bigram(records, above, barred):
    """The last losses over all prefixes count."""
    (run,) = select(OPENWEBTEXT.plan("quick", 1), arm=tables.COUNTS)
    if above is not None:
        bigram = tables.minima(records)[tables.LAST].max() + above
        scores = {"loss": bigram, "position": [1, 2], "loss_by_position": [bigram, bigram]}
        records.append(record_of(run, **dict.fromkeys(tables.ORDERS, scores)))
    excluded = {m.claim for m in OPENWEBTEXT.measure(records) if m.excluded_because}
    assert excluded & set(tables.CLAIMS) == barred


def test_tables_6_and_8_are_the_settings_of_the_papers_tier():
    printed = published("entp", "models").set_index("model").to_dict("index")
    assert printed == {name: SIZES[name] for name in printed}
    config = OPENWEBTEXT.plan("paper", 1)[0].config
    beta1, beta2 = config.train.betas
    ours = vars(config.train) | config.task_params | dict(beta1=beta1, beta2=beta2)
    for row in published("entp", "text_settings").itertuples():
        assert ours[row.field] == row.value, row.name
