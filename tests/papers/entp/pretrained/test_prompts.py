"""Table 5's prompt, answers read and judged, and a language model behind the library's loop."""

import copy
import json

import pytest
import torch

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
    question,
    read_answer,
    shared_tokens,
    tally,
    write,
)
from entp_papers.entp.pretrained.provider import FakeProvider, ProviderError, fine_tune

pytest.importorskip("transformers")

# Table 5 as printed: the seed, and the answer to the question.
SEED = [52, 14, 22, 48, 28, 37, 3, 28, 14, 1, 12, 20, 38, 48, 51, 41]
MORE = [0, 13, 14, 17, 12, 20, 17, 2, 10, 0, 6, 25, 26, 1, 28, 29, 22, 20, 19, 3, 22, 8, 4, 21]
MORE += [24, 4, 39, 41, 36, 38, 40, 44, 16, 34, 7, 0, 5, 10, 1, 46, 5, 51, 8, 1, 32, 15, 44, 54]
PRINTED = [
    "def f(x: list[int]) -> int:",
    "for i in range(n):",
    "for j in range(n):",
    "if (x[i] + x[j] + x[-1]) % n == 0:",
    "return count % n",
    f"x = {SEED}",
    "for _ in range(48):",
    "x.append(f(x))",
    "What is the output of this code ?",
    "Output:",
]
SMALL = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
SCHEDULE = dict(steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8)


def test_the_prompt_has_every_printed_line_in_its_order():
    lines = [line.strip() for line in question(SEED, 48, 3, True).splitlines()]
    assert [line for line in lines if line in PRINTED] == PRINTED
    assert set(lines) - set(PRINTED) == {"n = len(x)", "count = 0", "count += 1"}  # what our text of the paper lacks


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
    answers = [judged(t, right, 2) for t in ("[4, 1, 0, 2]", "[4, 1, 0, 3]", "[4, 9, 0, 2]", "[4, 1, 0]", "no")]
    assert [a["verdict"] for a in answers] == ["right", "wrong", "wrong", "invalid", "invalid"]
    assert [a["numbers_right"] for a in answers] == [2, 1, 2, 0, 0]
    assert tally(answers) == {"answers": 5, "exact_match": 0.2, "invalid": 0.4, "numbers_right": 0.5}
    assert [len(x) for x in examples(answers, 3).values()] == [1, 3]


def small_task(with_code: bool = True, **changes) -> PromptTask:
    model, tokenizer = weights.language_model("tiny-llama")
    return studies.prompt_task(model, tokenizer, {**SMALL, **changes}, with_code, 4)


@pytest.mark.parametrize("with_code", [True, False])
def test_the_loss_is_on_the_answer_and_the_score_on_what_was_generated(with_code):
    task = small_task(with_code)
    for evaluating in (False, True):
        batch = task.batch(generator_for("cpu", "x"), 3, evaluating)
        assert batch.inputs_BT.shape == (3, task.length)
        for row, wanted, x in zip(
            batch.targets_BT, batch.wanted_BT, task.sequences(generator_for("cpu", "x"), 3, evaluating), strict=True
        ):
            text = task.tokenizer.decode(row[wanted], skip_special_tokens=True)
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
            logits = model(batch.inputs_BT, batch.wanted_BT)
        else:  # one row at a time shares nothing
            logits = torch.cat([model(batch.inputs_BT[b : b + 1], batch.wanted_BT[b : b + 1]) for b in range(4)])
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
        found.append((logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}))
    (ours, our_gradients), (theirs, their_gradients) = found
    assert (ours - theirs).abs().max() < 1e-6  # turns and norms are in fp32 even here
    for name, gradient in their_gradients.items():
        assert (our_gradients[name] - gradient).abs().max() <= 1e-6 * max(1, float(gradient.abs().max())), name


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


# Request files in a provider's format, their price, and fine-tuning rehearsed against a fake.


TASK = Counting(length=15, seed_length=8, symbols=16)
MODEL = "gpt-4o-2024-08-06"
SECRET = "sk-a-key-that-must-not-be-seen"


@pytest.fixture
def files(tmp_path):
    return provider.write_files(tmp_path, TASK, 12, 3)


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_hold_the_task_and_share_no_sequence(files, tmp_path):
    train, test = map(lines, files)
    assert (len(train), len(test)) == (12, 3)
    assert not {json.dumps(e) for e in train} & {json.dumps(e) for e in test}
    for example in train + test:
        x = read_answer(example["messages"][-1]["content"], 16)
        assert all(count3(x[:n]) == x[n] for n in range(8, 16))
        assert f"x = {x[:8]}\nfor _ in range(8):" in example["messages"][0]["content"]
    assert provider.write_files(tmp_path / "again", TASK, 12, 3)[0].read_bytes() == files[0].read_bytes()


USER, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
REFUSED = {
    "not JSON": "{",
    "'messages'": {"messages": [USER]},
    "'role'": {"messages": [USER, ANSWER | {"role": "robot"}]},
    "last message": {"messages": [USER, ANSWER | {"role": "user"}]},
    "'content'": {"messages": [USER, ANSWER | {"content": " "}]},
    "alone": {"messages": [USER, ANSWER | {"weight": 1}]},
    "same example as line 1": {"messages": [USER, ANSWER]},
}


@pytest.mark.parametrize("named", REFUSED)
def test_a_line_that_a_provider_would_refuse_is_named(tmp_path, named):
    path, line = tmp_path / "x.jsonl", REFUSED[named]
    good = json.dumps({"messages": [USER, ANSWER]})
    path.write_text(f"{good}\n{line if isinstance(line, str) else json.dumps(line)}\n")
    with pytest.raises(ConfigError, match=f"line 2: .*{named}"):
        provider.read_examples(path, fewest=1)


def test_the_price_is_tokens_times_the_table(files, monkeypatch):
    monkeypatch.setattr(provider, "count_tokens", lambda text: len(text) + 4)
    found = provider.estimate(*files, MODEL, epochs=2)
    train, test = map(lines, files)
    characters = sum(len(m["content"]) + 4 for e in train for m in e["messages"])
    assert found["training_tokens"] == characters and found["examples"] == 12
    assert found["training_dollars"] == pytest.approx(characters * 2 * 25 / 1e6)
    asked, answered = (sum(len(e["messages"][i]["content"]) + 4 for e in test) for i in (0, -1))
    assert found["test_dollars"] == pytest.approx((asked * 3.75 + answered * 15) / 1e6)


def test_files_that_cannot_be_priced_are_named(files, tmp_path):
    for named, arguments in {
        "gpt-9": (*files, "gpt-9"),
        "12 examples are in train.jsonl": (files[0], files[0], MODEL),
        "9 examples": (*provider.write_files(tmp_path / "few", TASK, 9, 3), MODEL),
    }.items():
        with pytest.raises(ConfigError, match=named):
            provider.estimate(*arguments)


@pytest.fixture
def tune(files, tmp_path):
    """A function that fine-tunes at a fake in one folder; the lines that it said."""
    pytest.importorskip("openai", reason="the provider's client comes with the extra 'pretrained'")
    said: list[str] = []

    def run(fake: FakeProvider):
        options = dict(client=fake.client(SECRET), wait=0.0, say=said.append)
        return fine_tune(tmp_path / "run", *files, MODEL, **options)

    run.said, run.test, run.state = said, files[1], tmp_path / "run" / "state.json"
    return run


def test_a_fine_tuning_from_the_file_to_the_answers(tune):
    fake = FakeProvider(tune.test, busy=2)
    assert tune(fake) == {"answers": 3, "exact_match": 1.0, "invalid": 0.0, "numbers_right": 1.0}
    hyperparameters = {"batch_size": 4, "learning_rate_multiplier": 10, "n_epochs": 3}
    assert fake.jobs["ftjob-1"]["method"]["supervised"]["hyperparameters"] == hyperparameters
    assert len(fake.jobs) == len(fake.files) == 1 and "the job is succeeded" in tune.said


def test_a_killed_run_goes_on_and_pays_nothing_twice(tune, monkeypatch):
    fake, write = FakeProvider(tune.test), provider.write_atomically
    for stored in ("file", "job", "tuned", '"0"'):  # killed right after each of these was written down

        def killed(path, data, stored=stored):
            write(path, data)
            if stored in data.decode():
                raise KeyboardInterrupt

        monkeypatch.setattr(provider, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(fake)
    monkeypatch.setattr(provider, "write_atomically", write)
    assert tune(fake)["exact_match"] == 1.0
    posts = [r for r in fake.requests if r.startswith("POST")]
    assert posts == ["POST /files", "POST /fine_tuning/jobs", *["POST /chat/completions"] * 3]
    tune.state.unlink()
    tune(fake)  # the file is there already
    assert len(fake.files) == 1


def test_a_job_that_fails_says_why_and_the_next_run_starts_another(tune):
    fake = FakeProvider(tune.test, failure=f"too few examples for {SECRET}")
    with pytest.raises(ProviderError, match=r"ftjob-1 failed.*too few examples for \[key\]"):
        tune(fake)
    fake.failure = ""
    assert tune(fake)["exact_match"] == 1.0
    assert list(fake.jobs) == ["ftjob-1", "ftjob-2"] and len(fake.files) == 1


def test_a_provider_that_repeats_the_key_shows_it_nowhere(tune):
    fake = FakeProvider(tune.test)
    fake.answers = dict.fromkeys(fake.answers, f"[1, 2] by {SECRET}")
    shown = [tune(fake), tune.said, tune.state.read_text()]
    fake.answer = lambda *_: (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}})
    tune.state.unlink()
    with pytest.raises(ProviderError, match=r"401.*Incorrect API key provided: \[key\]") as caught:
        tune(fake)
    assert SECRET not in f"{shown} {caught.value}" and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "null", "[" * 100_000, '{"answers": {}}'])
def test_a_state_that_is_damaged_or_of_another_run_is_named(tune, text):
    tune.state.parent.mkdir()
    tune.state.write_text(text)
    with pytest.raises(ConfigError, match="state.json is") as raised:
        tune(FakeProvider(tune.test))
    assert "\n" not in str(raised.value)
