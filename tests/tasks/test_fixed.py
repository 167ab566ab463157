"""A data set with parts: where examples come from in training, evaluation and test."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch

from entp_lib.tasks import Batch, CheckpointRule, FixedData, generator_for

FIRST = {"train": 0, "validation": 100, "test": 200}


@dataclass(frozen=True)
class Numbers(FixedData):
    """Each example is its own number; 30, 12 and 7 of them."""

    part: Literal["train", "test", "seen"] = "train"
    vocab_size = 300
    length = 1

    def count(self, part):
        return {"train": 30, "validation": 12, "test": 7}[part]

    def rows_of(self, part, chosen_B):
        x_BT = chosen_B[:, None] + FIRST[part]
        return Batch(x_BT, x_BT, torch.ones_like(x_BT, dtype=torch.bool))


def evaluated(task, sequences=1000, seed=0):
    batches = list(task.evaluation(generator_for("cpu", seed), sequences, 5))
    assert all(len(b.inputs_BT) <= 5 for b in batches)
    return torch.cat([b.inputs_BT[:, 0] for b in batches]).tolist()


@pytest.mark.parametrize(
    ("part", "trained", "first", "count"),
    [("train", range(30), 100, 12), ("seen", range(30), 0, 30), ("test", range(200, 207), 200, 7)],
)
def test_each_part_is_evaluated_once_in_random_order(part, trained, first, count):
    task = Numbers(part)
    found = evaluated(task)
    assert sorted(found) == list(range(first, first + count)) != found
    assert evaluated(task, seed=1) != found and evaluated(task) == found
    assert len(set(evaluated(task, sequences=6))) == 6
    drawn = task.batch(generator_for("cpu", 1), 400).inputs_BT[:, 0].tolist()
    assert set(drawn) == set(trained)


def test_the_test_part_is_the_end():
    assert Numbers().test() == Numbers("test")
    assert Numbers("test").test() is None and Numbers("seen").test() is None


def test_checkpoint_rules_keep_the_first_of_equals():
    assert CheckpointRule("loss").better(1.0, than=2.0) and CheckpointRule("x", highest=True).better(2.0, than=1.0)
    assert not any(CheckpointRule("x", highest).better(1.0, than=1.0) for highest in (False, True))
    assert list(Numbers().checkpoint_rules()) == ["lowest_loss", "highest_accuracy"]


def test_a_batch_is_cut_by_rows_with_all_it_brings():
    x_BT = torch.arange(6).view(3, 2)
    whole = Batch(x_BT, x_BT, x_BT > 1, mask_BTT=torch.ones(3, 2, 2, dtype=torch.bool))
    part = whole.rows(slice(1, 3))
    assert torch.equal(part.inputs_BT, x_BT[1:]) and part.prompt_lengths_B is None and part.positions_BT is None
    assert part.mask_BTT.shape == (2, 2, 2) and list(part.relations()) == ["mask_BTT"]
    assert torch.equal(part.targets_N, torch.tensor([2, 3, 4, 5]))
