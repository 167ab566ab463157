"""The probe for Count3's shortcut tells a model that counts the diagonal from one that does not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from entp_lib.tasks import Counting
from entp_lib.tasks.counting import count3
from entp_papers.entp.pairless import diagonal
from entp_papers.entp.shortcut import probe

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
