"""Fine-tuning over a provider's API with the official ``openai`` client (appendix C.1: batch 4, rate multiplier 10).

Every step that costs is written down before the next: a run that was killed goes on with the file, the job and the
answers that are there. The key comes from the environment alone and stands in no file, log or error.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from entp_lib.files import write_atomically
from entp_lib.validation import ConfigError, require
from entp_papers.entp.pretrained.chat import read_examples
from entp_papers.entp.pretrained.prompts import judged, read_answer, tally
from entp_papers.entp.pretrained.weights import optional

KEY = "OPENAI_API_KEY"
ENDED = ("succeeded", "failed", "cancelled")
PAPER = {"batch_size": 4, "learning_rate_multiplier": 10}  # C.1; epochs are not stated there


class ProviderError(ConfigError):
    """What the provider refused, in its own words."""


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
        key = os.environ.get(KEY, "")
        require(bool(key), f"{KEY} is not set: the key is taken from the environment alone; without one see the files")
        self.openai = optional("openai", "a provider's fine-tuning")
        self.key, self.train, self.model, self.epochs, self.wait, self.say = key, train, model, epochs, wait, say
        read_examples(train)
        self.asked = read_examples(test, fewest=1)
        self.client = self.openai.OpenAI(api_key=key, base_url=base_url, max_retries=6)
        self.checksum = hashlib.sha256(train.read_bytes()).hexdigest()
        self.path = folder / "state.json"
        self.state = self.read_state()

    def read_state(self) -> dict[str, Any]:
        """What an earlier run left; ConfigError where that was another fine-tuning."""
        fresh = {"model": self.model, "train": self.checksum, "epochs": self.epochs, "answers": {}}
        if not self.path.exists():
            return fresh
        found = json.loads(self.path.read_text(encoding="utf-8"))
        for name in ("model", "train", "epochs"):
            require(
                found.get(name) == fresh[name],
                f"{self.path.parent.name}: holds a fine-tuning of another {name}; use another folder",
            )
        return found

    def keep(self, **values: Any) -> None:
        """Write down what is known now."""
        self.state |= values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(self.state, indent=1) + "\n").encode())

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Within it an error of the client becomes one line in the provider's words, without the key."""
        try:
            yield
        except self.openai.APIError as error:
            status = getattr(error, "status_code", None)
            words = str(getattr(error, "message", "") or error).replace(self.key, "[key]")
            code = f"{status}: " if status else ""
            raise ProviderError(f"{what}: the provider says {code}{words}; nothing is lost, run it again") from None

    def upload(self) -> str:
        """The identifier of the training file, sent unless the provider has it already."""
        if "file" not in self.state:
            with self.asking("sending the training file"):
                there = self.sent_before()
                if there is None:
                    with open(self.train, "rb") as file:
                        name = f"{self.checksum[:16]}.jsonl"
                        sent = self.client.files.create(file=(name, file), purpose="fine-tune")
                    self.say(f"sent the training file: {sent.id}")
                else:
                    sent = there
                    self.say(f"the training file was there already: {sent.id}")
            self.keep(file=sent.id)
        return self.state["file"]

    def sent_before(self):
        """The provider's file of the same content, by its name, which is the content's checksum; None without one."""
        name = f"{self.checksum[:16]}.jsonl"
        return next((f for f in self.client.files.list(purpose="fine-tune") if f.filename == name), None)

    def start(self) -> str:
        """The identifier of the job, made unless it is there."""
        file = self.upload()
        if "job" not in self.state:
            options = {**PAPER, "n_epochs": self.epochs}
            with self.asking("starting the fine-tuning"):
                method = {"type": "supervised", "supervised": {"hyperparameters": options}}
                job = self.client.fine_tuning.jobs.create(model=self.model, training_file=file, method=method)
            self.keep(job=job.id)
            self.say(f"started the job: {job.id}")
        return self.state["job"]

    def finish(self) -> str:
        """Wait for the job's end: the name of the tuned model. ProviderError where it failed, in its words."""
        job, seen = self.start(), ""
        while "tuned" not in self.state:
            with self.asking("asking for the job"):
                found = self.client.fine_tuning.jobs.retrieve(job)
            if found.status != seen:
                self.say(f"the job is {found.status}")
                seen = found.status
            if found.status == "succeeded":
                self.keep(tuned=found.fine_tuned_model, trained_tokens=found.trained_tokens)
            elif found.status in ENDED:
                words = found.error.message if found.error and found.error.message else "no reason"
                self.state.pop("job")
                self.keep()
                raise ProviderError(
                    f"the job {job} {found.status}: the provider says {words}; the next run starts anew"
                )
            else:
                time.sleep(self.wait)
        return self.state["tuned"]

    def answer(self) -> dict[str, float]:
        """The tuned model's answers to the test file, each asked once: shares by verdict, invalid ones apart."""
        tuned, answers = self.finish(), self.state["answers"]
        for place, example in enumerate(self.asked):
            if str(place) in answers:
                continue
            with self.asking(f"question {place + 1} of {len(self.asked)}"):
                reply = self.client.chat.completions.create(
                    model=tuned, messages=example["messages"][:-1], temperature=0, seed=0
                )
            self.keep(answers={**answers, str(place): reply.choices[0].message.content or ""})
            answers = self.state["answers"]
        found = []
        for place, example in enumerate(self.asked):
            right = example["messages"][-1]["content"]
            numbers = read_answer(right, right.count(",") + 1)
            seed = example["messages"][0]["content"].partition("x = [")[2].partition("]")[0].count(",") + 1
            found.append(judged(answers[str(place)], numbers, seed))
        scores = tally(found)
        self.say(f"{len(found)} answers: {scores['exact_match']:.2f} right, {scores['invalid']:.2f} invalid")
        return scores
