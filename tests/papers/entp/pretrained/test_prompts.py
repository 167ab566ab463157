"""Table 5's prompt, answers read and judged, and a language model behind the library's loop."""

import copy
import json
import re
from unittest import mock

import pytest
import torch

from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.counting import count2, count3
from entp_lib.validation import ConfigError
from entp_papers.entp.pretrained import provider, studies, weights
from entp_papers.entp.pretrained.prompts import (
    CODE,
    Prompted,
    PromptTask,
    as_list,
    examples,
    judged,
    read_answer,
    shared_tokens,
    tally,
    write,
)

pytest.importorskip("transformers")

# Table 5 as printed: the seed, and the answer to the question.
SEED = [52, 14, 22, 48, 28, 37, 3, 28, 14, 1, 12, 20, 38, 48, 51, 41]
MORE = [0, 13, 14, 17, 12, 20, 17, 2, 10, 0, 6, 25, 26, 1, 28, 29, 22, 20, 19, 3, 22, 8, 4, 21]
MORE += [24, 4, 39, 41, 36, 38, 40, 44, 16, 34, 7, 0, 5, 10, 1, 46, 5, 51, 8, 1, 32, 15, 44, 54]
SMALL = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
SCHEDULE = dict(
    steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8
)


@pytest.mark.parametrize("order, function", [(3, count3), (2, count2)])
def test_the_code_in_the_prompt_computes_the_task(order, function):
    names = {}
    exec(CODE[order], names)
    x = list(SEED)
    for _ in range(48):
        x.append(names["f"](x))
        assert x[-1] == function(x[:-1])
    if order == 3:
        assert x == SEED + MORE


def test_answers_are_read_as_lists_or_not_at_all():
    for text in ("[1, 2, 3]", " [1,2,3] and so on"):
        assert read_answer(text, 3) == [1, 2, 3]
    for text in ("[1, 2]", "[1, 2, 3", "[1, 2, x]", "[1, True, 3]", "the answer is [1, 2, 3]", ""):
        assert read_answer(text, 3) is None


def test_answers_are_right_wrong_or_invalid():
    right = [4, 1, 0, 2]
    answers = [
        judged(t, right, 2)
        for t in ("[4, 1, 0, 2]", "[4, 1, 0, 3]", "[4, 9, 0, 2]", "[4, 1, 0]", "no")
    ]
    assert [a["verdict"] for a in answers] == ["right", "wrong", "wrong", "invalid", "invalid"]
    assert [a["numbers_right"] for a in answers] == [2, 1, 2, 0, 0]
    assert tally(answers) == {
        "answers": 5,
        "exact_match": 0.2,
        "invalid": 0.4,
        "numbers_right": 0.5,
    }
    assert [len(x) for x in examples(answers, 3).values()] == [1, 3]


def small_task(with_code: bool = True, **changes) -> PromptTask:
    return studies.prompts_for("tiny-llama", {**SMALL, **changes}, with_code, 4)[1]


@pytest.mark.parametrize("with_code", [True, False])
def test_the_loss_is_on_the_answer_and_the_score_on_what_was_generated(with_code):
    task = small_task(with_code)
    for evaluating in (False, True):
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
    found = []
    for rows in (slice(None), None):
        model.zero_grad()
        if rows is not None:
            logits = model(batch.inputs_BT, batch.scored_BT)
        else:  # one row at a time shares nothing
            logits = torch.cat(
                [model(batch.inputs_BT[b : b + 1], batch.scored_BT[b : b + 1]) for b in range(4)]
            )
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
        found.append((logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}))
    (ours, our_gradients), (theirs, their_gradients) = found
    assert (ours - theirs).abs().max() < 1e-6  # turns and norms are in fp32 even here
    for name, gradient in their_gradients.items():
        assert (our_gradients[name] - gradient).abs().max() <= 1e-6 * max(
            1, float(gradient.abs().max())
        ), name


def test_prompts_of_several_lengths_are_answered_as_each_alone():
    language_model, tokenizer = weights.language_model("tiny-llama")
    prompts = ["x = [1]\n", "x = [5, 2, 7]\n"]
    alone = [write(language_model, tokenizer, [p], 8)[0] for p in prompts]
    assert write(language_model, tokenizer, prompts, 8) == alone


def test_a_model_can_learn_the_prompts_and_is_as_before_afterwards():
    language_model, _ = weights.language_model("tiny-llama")
    before = {k: v.clone() for k, v in language_model.state_dict().items()}
    schedule = {**SCHEDULE, "steps": 30, "eval_every": 10, "max_lr": 1e-2, "batch_size": 8}
    metrics, curves = studies.lora_study("tiny-llama", SMALL, False, 0, schedule, 4, 0)
    assert curves["train_loss"][-1] < 0.8 * curves["train_loss"][0]
    assert set(metrics["generated"]) == {"answers", "exact_match", "invalid", "numbers_right"}
    assert metrics["baseline"]["token_accuracy"] > 0.3 and len(metrics["position"]) == 3
    assert all(torch.equal(v, before[k]) for k, v in language_model.state_dict().items())


# Request files in a provider's format, their price, and fine-tuning with a client whose replies are
# written down.


TASK = Counting(length=15, seed_length=8, symbols=16)
MODEL = "gpt-4o-2024-08-06"


@pytest.fixture
def files(tmp_path):
    return provider.write_files(tmp_path, TASK, 12, 10)


def test_files_hold_the_task_and_share_no_sequence(files, tmp_path):
    train, test = provider.read_files(files)
    assert (len(train), len(test), len({*train, *test})) == (12, 10, 22)
    for asked, answer in train + test:
        x = read_answer(answer, 16)
        assert all(count3(x[:n]) == x[n] for n in range(8, 16))
        assert f"x = {x[:8]}\nfor _ in range(8):" in asked
    assert (
        provider.write_files(tmp_path / "again", TASK, 12, 10)[0].read_bytes()
        == files[0].read_bytes()
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 13: not JSON"),
        (json.dumps({"messages": [{"role": "user", "content": "a"}]}), "line 13: 'messages'"),
        (json.dumps({"messages": [{"role": "user", "content": 5}] * 2}), "line 13: 'messages'"),
        (None, "1 examples are in train.jsonl and in test.jsonl"),
    ],
)
def test_what_a_provider_would_refuse_is_named(files, line, named):
    own = line or files[1].read_text().partition("\n")[0]
    files[0].write_text(files[0].read_text() + own)
    with pytest.raises(ConfigError, match=named):
        provider.estimate(files, MODEL)


def test_the_price_is_tokens_times_the_table(files, monkeypatch):
    monkeypatch.setattr(provider, "PIECES", re.compile(r"(?s)."))  # a token a character
    found, (train, test) = provider.estimate(files, MODEL), provider.read_files(files)
    characters = sum(len(text) + 4 for pair in train for text in pair)
    assert found["training_tokens"] == characters and found["examples"] == 12
    assert found["training_dollars"] == pytest.approx(characters * 3 * 25 / 1e6)
    asked, answered = (sum(len(pair[i]) + 4 for pair in test) for i in (0, 1))
    assert found["test_dollars"] == pytest.approx((asked * 3.75 + answered * 15) / 1e6)
    with pytest.raises(ConfigError, match="gpt-9"):
        provider.estimate(files, "gpt-9")


def client_of(files, *statuses):
    """Make a client whose job goes through ``statuses`` and whose model answers all right."""
    client = mock.MagicMock()
    client.fine_tuning.jobs.create.return_value.id = "job-1"
    states = [mock.Mock(status=status, fine_tuned_model="it") for status in statuses]
    for state in states:
        state.error.message = "why"
    client.fine_tuning.jobs.retrieve.side_effect = states
    answers = (
        mock.Mock(message=mock.Mock(content=answer)) for _, answer in provider.read_files(files)[1]
    )
    client.chat.completions.create.side_effect = [mock.Mock(choices=[choice]) for choice in answers]
    return client


def test_a_model_is_tuned_and_asked_and_a_started_job_is_not_paid_for_twice(files, capsys):
    client = client_of(files, "queued", "running", "succeeded")
    scores = provider.fine_tune(client, files, MODEL, 8, wait=0)
    assert scores == {"answers": 10, "exact_match": 1.0, "invalid": 0.0, "numbers_right": 1.0}
    assert {call.kwargs["model"] for call in client.chat.completions.create.mock_calls} == {"it"}
    assert (
        client.files.create.call_args.kwargs["file"] == files[0]
        and "job-1" in capsys.readouterr().out
    )
    client = client_of(files, "succeeded")
    assert provider.fine_tune(client, files, MODEL, 8, job="job-1") == scores
    assert not client.files.create.called and not client.fine_tuning.jobs.create.called


def test_a_job_that_fails_says_why(files):
    with pytest.raises(ConfigError, match="job-1 failed: the provider says why"):
        provider.fine_tune(client_of(files, "running", "failed"), files, MODEL, 8, wait=0)


def test_the_stored_rehearsal_says_that_it_cannot_be_computed_again():
    (stored,) = EXPERIMENTS["pretrained_provider"].stored(Store(read_only=True), "quick")
    with pytest.raises(ConfigError, match="only stored: it cannot be computed again"):
        provider.dry_run_study(**stored.config.params)
