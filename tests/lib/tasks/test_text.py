"""Language modelling: windows come from their part, what is scored is what was asked for, records
name their text.
"""

import dataclasses

import pytest
import torch
from conftest import BRIEF
from mistakes import refused

from entp_lab.configs import RunConfig
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import run
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.tasks import Text, generator_for

LINES = [f"line {i:03} of a text that nobody wrote\n\n" for i in range(100)]


pytestmark = pytest.mark.usefixtures("results")


@pytest.fixture
def text(tmp_path):
    """A function that gives the task on a file of its own, the last tenth of whose lines is
    validation.
    """

    def build(content="", **params):
        path = tmp_path / "text.txt"
        path.write_text(content or "".join(LINES))
        return Text(**dict(corpus=str(path), split="tail", held_out=0.1, context=16) | params)

    return build


def read(tokens) -> str:
    return bytes(tokens.tolist()).decode()


def drawn(task, size, evaluating=False):
    return task.batch(generator_for("cpu", 1), size, evaluating)


def windows_of(batch):
    """The windows of a batch, each with the token that follows it."""
    return [
        read(inputs) + read(targets[-1:])
        for inputs, targets in zip(batch.inputs_BT, batch.targets_BT, strict=True)
    ]


@pytest.mark.parametrize("evaluating", [False, True])
def test_windows_are_from_their_part_and_targets_are_what_follows(text, evaluating):
    batch = drawn(text(), 200, evaluating=evaluating)
    own = "".join(LINES[90:] if evaluating else LINES[:90])
    assert all(window in own for window in windows_of(batch))
    assert torch.equal(batch.targets_BT[:, :-1], batch.inputs_BT[:, 1:])
    assert batch.inputs_BT.shape == (200, 16)
    assert batch.scored_BT.all()


@pytest.mark.parametrize(
    ("context", "windows"), [(5, {"012345", "123456", "234567"}), (7, {"01234567"})]
)
def test_every_window_has_its_chance(text, context, windows):
    """The first and the last token of a part among them."""
    task = text("abcdefg\n\n" * 9 + "01234567", context=context)
    assert set(windows_of(drawn(task, 500, evaluating=True))) == windows


def test_the_same_windows_however_many_prefixes_are_scored(text):
    whole, some = (drawn(text(prefixes=k), 64) for k in (0, 4))
    assert torch.equal(whole.inputs_BT, some.inputs_BT)
    assert whole.scored_BT.all()
    assert some.scored_BT.sum(1).eq(4).all()
    counts_T = drawn(text(prefixes=4), 8000).scored_BT.sum(0)
    assert counts_T.min() > 1800
    assert counts_T.max() < 2200  # every position alike: 2,000 on average
    assert not torch.equal(some.scored_BT[0], some.scored_BT[1])


def test_evaluation_scores_the_same_evenly_spaced_positions(text):
    batch = drawn(text(eval_prefixes=4, prefixes=2), 8, evaluating=True)
    assert batch.scored_BT.eq(batch.scored_BT[0]).all()
    assert (batch.scored_BT[0].nonzero()[:, 0] + 1).tolist() == [4, 8, 12, 16]
    assert drawn(text(prefixes=2), 8, evaluating=True).scored_BT.all()


def run_config(task: Text) -> RunConfig:
    model = ModelConfig("entp", 2, 2, 16, task.vocab_size, task.length)
    train = TrainConfig(steps=12, batch_size=8, **BRIEF)
    return RunConfig("test", "smoke", "text", dataclasses.asdict(task), model, train)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (dict(context=1000), "context"),
        (dict(checksum="0" * 16), "checksum"),
        (dict(tokenizer="characters", vocabulary=3), "vocabulary"),
        (dict(corpus="no/such/file.txt"), "corpus"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_training(text, params, field):
    config = run_config(text(**params))
    with refused(field):
        train_run(config, checkpoint=Checkpoint(on_step=lambda _: pytest.fail("it trained")))


def test_records_name_their_text_and_score_every_position(text, store):
    task = text(prefixes=4)
    record = run(run_config(task), 1, store=store)
    corpus = record.metrics["corpus"]
    assert corpus == task.facts()["corpus"]
    assert len(corpus["checksum"]) == 64
    assert corpus["train"]["tokens"] + corpus["validation"]["tokens"] == sum(map(len, LINES))
    assert record.metrics["position"] == list(range(1, 17))
    # a quarter of the prefixes, about
    assert record.provenance["token_forwards"] < 12 * 8 * 16 * 17 / 2 / 3


def test_a_task_keeps_the_text_that_it_began_with(text):
    task = text()
    first = drawn(task, 4).inputs_BT
    changed = text("another text\n\n" * 100)
    assert torch.equal(drawn(task, 4).inputs_BT, first)
    assert not torch.equal(drawn(changed, 4).inputs_BT, first)
