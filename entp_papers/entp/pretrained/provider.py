"""Fine-tuning over a provider's API with the official ``openai`` client (appendix C.1), and its rehearsal offline.

Request files are written from the task, validated and priced. Every step that costs is stored before the next, so that
a killed run continues. The key is the client's, from the environment, and is in no file, line or error.
"""

import contextlib
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from entp_lib import paths
from entp_lib.files import read_json_lines, read_table, read_text, write_atomically
from entp_lib.tasks import Counting, generator_for
from entp_lib.validation import ConfigError, from_dict, one_of, require
from entp_papers.entp.pretrained.prompts import as_list, judged, question, tally
from entp_papers.entp.pretrained.weights import optional

ROLES = ("system", "user", "assistant")
HYPERPARAMETERS = {"batch_size": 4, "learning_rate_multiplier": 10}  # C.1; epochs are not stated there
FEWEST_EXAMPLES, MOST_TOKENS = 10, 65_536  # that the provider accepts: in a file, of one example
PIECES = re.compile(r"\d{1,3}|[^\W\d_]{1,8}|\n[ ]*|[^\w\s]|_|[ ](?=[ ])|\s")


class ProviderError(ConfigError):
    """A request or a job that failed, in the provider's words."""


def write_files(folder: Path, task: Counting, train: int, test: int, seed: int = 0) -> tuple[Path, Path]:
    """``train.jsonl`` and ``test.jsonl``: Table 5's prompts with their answers, no sequence twice, drawn from ``seed``.

    ConfigError where the task has too few different prompts.
    """
    known: set[tuple[int, ...]] = set()
    files, split = [], task.seed_length
    for part, number in (("train", train), ("test", test)):
        generator, rows = generator_for("cpu", "chat", part, seed), []
        for _ in range(200):
            for x in task.sequences(generator, number, evaluating=part == "test").tolist():
                if tuple(x) not in known and len(rows) < number:
                    known.add(tuple(x))
                    texts = ("user", question(x[:split], len(x) - split, task.order, True)), ("assistant", as_list(x))
                    rows.append(json.dumps({"messages": [{"role": r, "content": text} for r, text in texts]}))
        require(len(rows) == number, f"{part} = {number}: the task has too few different seeds for so many examples")
        files.append(folder / f"{part}.jsonl")
        write_atomically(files[-1], ("\n".join(rows) + "\n").encode())
    return files[0], files[1]


def read_examples(path: Path, fewest: int = FEWEST_EXAMPLES) -> list[list[dict[str, str]]]:
    """Conversations of a file in chat format. ConfigError names the first line that a provider would refuse."""
    found: dict[str, int] = {}
    for number, row in read_json_lines(path):
        where, messages = f"{path.name}, line {number}", row.get("messages")
        require(isinstance(messages, list) and len(messages) >= 2, f"{where}: 'messages' must list two or more")
        for i, m in enumerate(messages, 1):
            right = isinstance(m, dict) and set(m) == {"role", "content"} and m["role"] in ROLES
            right = right and isinstance(m["content"], str) and bool(m["content"].strip())
            require(
                right, f"{where}: message {i} must have a 'role' ({', '.join(ROLES)}) and a text as 'content' alone"
            )
        require(messages[-1]["role"] == "assistant", f"{where}: the last message must be the assistant's")
        same = found.setdefault(json.dumps(messages), number)
        require(same == number, f"{where}: the same example as line {same}")
    require(len(found) >= fewest, f"{path.name}: {len(found)} examples; a provider wants at least {fewest}")
    return [json.loads(text) for text in found]


def count_tokens(text: str) -> int:
    """Estimated tokens of a message, its frame included."""
    return len(PIECES.findall(text)) + 4


def estimate(train: Path, test: Path, model: str, epochs: int = 3) -> dict[str, Any]:
    """Tokens of the files, and dollars to train and to answer by fine_tuning_prices.csv.

    ConfigError for files that share an example, an example that is too long, and a model without a price.
    """
    columns = "model training input output date source".split()
    table = read_table(paths.reference() / "entp" / "fine_tuning_prices.csv", columns, unique="model", needed=columns)
    one_of("model (by fine_tuning_prices.csv)", model, table["model"])
    price = table.set_index("model").loc[model]
    taught, asked = read_examples(train), read_examples(test, fewest=1)
    both = sum(e in taught for e in asked)
    require(both == 0, f"{both} examples are in {train.name} and in {test.name}: the test would be of memory")
    sizes = [sum(count_tokens(m["content"]) for m in e) for e in taught]
    require(max(sizes) <= MOST_TOKENS, f"{train.name}: an example of {max(sizes)} tokens; at most {MOST_TOKENS}")
    given = sum(count_tokens(m["content"]) for e in asked for m in e[:-1])
    answered = sum(count_tokens(e[-1]["content"]) for e in asked)
    dollars = sum(sizes) * epochs * price["training"] / 1e6, (given * price["input"] + answered * price["output"]) / 1e6
    return {
        **dict(model=model, examples=len(taught), epochs=epochs, counted="estimated (tiktoken's table is not at hand)"),
        **dict(training_tokens=sum(sizes), test_input_tokens=given, test_output_tokens=answered),
        **dict(training_dollars=dollars[0], test_dollars=dollars[1], dollars=sum(dollars)),
        "prices_of": f"{price['date']}, {price['source']}",
    }


def fine_tune(
    folder: Path,
    train: Path,
    test: Path,
    model: str,
    *,
    client,
    epochs: int = 3,
    wait: float = 30.0,
    say: Callable[[str], None] = print,
) -> dict[str, float]:
    """Fine-tune ``model`` on ``train`` and ask it ``test``: shares of its answers by verdict.

    ``client``: ``openai.OpenAI()``. ``wait``: seconds between two looks at the job. ``say`` gets a line for every
    step. ``folder``/state.json has what is paid for, so that the same call continues a run that was killed. ConfigError
    for a file that a provider would refuse or the state of another fine-tuning, ProviderError for a request or a job
    that failed.
    """
    read_examples(train)
    asked, path = read_examples(test, fewest=1), folder / "state.json"
    run = {"model": model, "train": hashlib.sha256(train.read_bytes()).hexdigest(), "epochs": epochs}
    state: dict[str, Any] = {**run, "answers": {}}
    if path.exists():
        try:
            state = dict(json.loads(read_text(path)))
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"{path} is damaged ({error}); delete it to begin this fine-tuning anew") from error
        other = ", ".join(name for name in run if state.get(name) != run[name])
        require(not other, f"{path} is of a fine-tuning with another {other}; use another folder")

    def without_key(text: str) -> str:
        return text.replace(client.api_key, "[key]")

    def store(line: str = "", **values: Any) -> None:
        state.update(values)
        write_atomically(path, (without_key(json.dumps(state, indent=1)) + "\n").encode())
        if line:
            say(without_key(line))

    try:
        if "file" not in state:
            name = f"{run['train'][:16]}.jsonl"
            there = [f.id for f in client.files.list(purpose="fine-tune") if f.filename == name]
            how = "the training file was there already" if there else "sent the training file"
            there = there or [client.files.create(file=(name, train.read_bytes()), purpose="fine-tune").id]
            store(f"{how}: {there[0]}", file=there[0])
        if "job" not in state:
            supervised = {"hyperparameters": {**HYPERPARAMETERS, "n_epochs": epochs}}
            method = {"type": "supervised", "supervised": supervised}
            job = client.fine_tuning.jobs.create(model=model, training_file=state["file"], method=method)
            store(f"started the job: {job.id}", job=job.id)
        seen = ""
        while "tuned" not in state:
            job = client.fine_tuning.jobs.retrieve(state["job"])
            if job.status != seen:
                say(f"the job is {(seen := job.status)}")
            if seen == "succeeded":
                store(tuned=job.fine_tuned_model)
            elif seen in ("failed", "cancelled"):
                del state["job"]
                store()
                why = without_key(job.error.message) if job.error else "no reason"
                raise ProviderError(f"the job {job.id} {seen}: the provider says {why}; the next run starts anew")
            else:
                time.sleep(wait)
        for i, messages in enumerate(asked):
            if str(i) not in state["answers"]:
                options = dict(model=state["tuned"], messages=messages[:-1], temperature=0, seed=0)
                text = client.chat.completions.create(**options).choices[0].message.content or ""
                store(answers={**state["answers"], str(i): text})
    except optional("openai", "fine-tuning").OpenAIError as error:
        why = " ".join(without_key(f"{getattr(error, 'status_code', '')} {error}").split())
        raise ProviderError(f"the provider says {why}; nothing is lost, run it again") from None
    found = []
    for i, (prompt, *_, answer) in enumerate(asked):
        seed = prompt["content"].partition("x = [")[2].partition("]")[0]
        found.append(judged(state["answers"][str(i)], json.loads(answer["content"]), seed.count(",") + 1))
    scores = tally(found)
    say(f"{len(found)} answers: {scores['exact_match']:.2f} right, {scores['invalid']:.2f} invalid")
    return scores


class FakeProvider:
    """Answer the client's requests from memory, learning nothing: the prompts of ``test`` by what the file says.

    ``busy``: how many requests are refused at first for their rate. ``failure``: why a job fails, "" for one that
    succeeds when it is looked at the third time.
    """

    def __init__(self, test: Path, busy: int = 0, failure: str = ""):
        self.answers = {e[-2]["content"]: e[-1]["content"] for e in read_examples(test, fewest=1)}
        self.busy, self.failure = busy, failure
        self.files: list[dict[str, Any]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []

    def client(self, key: str = "no-key-of-anyone"):
        """The official client with this provider in the place of a network."""
        httpx, openai = optional("httpx2", "fine-tuning"), optional("openai", "fine-tuning")

        def handle(request):
            self.requests.append(f"{request.method} {request.url.path.removeprefix('/v1')}")
            status, found = self.answer(*self.requests[-1].split(), request.read())
            return httpx.Response(status, json=found, headers={"retry-after-ms": "1"})

        transport = openai.DefaultHttpxClient(transport=httpx.MockTransport(handle))
        return openai.OpenAI(api_key=key, base_url="http://fake/v1", http_client=transport)

    def answer(self, method: str, place: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and JSON for a request, such as "GET" of "/files"."""
        if self.busy:
            self.busy -= 1
            return 429, {"error": {"message": "Rate limit reached, try again"}}
        if (method, place) == ("GET", "/files"):
            return 200, {"object": "list", "data": self.files, "has_more": False}
        if place == "/files":
            name = re.search(rb'filename="([^"]+)"', body)[1].decode()
            self.files.append({"id": f"file-{len(self.files) + 1}", "filename": name, "purpose": "fine-tune"})
            return 200, self.files[-1]
        if place == "/fine_tuning/jobs":
            name = f"ftjob-{len(self.jobs) + 1}"
            self.jobs[name] = {"id": name, "status": "queued", **json.loads(body)}
            return 200, self.jobs[name]
        if place == "/chat/completions":
            content = self.answers.get(json.loads(body)["messages"][-1]["content"], "I do not know.")
            return 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}
        job = self.jobs[place.rpartition("/")[2]]
        now = dict(job)  # it advances with every look
        if job["status"] == "queued":
            job["status"] = "running"
        elif self.failure:
            job |= {"status": "failed", "error": {"message": self.failure}}
        else:
            job |= {"status": "succeeded", "fine_tuned_model": f"ft:{job['model']}:fake"}
        return 200, now


def dry_run_study(
    task: dict[str, Any], train: int, test: int, model: str, client: bool = True
) -> tuple[dict[str, Any], dict[str, list]]:
    """Rehearse fine-tuning ``model`` at a ``FakeProvider``: (its log, scores, requests and price, {}).

    In turn: a job that fails after a request was refused for its rate, a run killed once its job is started, and one
    that continues it. Without ``client`` the files are written and priced alone.
    """
    log: list[str] = []
    metrics: dict[str, Any] = {}

    def killed(line: str) -> None:
        log.append(line)
        if line.startswith("started"):
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name:
        files = write_files(Path(name), from_dict(Counting, task), train, test)
        metrics["estimate"] = estimate(*files, model)
        log.append(f"wrote {train} examples to train.jsonl and {test} to test.jsonl, no sequence in both")
        if client:
            fake = FakeProvider(files[1], busy=1, failure="the loopback was told to fail")
            run, options = (Path(name) / "run", *files, model), dict(client=fake.client(), wait=0.0)
            try:
                fine_tune(*run, **options, say=log.append)
            except ProviderError as error:
                log.append(str(error))
            fake.failure = ""
            with contextlib.suppress(KeyboardInterrupt):
                fine_tune(*run, **options, say=killed)
            log.append("killed here; the same command again:")
            metrics["scores"] = fine_tune(*run, **options, say=log.append)
            metrics |= {"requests": fake.requests[:60], "uploads": len(fake.files)}
    return metrics | {"log": log}, {}
