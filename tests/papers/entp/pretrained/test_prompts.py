"""Table 5's prompt, answers read and judged, and a language model behind the library's loop."""

import copy

import pytest
import torch
from conftest import BRIEF
from mistakes import refused

from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lib.tasks import generator_for
from entp_lib.tasks.counting import count2, count3
from entp_papers.entp.pretrained import studies, weights
from entp_papers.entp.pretrained.prompts import (
    CODE,
    Prompted,
    as_list,
    examples,
    judged,
    read_answer,
    shared_tokens,
    tally,
    write,
)

pytest.importorskip("transformers")

SMALL = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
SCHEDULE = BRIEF | dict(steps=30, batch_size=8, max_lr=1e-2, eval_every=10)


@pytest.mark.parametrize(("order", "function"), [(3, count3), (2, count2)])
def test_the_code_in_the_prompt_computes_the_task(order, function):
    names = {}
    exec(CODE[order], names)
    x = [52, 14, 22, 48, 28, 37]
    for _ in range(48):
        x.append(function(x))
        assert names["f"](x[:-1]) == x[-1]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("[1, 2, 3]", [1, 2, 3]),
        (" [1,2,3] and so on", [1, 2, 3]),
        ("[1, 2]", None),
        ("[1, 2, 3", None),
        ("[1, 2, x]", None),
        ("[1, True, 3]", None),
        ("[{{1}}, 2, 3]", None),
        ("the answer is [1, 2, 3]", None),
        ("", None),
    ],
)
def test_answers_are_read_as_lists_or_not_at_all(text, numbers):
    assert read_answer(text, 3) == numbers


def test_answers_are_right_wrong_or_invalid():
    texts = ["[4, 1, 0, 2]", "[4, 1, 0, 3]", "[4, 9, 0, 2]", "[4, 1, 0]", "no"]
    answers = [judged(text, [4, 1, 0, 2], 2) for text in texts]
    assert [a["verdict"] for a in answers] == ["right", "wrong", "wrong", "invalid", "invalid"]
    assert [a["numbers_right"] for a in answers] == [2, 1, 2, 0, 0]
    expected = dict(answers=5, exact_match=0.2, invalid=0.4, numbers_right=0.5)
    assert tally(answers) == expected
    assert [len(x) for x in examples(answers, 3).values()] == [1, 3]


def small_task(with_code=True):
    return studies.prompts_for("tiny-llama", SMALL, with_code, 4)[1]


@pytest.mark.parametrize("evaluating", [True, False])
@pytest.mark.parametrize("with_code", [True, False])
def test_the_loss_is_on_the_answer_and_the_score_on_what_was_generated(with_code, evaluating):
    task = small_task(with_code)
    batch = task.batch(generator_for("cpu", "x"), 3, evaluating)
    assert batch.inputs_BT.shape == (3, task.length)
    sequences = task.counting.sequences(generator_for("cpu", "x"), 3, evaluating).tolist()
    for row, scored, x in zip(batch.targets_BT, batch.scored_BT, sequences, strict=True):
        text = task.tokenizer.decode(row[scored], skip_special_tokens=True)
        assert text == ("".join(map(str, x[3:])) if evaluating else as_list(x))


def test_what_a_batch_shares_is_run_once_with_the_same_values_and_gradients():
    language_model, _ = weights.language_model("tiny-llama")
    model = Prompted(copy.deepcopy(language_model).double().requires_grad_(True))
    batch = small_task().batch(generator_for("cpu", "y"), 4)
    assert shared_tokens(batch.inputs_BT) > 100
    together = model(batch.inputs_BT, batch.scored_BT)
    rows = zip(batch.inputs_BT.split(1), batch.scored_BT.split(1), strict=True)
    alone = torch.cat([model(*row) for row in rows])  # one row at a time shares nothing
    close = dict(rtol=1e-6, atol=1e-6)  # turns and norms are in fp32 even here
    torch.testing.assert_close(together, alone, **close)
    factors = torch.linspace(-1, 1, alone.numel()).view_as(alone)
    parameters = list(model.parameters())
    ours = torch.autograd.grad((together * factors).sum(), parameters)
    theirs = torch.autograd.grad((alone * factors).sum(), parameters)
    torch.testing.assert_close(ours, theirs, **close)


def test_prompts_are_answered_together_as_each_alone():
    language_model, tokenizer = weights.language_model("tiny-llama")
    prompts = ["x = [1]\n", "x = [5]\n"]
    alone = [write(language_model, tokenizer, [p], 8)[0] for p in prompts]
    assert write(language_model, tokenizer, prompts, 8) == alone


def test_a_model_can_learn_the_prompts_and_is_as_before_afterwards():
    language_model, _ = weights.language_model("tiny-llama")
    before = copy.deepcopy(language_model.state_dict())
    metrics, curves = studies.lora_study("tiny-llama", SMALL, False, 0, SCHEDULE, 4, 0)
    losses = curves["train_loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert metrics["generated"]["answers"] == 4
    assert metrics["baseline"]["token_accuracy"] > 0.3
    assert len(metrics["position"]) == 3
    torch.testing.assert_close(language_model.state_dict(), before, rtol=0, atol=0)


def test_the_stored_rehearsal_says_that_it_cannot_be_computed_again():
    (stored,) = EXPERIMENTS["pretrained_provider"].stored(Store(read_only=True), "quick")
    with refused("only stored: it cannot be computed again"):
        studies.dry_run_study(**stored.config.params)
