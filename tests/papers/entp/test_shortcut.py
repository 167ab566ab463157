"""The probe for Count3's shortcut tells a model that counts the diagonal from one that does not."""

import pytest
import torch
import torch.nn.functional as F
from made_up import record_of
from torch import nn

from entp_lib.experiments.frames import select
from entp_lib.records.store import Store
from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.counting import count3
from entp_lib.validation import ConfigError
from entp_papers.entp import shortcut
from entp_papers.entp.count3 import COUNT3
from entp_papers.entp.pairless import diagonal
from entp_papers.entp.shortcut import COUNT3_PROBE, probe, scorings, table

TASK = Counting(length=10, seed_length=4, symbols=10)


class Answering(nn.Module):
    """A model that answers every wanted prefix by a function of it."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, inputs_BT, wanted_BT, prompt_lengths_B=None):
        rows_N, ends_N = wanted_BT.nonzero(as_tuple=True)
        answers = [
            self.answer(inputs_BT[b, : end + 1]) for b, end in zip(rows_N.tolist(), ends_N.tolist(), strict=True)
        ]
        return F.one_hot(torch.tensor(answers), TASK.vocab_size).float()


def parity_of_the_diagonal(x_n):
    return int(diagonal(x_n[None], x_n[-1:], len(x_n))) % 2


@pytest.mark.parametrize(
    ("answer", "agreement", "accuracy"),
    [
        (lambda x: count3(x.tolist()), (1, 1), (1, 1)),
        (parity_of_the_diagonal, (1, 1), (0.05, 0.5)),  # the shortcut alone: the parity always, the answer seldom
        (lambda x: 0, (0.4, 0.6), (0.05, 0.5)),  # looks at nothing
        (lambda x: (count3(x.tolist()) + 1) % 10, (0, 0.2), (0, 0.1)),
    ],
)
def test_agreement_is_one_with_the_shortcut_and_chance_without(answer, agreement, accuracy):
    found = probe(Answering(answer), TASK, 300)
    assert agreement[0] <= found["parity_agreement"] <= agreement[1]
    assert accuracy[0] <= found["token_accuracy"] <= accuracy[1]
    assert found["position"] == [6, 8, 10] and 0.5 <= found["commonest"] < 0.7


def test_only_even_prefixes_that_end_in_an_even_element_are_asked():
    batch = scorings(TASK)["parity"].batch(generator_for("cpu", 0), 200)
    rows_N, ends_N = batch.wanted_BT.nonzero(as_tuple=True)
    assert set((ends_N + 1).tolist()) == {6, 8, 10} and (batch.inputs_BT[rows_N, ends_N] % 2 == 0).all()
    k = [
        int(diagonal(batch.inputs_BT[b : b + 1, : n + 1], batch.inputs_BT[b : b + 1, n], n + 1))
        for b, n in zip(rows_N.tolist(), ends_N.tolist(), strict=True)
    ]
    assert ((torch.tensor(k) - batch.targets_N) % 2 == 0).all() and {x % 2 for x in k} == {0, 1}


def test_what_cannot_be_probed_is_refused_in_a_line():
    with pytest.raises(ConfigError, match="order = "):
        scorings(Counting(length=10, seed_length=4, symbols=10, order=2))
    with pytest.raises(ConfigError, match="length = "):
        scorings(Counting(length=5, seed_length=4, symbols=10))


def test_the_table_has_the_agreement_where_answers_are_wrong():
    runs, metrics = COUNT3_PROBE.plan("quick"), {"token_accuracy": 0.6, "parity_agreement": 0.8, "commonest": 0.55}
    found = table([record_of(run, **metrics) for run in runs])
    assert found.loc["entp", "agreement where wrong"] == pytest.approx(0.5) and list(found.index) == list(shortcut.ARMS)


def test_the_stored_models_are_those_of_count3_and_use_no_shortcut():
    records = COUNT3_PROBE.stored(Store(), "quick")
    assert (table(records)["agreement where wrong"] < 0.5).all()
    trained = {(r.labels["arm"], r.labels["seed"]): r.metrics["token_accuracy"] for r in count3_records()}
    for r in records:
        accuracy = trained[r.labels["arm"], r.labels["seed"]]
        assert r.metrics["all_token_accuracy"] == pytest.approx(accuracy, abs=0.04)  # made on another machine


def count3_records():
    return select(COUNT3.stored(Store(), "quick"), task="count3")
