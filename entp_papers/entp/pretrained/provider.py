"""Fine-tuning over a provider's API with the official ``openai`` client (appendix C.1), and its rehearsal offline.

Files of requests are written from the task, checked and priced. Every step that costs is stored before the next, so
that a killed run continues. The key is the client's, from the environment; no file has it.
"""

import contextlib
import functools
import hashlib
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from entp_lib.experiments.frames import published
from entp_lib.files import read_json_lines, read_text, write_atomically
from entp_lib.tasks import Counting, generator_for
from entp_lib.validation import ConfigError, from_dict, one_of, require
from entp_papers.entp.pretrained.prompts import as_list, judged, question, tally
from entp_papers.entp.pretrained.weights import optional

HYPERPARAMETERS = {"batch_size": 4, "learning_rate_multiplier": 10, "n_epochs": 3}  # C.1 does not state its epochs
PIECES = re.compile(r"\d{1,3}|[^\W\d_]{1,8}|\n[ ]*|[^\w\s]|_|[ ](?=[ ])|\s")  # about what a tokenizer makes of a text
Files = tuple[Path, Path]  # to train on, to test


def write_files(folder: Path, task: Counting, train: int, test: int) -> Files:
    """``train.jsonl`` and ``test.jsonl``: Table 5's prompts with their answers in chat format, no sequence twice."""
    known, split, files = set(), task.seed_length, (folder / "train.jsonl", folder / "test.jsonl")
    for path, number in zip(files, (train, test), strict=True):
        generator, rows = generator_for("cpu", "chat", path.stem, 0), []
        for _ in range(200):
            for x in task.sequences(generator, number, evaluating=path.stem == "test").tolist():
                if tuple(x) not in known and len(rows) < number:
                    known.add(tuple(x))
                    asked = {"role": "user", "content": question(x[:split], len(x) - split, task.order, True)}
                    rows.append(json.dumps({"messages": [asked, {"role": "assistant", "content": as_list(x)}]}))
        require(len(rows) == number, f"{path.stem} = {number}: the task has too few different seeds for so many")
        write_atomically(path, ("\n".join(rows) + "\n").encode())
    return files


def read_files(files: Files) -> list[list[tuple[str, str]]]:
    """Prompts with their answers, by file. ConfigError names what a provider would refuse, or is in both files."""
    found: list[list[tuple[str, str]]] = [[], []]
    for path, pairs in zip(files, found, strict=True):
        for number, row in read_json_lines(path):
            match row.get("messages"):
                case [{"role": "user", "content": str(asked)}, {"role": "assistant", "content": str(answer)}]:
                    pairs.append((asked, answer))
                case _:
                    where = f"{path.name}, line {number}"
                    raise ConfigError(f"{where}: 'messages' must be a user's text and then the assistant's")
        require(len(pairs) >= 10, f"{path.name}: {len(pairs)} examples; a provider wants at least 10")
    both = len(set(found[0]) & set(found[1]))
    require(both == 0, f"{both} examples are in {files[0].name} and in {files[1].name}: the test would be of memory")
    return found


def estimate(files: Files, model: str) -> dict[str, Any]:
    """Tokens of the files, and dollars to train and to answer the test. ConfigError for a model without a price."""
    prices = published("entp", "fine_tuning_prices").set_index("model")
    one_of("model (by fine_tuning_prices.csv)", model, prices.index)
    price, epochs, (taught, asked) = prices.loc[model], HYPERPARAMETERS["n_epochs"], read_files(files)
    parts = [text for pair in taught for text in pair], *zip(*asked, strict=True)
    training, given, answered = (sum(len(PIECES.findall(text)) + 4 for text in texts) for texts in parts)  # 4: a frame
    dollars = training * epochs * price["training"] / 1e6, (given * price["input"] + answered * price["output"]) / 1e6
    return {
        **dict(model=model, examples=len(taught), epochs=epochs, counted="estimated (tiktoken's table is not at hand)"),
        **dict(training_tokens=training, test_input_tokens=given, test_output_tokens=answered),
        **dict(training_dollars=dollars[0], test_dollars=dollars[1], dollars=sum(dollars)),
        "prices_of": f"{price['date']}, {price['source']}",
    }


def fine_tune(folder: Path, files: Files, model: str, seed_length: int, client, wait: float = 30.0, say=print):
    """Fine-tune ``model`` on the first file and ask it the second: shares of its answers by verdict.

    ``client``: ``openai.OpenAI()``. ``wait``: seconds between two looks at the job. ``folder``/state.json has what is
    paid for, so that the same call continues a run that was killed. ConfigError for files that a provider would refuse,
    the state of another run, and a request or a job that failed.
    """
    (_, asked), path, data = read_files(files), folder / "state.json", files[0].read_bytes()
    run = {"model": model, "train": hashlib.sha256(data).hexdigest()}
    state = {**run, "answers": {}}
    if path.exists():
        state["model"] = None
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            state |= json.loads(read_text(path))
        require(run.items() <= state.items(), f"{path} is damaged or of another run; use another folder, or delete it")

    def store(line: str = "", **values: Any) -> None:
        state.update(values)
        write_atomically(path, (json.dumps(state, indent=1) + "\n").encode())
        if line:
            say(line)

    try:
        if "file" not in state:
            name = f"{run['train'][:16]}.jsonl"
            there = [f.id for f in client.files.list(purpose="fine-tune") if f.filename == name]
            there = there or [client.files.create(file=(name, data), purpose="fine-tune").id]
            store(f"sent the training file: {there[0]}", file=there[0])
        if not state.get("job"):
            method = {"type": "supervised", "supervised": {"hyperparameters": HYPERPARAMETERS}}
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
                store(job=None)
                why = job.error.message if job.error else "no reason"
                raise ConfigError(f"the job {job.id} {seen}: the provider says {why}; the next run starts anew")
            else:
                time.sleep(wait)
        for i, (prompt, _) in enumerate(asked):
            if str(i) not in state["answers"]:
                options = dict(messages=[{"role": "user", "content": prompt}], temperature=0, seed=0)
                text = client.chat.completions.create(model=state["tuned"], **options).choices[0].message.content
                store(answers={**state["answers"], str(i): text or ""})
    except optional("openai", "fine-tuning").OpenAIError as error:
        why = " ".join(str(error).replace(client.api_key, "[key]").split())
        raise ConfigError(f"the provider says {why}; nothing is lost, run it again") from None
    answers = ((state["answers"][str(i)], json.loads(right)) for i, (_, right) in enumerate(asked))
    scores = tally([judged(text, right, seed_length) for text, right in answers])
    say(f"{len(asked)} answers: {scores['exact_match']:.2f} right, {scores['invalid']:.2f} invalid")
    return scores


def scripted(replies):
    """The official client with replies, (status, JSON) in turn, in place of a network, and the list of its requests."""
    httpx, openai = optional("httpx2", "fine-tuning"), optional("openai", "fine-tuning")
    requests, left = [], iter(replies)

    def handle(request):
        requests.append(f"{request.method} {request.url.path}")
        status, found = next(left)
        return httpx.Response(status, json=found, headers={"retry-after-ms": "1"})

    network = openai.DefaultHttpxClient(transport=httpx.MockTransport(handle))
    return openai.OpenAI(api_key="no-key-of-anyone", base_url="http://fake", http_client=network), requests


def dry_run_study(task: dict[str, Any], train: int, test: int, model: str, client: bool = True):
    """Rehearse fine-tuning ``model``: (its log, scores, requests and price, {}).

    In turn: a job that fails after a request was refused for its rate, a run killed once its job is started, and one
    that continues it. Without ``client`` the files are written and priced alone.
    """
    log: list[str] = []

    def killed(line: str) -> None:
        log.append(line)
        if line.startswith("started"):
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name:
        counting = from_dict(Counting, task)
        files = write_files(Path(name), counting, train, test)
        metrics: dict[str, Any] = {"estimate": estimate(files, model)}
        log.append(f"wrote {train} examples to train.jsonl and {test} to test.jsonl, no sequence in both")
        if client:
            looks = [(1, "queued"), (1, "queued"), (1, "running"), (1, "failed")]
            looks += [(2, "queued"), (2, "queued"), (2, "running"), (2, "succeeded")]
            end = {"error": {"message": "the loopback was told to fail"}, "fine_tuned_model": "it"}
            right = [[{"message": {"role": "assistant", "content": answer}}] for _, answer in read_files(files)[1]]
            replies = [{"object": "list", "data": []}, {"id": "file-1"}]
            replies += [{"id": f"ftjob-{number}", "status": status, **end} for number, status in looks]
            replies += [{"choices": text} for text in right]
            fake, requests = scripted([(429, {"error": {"message": "busy"}}), *((200, reply) for reply in replies)])
            run = functools.partial(fine_tune, Path(name) / "run", files, model, counting.seed_length, fake, 0.0)
            try:
                run(say=log.append)
            except ConfigError as error:
                log.append(str(error))
            with contextlib.suppress(KeyboardInterrupt):
                run(say=killed)
            log.append("killed here; the same command again:")
            metrics |= {"scores": run(say=log.append), "requests": requests, "uploads": requests.count("POST /files")}
    return metrics | {"log": log}, {}
