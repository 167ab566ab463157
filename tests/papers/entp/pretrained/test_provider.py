"""Files in a provider's format, their price, and fine-tuning against a server on the loopback."""

import json

import pytest

from entp_lib.tasks import Counting
from entp_lib.tasks.counting import count3
from entp_lib.validation import ConfigError
from entp_papers.entp.pretrained import provider as chat
from entp_papers.entp.pretrained.dry_run import Loopback as Provider
from entp_papers.entp.pretrained.dry_run import dry_run_study, serving
from entp_papers.entp.pretrained.prompts import read_answer
from entp_papers.entp.pretrained.provider import KEY, FineTuning, ProviderError

TASK = Counting(length=15, seed_length=8, symbols=16)
MODEL = "gpt-4o-2024-08-06"
SECRET = "sk-a-key-that-must-not-be-seen"


@pytest.fixture
def files(tmp_path):
    return chat.write_files(tmp_path, TASK, 12, 3)


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
    assert chat.write_files(tmp_path / "again", TASK, 12, 3)[0].read_bytes() == files[0].read_bytes()


GOOD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


def changed(**message) -> str:
    return json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"} | message]})


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2: not JSON"),
        (json.dumps({"messages": GOOD["messages"][:1]}), "line 2: 'messages' must list two messages"),
        (changed(role="robot"), "line 2: message 2 must be .*'role': system or user or assistant"),
        (changed(role="user"), "line 2: the last message must be the assistant's"),
        (changed(content=" "), "line 2: message 2 must be .*'content': a text"),
        (changed(weight=1), "line 2: message 2 must be .* and nothing else"),
        (json.dumps(GOOD), "line 2: the same example as line 1"),
    ],
)
def test_a_line_that_a_provider_would_refuse_is_named(tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        chat.read_examples(path, fewest=1)


def test_too_few_examples_are_an_error(tmp_path):
    files = chat.write_files(tmp_path, TASK, 9, 3)
    with pytest.raises(ConfigError, match="9 examples; a provider wants at least 10"):
        chat.estimate(*files, MODEL)
    with pytest.raises(ConfigError, match="No such file"):
        chat.read_examples(tmp_path / "none.jsonl")


def test_the_price_is_tokens_times_the_table(files, monkeypatch):
    monkeypatch.setattr(chat, "count_tokens", lambda text: len(text) + 4)
    found = chat.estimate(*files, MODEL, epochs=2)
    train, test = map(lines, files)
    characters = sum(len(m["content"]) + 4 for e in train for m in e["messages"])
    assert found["training_tokens"] == characters and found["examples"] == 12
    assert found["training_dollars"] == pytest.approx(characters * 2 * 25 / 1e6)
    answered = sum(len(e["messages"][-1]["content"]) + 4 for e in test)
    asked = sum(len(e["messages"][0]["content"]) + 4 for e in test)
    assert found["test_dollars"] == pytest.approx((asked * 3.75 + answered * 15) / 1e6)
    assert found["dollars"] == found["training_dollars"] + found["test_dollars"] and "2026-04" in found["prices_of"]


def test_a_model_without_a_price_and_a_test_of_memory_are_errors(files):
    with pytest.raises(ConfigError, match="model .*= 'gpt-9': must be one of gpt-4o-2024-08-06"):
        chat.estimate(*files, "gpt-9")
    with pytest.raises(ConfigError, match="12 examples are in train.jsonl and in train.jsonl"):
        chat.estimate(files[0], files[0], MODEL)


@pytest.mark.parametrize("key", ["", "sk-schlüssel", "sk-one two", "sk-\n"])
def test_without_a_usable_key_nothing_is_sent_and_it_is_not_shown(files, tmp_path, monkeypatch, key):
    monkeypatch.setenv(KEY, key)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY (is not set|has signs that no key has)") as raised:
        FineTuning(tmp_path, *files, MODEL)
    assert "\n" not in str(raised.value) and not (key and key in str(raised.value))


@pytest.fixture
def tuning(files, tmp_path, monkeypatch):
    """A function that makes a fine-tuning against a provider's address; the lines that it said."""
    pytest.importorskip("openai", reason="the provider's client comes with the extra 'pretrained'")
    monkeypatch.setenv(KEY, SECRET)
    said: list[str] = []

    def make(address: str, **options) -> FineTuning:
        options = dict(base_url=address, wait=0.0, say=said.append) | options
        return FineTuning(tmp_path / "run", *files, MODEL, **options)

    make.said = said
    return make


def test_a_fine_tuning_from_the_file_to_the_answers(tuning, tmp_path):
    with serving(provider := Provider()) as address:
        scores = tuning(address).answer()
    assert scores == {"answers": 3, "exact_match": 1.0, "invalid": 0.0, "numbers_right": 1.0}
    assert provider.keys == {f"Bearer {SECRET}"}
    job = provider.jobs["ftjob-1"]
    assert job["method"]["supervised"]["hyperparameters"] == {
        "batch_size": 4,
        "learning_rate_multiplier": 10,
        "n_epochs": 3,
    }
    assert tuning.said[:2] == ["sent the training file: file-1", "started the job: ftjob-1"]
    assert [line for line in tuning.said if "job is" in line][-1] == "the job is succeeded"
    kept = (tmp_path / "run" / "state.json").read_text()
    assert SECRET not in kept + "".join(tuning.said)


def test_answers_that_are_no_list_are_counted_apart(tuning):
    with serving(Provider(knows=False)) as address:
        assert tuning(address).answer() == {"answers": 3, "exact_match": 0.0, "invalid": 1.0, "numbers_right": 0.0}


def test_a_rate_limit_is_waited_for(tuning):
    with serving(provider := Provider(busy=3)) as address:
        assert tuning(address).answer()["exact_match"] == 1.0
    assert len(provider.jobs) == len(provider.files) == 1


def killed_after(run: FineTuning, name: str, error: type[BaseException]):
    """The run's own ``keep``, which raises once it has written ``name``."""
    keep = run.keep

    def kept(**values):
        keep(**values)
        if name in values:
            raise error

    return kept


def test_a_killed_run_goes_on_and_asks_nothing_twice(tuning, monkeypatch):
    class Killed(BaseException):
        pass

    with serving(provider := Provider()) as address:
        for kept in ("file", "job", "answers"):  # killed right after each of these was written down
            run = tuning(address)
            monkeypatch.setattr(run, "keep", killed_after(run, kept, Killed))
            with pytest.raises(Killed):
                run.answer()
        assert tuning(address).answer()["exact_match"] == 1.0
    posts = [r for r in provider.requests if r.startswith("POST")]
    assert posts.count("POST /files") == posts.count("POST /fine_tuning/jobs") == 1
    assert posts.count("POST /chat/completions") == 3


def test_a_file_that_was_uploaded_already_is_not_sent_again(tuning, tmp_path):
    with serving(provider := Provider()) as address:
        tuning(address).upload()
        (tmp_path / "run" / "state.json").unlink()
        assert tuning(address).upload() == "file-1"
    assert len(provider.files) == 1 and tuning.said[-1] == "the training file was there already: file-1"


def test_a_job_that_fails_says_why_and_the_next_run_starts_another(tuning):
    with serving(provider := Provider(failure="too few examples")) as address:
        with pytest.raises(ProviderError, match="the job ftjob-1 failed: the provider says too few examples"):
            tuning(address).answer()
        provider.failure = ""
        assert tuning(address).answer()["exact_match"] == 1.0
    assert list(provider.jobs) == ["ftjob-1", "ftjob-2"] and len(provider.files) == 1


def test_a_refusal_is_told_in_the_providers_words_without_the_key(tuning):
    with serving(Provider(refused=f"Incorrect API key provided: {SECRET}")) as address:
        with pytest.raises(ProviderError) as caught:
            tuning(address).upload()
    assert "401: " in str(caught.value) and "Incorrect API key provided: [key]" in str(caught.value)
    assert SECRET not in str(caught.value) and caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("where", ["a job that fails", "an answer"])
def test_a_provider_that_repeats_the_key_shows_it_nowhere(tuning, tmp_path, where):
    provider = Provider(failure=f"the key {SECRET} has no credit" if where == "a job that fails" else "")
    if where == "an answer":
        provider.solve = lambda text: f"[1, 2] by {SECRET}"
    said = []
    with serving(provider) as address:
        run = tuning(address)
        run.client = run.client.with_options(max_retries=0)
        try:
            said.append(run.answer())
        except ProviderError as error:
            said.append(str(error))
            assert "\n" not in str(error)
    shown = f"{said} {tuning.said} {(tmp_path / 'run' / 'state.json').read_text()}"
    assert SECRET not in shown and "[key]" in shown


STATES = ["", "null", '{"answers": {"0": 1}}', '{"answers": {}, "file": 5}', "[" * 100_000]


@pytest.mark.parametrize("text", STATES)
def test_a_damaged_state_is_a_line_that_names_it(tuning, tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state.json").write_text(text)
    with pytest.raises(ConfigError, match="state.json is damaged .*delete it") as raised:
        tuning("http://127.0.0.1:9/v1")
    assert "\n" not in str(raised.value)


def test_a_provider_that_cannot_be_reached_is_a_line(tuning):
    run = tuning("http://127.0.0.1:9/v1")
    run.client = run.client.with_options(max_retries=0)
    with pytest.raises(ProviderError, match="sending the training file: the provider says Connection error"):
        run.upload()


def test_another_fine_tuning_in_the_same_folder_is_an_error(tuning):
    with serving(Provider()) as address:
        tuning(address).upload()
        with pytest.raises(ConfigError, match="holds a fine-tuning of another epochs"):
            tuning(address, epochs=2)


def test_the_dry_run_tells_every_trouble_and_ends_well():
    pytest.importorskip("openai", reason="the provider's client comes with the extra 'pretrained'")
    metrics, curves = dry_run_study(dict(length=15, seed_length=8, symbols=16), 12, 3, MODEL)
    assert metrics["scores"]["exact_match"] == 1.0 and metrics["uploads"] == 1 and curves == {}
    text = "\n".join(metrics["log"])
    for words in ("told to fail", "killed here", "the job is succeeded", "3 answers: 1.00 right"):
        assert words in text
    assert metrics["estimate"]["dollars"] > 0
    json.dumps(metrics)


def test_tokens_are_estimated():
    assert chat.count_tokens("x = [52, 14]") == 10 + 4
