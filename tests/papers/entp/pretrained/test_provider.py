"""Request files in a provider's format, their price, and fine-tuning rehearsed against a fake."""

import json

import pytest

from entp_lib.tasks import Counting
from entp_lib.tasks.counting import count3
from entp_lib.validation import ConfigError
from entp_papers.entp.pretrained import provider
from entp_papers.entp.pretrained.prompts import read_answer
from entp_papers.entp.pretrained.provider import FakeProvider, ProviderError, fine_tune

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
