"""Fine-tuning over a provider's API with the official ``openai`` client (appendix C.1): files,
price and the call.
"""

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from entp_lab.frames import published
from entp_lab.tables import read_json_lines
from entp_lib.files import write_atomically
from entp_lib.tasks import Counting, generator_for
from entp_lib.validation import ConfigError, from_dict, one_of, require
from entp_papers.entp.pretrained.prompts import as_list, judged, question, tally

HYPERPARAMETERS = {
    "batch_size": 4,
    "learning_rate_multiplier": 10,
    "n_epochs": 3,
}  # C.1 does not state its epochs
PIECES = re.compile(
    r"\d{1,3}|[^\W\d_]{1,8}|\n[ ]*|[^\w\s]|_|[ ](?=[ ])|\s"
)  # about what a tokenizer makes of a text
Files = tuple[Path, Path]  # to train on, to test


def write_files(folder: Path, task: Counting, train: int, test: int) -> Files:
    """``train.jsonl`` and ``test.jsonl``: Table 5's prompts with their answers in chat format, no
    sequence twice.
    """
    known, split, files = set(), task.seed_length, (folder / "train.jsonl", folder / "test.jsonl")
    for path, number in zip(files, (train, test), strict=True):
        generator, rows = generator_for("cpu", "chat", path.stem, 0), []
        for _ in range(200):
            for x in task.sequences(generator, number, evaluating=path.stem == "test").tolist():
                if tuple(x) not in known and len(rows) < number:
                    known.add(tuple(x))
                    asked = {
                        "role": "user",
                        "content": question(x[:split], len(x) - split, task.order, True),
                    }
                    rows.append(
                        json.dumps(
                            {"messages": [asked, {"role": "assistant", "content": as_list(x)}]}
                        )
                    )
        require(
            len(rows) == number,
            f"{path.stem} = {number}: the task has too few different seeds for so many",
        )
        write_atomically(path, ("\n".join(rows) + "\n").encode())
    return files


def read_files(files: Files) -> list[list[tuple[str, str]]]:
    """Prompts with their answers, by file. ConfigError names what a provider would refuse, or is in
    both files.
    """
    found: list[list[tuple[str, str]]] = [[], []]
    for path, pairs in zip(files, found, strict=True):
        for number, row in read_json_lines(path):
            match row.get("messages"):
                case [
                    {"role": "user", "content": str(asked)},
                    {"role": "assistant", "content": str(answer)},
                ]:
                    pairs.append((asked, answer))
                case _:
                    where = f"{path.name}, line {number}"
                    raise ConfigError(
                        f"{where}: 'messages' must be a user's text and then the assistant's"
                    )
        require(
            len(pairs) >= 10, f"{path.name}: {len(pairs)} examples; a provider wants at least 10"
        )
    both = len(set(found[0]) & set(found[1]))
    require(
        both == 0,
        f"{both} examples are in {files[0].name} and in {files[1].name}: the test would be of memory",
    )
    return found


def estimate(files: Files, model: str) -> dict[str, Any]:
    """Tokens of the files, and dollars to train and to answer the test. ConfigError for a model
    without a price.
    """
    prices = published("entp", "fine_tuning_prices").set_index("model")
    one_of("model (by fine_tuning_prices.csv)", model, prices.index)
    price, epochs, (taught, asked) = (
        prices.loc[model],
        HYPERPARAMETERS["n_epochs"],
        read_files(files),
    )
    parts = [text for pair in taught for text in pair], *zip(*asked, strict=True)
    training, given, answered = (
        sum(len(PIECES.findall(text)) + 4 for text in texts) for texts in parts
    )  # 4: a frame
    dollars = (
        training * epochs * price["training"] / 1e6,
        (given * price["input"] + answered * price["output"]) / 1e6,
    )
    return {
        **dict(
            model=model,
            examples=len(taught),
            epochs=epochs,
            counted="estimated (tiktoken's table is not at hand)",
        ),
        **dict(training_tokens=training, test_input_tokens=given, test_output_tokens=answered),
        **dict(training_dollars=dollars[0], test_dollars=dollars[1], dollars=sum(dollars)),
        "prices_of": f"{price['date']}, {price['source']}",
    }


def fine_tune(
    client, files: Files, model: str, seed_length: int, *, job: str = "", wait: float = 30.0
) -> dict[str, Any]:
    """Fine-tune ``model`` on the first file and ask it the second: shares of its answers by
    verdict.

    ``client``: ``openai.OpenAI()``, which reads its key from the environment and repeats refused
    requests. The name of the job is printed when it starts: given as ``job``, a later call waits
    for it and pays for no second one. ``wait``: seconds between two looks. ConfigError for files
    that a provider would refuse, and for a job that failed.
    """
    asked = read_files(files)[1]
    if not job:
        uploaded = client.files.create(file=files[0], purpose="fine-tune")
        method = {"type": "supervised", "supervised": {"hyperparameters": HYPERPARAMETERS}}
        job = client.fine_tuning.jobs.create(
            model=model, training_file=uploaded.id, method=method
        ).id
        print(f"started the job {job}")
    state = client.fine_tuning.jobs.retrieve(job)
    while state.status not in ("succeeded", "failed", "cancelled"):
        time.sleep(wait)
        state = client.fine_tuning.jobs.retrieve(job)
    if state.status != "succeeded":
        why = state.error.message if state.error else "no reason"
        raise ConfigError(f"the job {job} {state.status}: the provider says {why}")
    verdicts = []
    for prompt, right in asked:
        message = {"role": "user", "content": prompt}
        reply = client.chat.completions.create(
            model=state.fine_tuned_model, messages=[message], temperature=0, seed=0
        )
        verdicts.append(
            judged(reply.choices[0].message.content or "", json.loads(right), seed_length)
        )
    return tally(verdicts)


def dry_run_study(task: dict[str, Any], train: int, test: int, model: str, client: bool = True):
    """Write the files of a fine-tuning and price them: (log and price, {}).

    A stored record with ``client`` is of a rehearsal that cannot be computed any more: a
    ConfigError.
    """
    require(
        not client,
        "the rehearsal of a provider's fine-tuning is only stored: it cannot be computed again",
    )
    with tempfile.TemporaryDirectory() as name:
        files = write_files(Path(name), from_dict(Counting, task), train, test)
        log = [
            f"wrote {train} examples to train.jsonl and {test} to test.jsonl, no sequence in both"
        ]
        return {"estimate": estimate(files, model), "log": log}, {}
