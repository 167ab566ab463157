"""Fine-tuning over a provider's API with the official ``openai`` client (appendix C.1: batch 4, rate multiplier 10).

Files in the chat format are written from the task, checked and priced. Every step that costs is written down before the
next, so that a run that was killed goes on. The key comes from the environment alone and is in no file or error.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from entp_lib import paths
from entp_lib.files import read_json_lines, read_table, read_text, write_atomically
from entp_lib.tasks import Counting, generator_for
from entp_lib.validation import ConfigError, one_of, require
from entp_papers.entp.pretrained.prompts import as_list, judged, question, read_answer, tally
from entp_papers.entp.pretrained.weights import optional

KEY, ROLES = "OPENAI_API_KEY", ("system", "user", "assistant")
PAPER = {"batch_size": 4, "learning_rate_multiplier": 10}  # C.1; epochs are not stated there
FEWEST_EXAMPLES, MOST_TOKENS = 10, 65_536  # that the provider accepts: in a file, of one example
PIECES = re.compile(r"\d{1,3}|[^\W\d_]{1,8}|\n[ ]*|[^\w\s]|_|[ ](?=[ ])|\s")


class ProviderError(ConfigError):
    """A request that failed, in the provider's words or the client's."""


def write_files(folder: Path, task: Counting, train: int, test: int, seed: int = 0) -> tuple[Path, Path]:
    """``train.jsonl`` and ``test.jsonl``: Table 5's prompts and their answers, different sequences, by ``seed`` alone.

    ConfigError where the task has too few different seeds.
    """
    known: set[tuple[int, ...]] = set()
    files, split = [], task.seed_length
    for part, number in (("train", train), ("test", test)):
        generator, rows = generator_for("cpu", "chat", part, seed), []
        for _ in range(200):
            for x in task.sequences(generator, number, evaluating=part == "test").tolist():
                if tuple(x) not in known and len(rows) < number:
                    known.add(tuple(x))
                    asked = question(x[:split], len(x) - split, task.order, with_code=True)
                    said = (("user", asked), ("assistant", as_list(x)))
                    rows.append(json.dumps({"messages": [{"role": r, "content": text} for r, text in said]}))
        require(len(rows) == number, f"{part} = {number}: the task has too few different seeds for so many examples")
        files.append(folder / f"{part}.jsonl")
        write_atomically(files[-1], ("\n".join(rows) + "\n").encode())
    return files[0], files[1]


def read_examples(path: Path, fewest: int = FEWEST_EXAMPLES) -> list[list[dict]]:
    """Conversations of a file in chat format. ConfigError names the first line that a provider would refuse."""
    found: dict[str, int] = {}
    examples = []
    for number, row in read_json_lines(path):
        where, messages = f"{path.name}, line {number}", row.get("messages")
        require(
            isinstance(messages, list) and len(messages) >= 2, f"{where}: 'messages' must list two messages or more"
        )
        for place, m in enumerate(messages):
            right = isinstance(m, dict) and set(m) == {"role", "content"} and m["role"] in ROLES
            right = right and isinstance(m["content"], str) and bool(m["content"].strip())
            form = f"{{'role': {' or '.join(ROLES)}, 'content': a text}} and nothing else"
            require(right, f"{where}: message {place + 1} must be {form}")
        require(messages[-1]["role"] == "assistant", f"{where}: the last message must be the assistant's")
        same = found.setdefault(json.dumps(row), number)
        require(same == number, f"{where}: the same example as line {same}")
        examples.append(messages)
    require(len(examples) >= fewest, f"{path.name}: {len(examples)} examples; a provider wants at least {fewest}")
    return examples


def count_tokens(text: str) -> int:
    """About how many tokens a message has, those around it included."""
    return len(PIECES.findall(text)) + 4


def estimate(train: Path, test: Path, model: str, epochs: int = 3) -> dict[str, Any]:
    """Tokens of the files, and dollars for fine-tuning and answers by fine_tuning_prices.csv. ConfigError for files
    that share an example, an example that is too long, and a model without a price."""
    columns = "model training input output date source".split()
    table = read_table(paths.reference() / "entp" / "fine_tuning_prices.csv", columns, unique="model", needed=columns)
    one_of("model (by fine_tuning_prices.csv)", model, table["model"])
    price = table.set_index("model").loc[model]
    taught, asked = read_examples(train), read_examples(test, fewest=1)
    both = {json.dumps(e) for e in taught} & {json.dumps(e) for e in asked}
    require(not both, f"{len(both)} examples are in {train.name} and in {test.name}: the test would be of memory")
    sizes = [sum(count_tokens(m["content"]) for m in e) for e in taught]
    long = f"{train.name}: an example of {max(sizes)} tokens; at most {MOST_TOKENS} are taken"
    require(max(sizes) <= MOST_TOKENS, long)
    given = sum(count_tokens(m["content"]) for e in asked for m in e[:-1])
    answered = sum(count_tokens(e[-1]["content"]) for e in asked)
    dollars = sum(sizes) * epochs * price["training"] / 1e6, (given * price["input"] + answered * price["output"]) / 1e6
    return {
        **dict(model=model, examples=len(taught), epochs=epochs, counted="estimated (tiktoken's table is not at hand)"),
        **dict(training_tokens=sum(sizes), test_input_tokens=given, test_output_tokens=answered),
        **dict(training_dollars=dollars[0], test_dollars=dollars[1], dollars=sum(dollars)),
        "prices_of": f"{price['date']}, {price['source']}",
    }


class FineTuning:
    """One fine-tuning of ``model`` on ``train``, kept in ``folder``; ``say`` gets a line for every step.

    ``base_url``: another provider's address, or None for the client's own. ``wait``: seconds between two looks at the
    job. ConfigError where there is no key, no client, or the files are not in order, before anything is sent.
    """

    def __init__(
        self,
        folder: Path,
        train: Path,
        test: Path,
        model: str,
        *,
        epochs: int = 3,
        base_url: str | None = None,
        wait: float = 30.0,
        say: Callable[[str], None] = print,
    ):
        require(wait >= 0, f"wait = {wait}: must not be negative")
        self.key = os.environ.get(KEY, "")
        require(bool(self.key), f"{KEY} is not set: the key is taken from the environment alone")
        plain = re.fullmatch(r"[!#-\[\]-~]+", self.key) is not None
        require(plain, f"{KEY} has signs that no key has: it must be of plain letters, digits and punctuation")
        read_examples(train)
        self.asked, self.train, self.wait = read_examples(test, fewest=1), train, wait
        self.say = lambda text: say(self.hidden(text))
        client = optional("openai", "a provider's fine-tuning")
        self.client = client.OpenAI(api_key=self.key, base_url=base_url, max_retries=6)
        checksum = hashlib.sha256(train.read_bytes()).hexdigest()
        self.name, self.path = f"{checksum[:16]}.jsonl", folder / "state.json"
        self.state = self.read_state({"model": model, "train": checksum, "epochs": epochs, "answers": {}})

    def read_state(self, fresh: dict[str, Any]) -> dict[str, Any]:
        """State that an earlier run left; ConfigError where that is damaged, or was another fine-tuning."""
        if not self.path.exists():
            return fresh
        try:
            found = json.loads(read_text(self.path))
            texts = [found.get(name, "") for name in ("file", "job", "tuned")] + list(found["answers"].values())
            require(all(isinstance(text, str) for text in texts), "an entry is no text")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{self.path} is damaged ({error}); delete it to begin this fine-tuning anew") from error
        for name in ("model", "train", "epochs"):
            right = found.get(name) == fresh[name]
            require(right, f"{self.path.parent.name}: holds a fine-tuning of another {name}; use another folder")
        return found

    def keep(self, **values: Any) -> None:
        """Write down what is known now."""
        self.state |= values
        write_atomically(self.path, (self.hidden(json.dumps(self.state, indent=1)) + "\n").encode())

    def hidden(self, text: str) -> str:
        """A text without the key."""
        return text.replace(self.key, "[key]")

    def ask(self, what: str, request: Callable[[], Any]) -> Any:
        """Result of ``request``; ProviderError in one line without the key, whatever fails or comes back."""
        try:
            return request()
        except Exception as error:
            status = getattr(error, "status_code", None)
            words = str(getattr(error, "message", "") or error or type(error).__name__)
            code, words = f"{status}: " if status else "", " ".join(self.hidden(words).split())
        raise ProviderError(f"{what}: the provider says {code}{words}; nothing is lost, run it again")

    def upload(self) -> str:
        """The identifier of the training file, sent unless the provider has one of its name, the content's checksum."""
        if "file" not in self.state:
            files, what = self.client.files, "sending the training file"
            there = self.ask(what, lambda: [f.id for f in files.list(purpose="fine-tune") if f.filename == self.name])
            if there:
                self.say(f"the training file was there already: {there[0]}")
            else:
                sent = (self.name, self.train.read_bytes())
                there = [self.ask(what, lambda: files.create(file=sent, purpose="fine-tune").id)]
                self.say(f"sent the training file: {there[0]}")
            self.keep(file=there[0])
        return self.state["file"]

    def start(self) -> str:
        """The identifier of the job, made unless it is there."""
        file = self.upload()
        if "job" not in self.state:
            method = {
                "type": "supervised",
                "supervised": {"hyperparameters": {**PAPER, "n_epochs": self.state["epochs"]}},
            }
            options = dict(model=self.state["model"], training_file=file, method=method)
            create = self.client.fine_tuning.jobs.create
            self.keep(job=self.ask("starting the fine-tuning", lambda: create(**options).id))
            self.say(f"started the job: {self.state['job']}")
        return self.state["job"]

    def finish(self) -> str:
        """Wait for the job's end: the name of the tuned model. ProviderError where it failed, in its words."""
        job, seen = self.start(), ""
        while "tuned" not in self.state:
            found = self.ask("asking for the job", lambda: self.client.fine_tuning.jobs.retrieve(job))
            if found.status != seen:
                seen = found.status
                self.say(f"the job is {seen}")
            if seen == "succeeded":
                self.keep(tuned=found.fine_tuned_model, trained_tokens=found.trained_tokens)
            elif seen in ("failed", "cancelled"):
                self.state.pop("job")
                self.keep()
                words = self.hidden(str(found.error.message)) if found.error and found.error.message else "no reason"
                raise ProviderError(f"the job {job} {seen}: the provider says {words}; the next run starts anew")
            else:
                time.sleep(self.wait)
        return self.state["tuned"]

    def answer(self) -> dict[str, float]:
        """Shares of the tuned model's answers to the test file by verdict, each asked once, invalid ones apart."""
        tuned, found = self.finish(), []
        create = self.client.chat.completions.create
        for place, messages in enumerate(self.asked):
            if str(place) not in self.state["answers"]:
                options = dict(model=tuned, messages=messages[:-1], temperature=0, seed=0)
                what = f"question {place + 1} of {len(self.asked)}"
                said = self.ask(what, lambda options=options: create(**options).choices[0].message.content or "")
                self.keep(answers={**self.state["answers"], str(place): said})
            right = messages[-1]["content"]
            seed = messages[0]["content"].partition("x = [")[2].partition("]")[0].count(",") + 1
            numbers = read_answer(right, right.count(",") + 1)
            found.append(judged(self.state["answers"][str(place)], numbers, seed))
        scores = tally(found)
        self.say(f"{len(found)} answers: {scores['exact_match']:.2f} right, {scores['invalid']:.2f} invalid")
        return scores
