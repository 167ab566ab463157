"""Training and evaluation files in a provider's chat format, written from the task, checked, and what they would cost.

A line of JSON is one example: a user's message, Table 5's prompt, and the assistant's, its answer.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from entp_lib import paths
from entp_lib.files import read_table, write_atomically
from entp_lib.tasks import Counting, generator_for
from entp_lib.validation import ConfigError, require
from entp_papers.entp.pretrained.prompts import as_list, question

ROLES = ("system", "user", "assistant")
FEWEST_EXAMPLES = 10  # what the provider accepts
MOST_TOKENS = 65_536  # of one training example of GPT-4o; providers cut or refuse longer ones
PIECES = re.compile(r"\d{1,3}|[^\W\d_]{1,8}|\n[ ]*|[^\w\s]|_|[ ](?=[ ])|\s")


def example(sequence: Sequence[int], task: Counting, with_code: bool) -> dict:
    """One sequence as a user's question and the assistant's answer."""
    seed = list(sequence)[: task.seed_length]
    asked = question(seed, len(sequence) - len(seed), task.order, with_code)
    return {
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": as_list(sequence)},
        ]
    }


def write_files(
    folder: Path, task: Counting, train: int, test: int, with_code: bool = True, seed: int = 0
) -> tuple[Path, Path]:
    """``train.jsonl`` and ``test.jsonl`` below ``folder``: different sequences, the same ones for the same seed.

    ConfigError where the task has too few different seeds.
    """
    wanted = {"train": train, "test": test}
    known: set[tuple[int, ...]] = set()
    files = []
    for part, number in wanted.items():
        generator, rows = generator_for("cpu", "chat", part, seed), []
        for _ in range(200):
            for x in task.sequences(generator, number, evaluating=part == "test").tolist():
                if tuple(x) not in known and len(rows) < number:
                    known.add(tuple(x))
                    rows.append(json.dumps(example(x, task, with_code)))
            if len(rows) == number:
                break
        require(len(rows) == number, f"{part} = {number}: the task has too few different seeds for so many examples")
        files.append(folder / f"{part}.jsonl")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(files[-1], ("\n".join(rows) + "\n").encode())
    return files[0], files[1]


def read_examples(path: Path, fewest: int = FEWEST_EXAMPLES) -> list[dict]:
    """The examples of a file in chat format. ConfigError names the first line that a provider would refuse."""
    require(path.is_file(), f"{path.name}: no such file")
    found: dict[str, int] = {}
    examples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path.name}, line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{where}: not JSON ({error.msg} at character {error.pos + 1})") from error
        check_example(value, where)
        require(line not in found, f"{where}: the same example as line {found.get(line)}")
        found[line] = number
        examples.append(value)
    require(len(examples) >= fewest, f"{path.name}: {len(examples)} examples; a provider wants at least {fewest}")
    return examples


def check_example(value, where: str) -> None:
    """ConfigError unless ``value`` is one conversation that ends with the assistant's answer."""
    messages = value.get("messages") if isinstance(value, dict) else None
    require(isinstance(messages, list) and len(messages) >= 2, f"{where}: 'messages' must list two messages or more")
    for message in messages:
        require(
            isinstance(message, dict) and set(message) == {"role", "content"},
            f"{where}: a message must have 'role' and 'content' and nothing else",
        )
        role, content = message["role"], message["content"]
        require(role in ROLES, f"{where}: role = {role!r}: must be one of {', '.join(ROLES)}")
        require(isinstance(content, str) and bool(content.strip()), f"{where}: the {role}'s content must be a text")
    require(messages[-1]["role"] == "assistant", f"{where}: the last message must be the assistant's")
    require(any(m["role"] == "user" for m in messages), f"{where}: no message is the user's")


def counter() -> tuple[Callable[[str], int], str]:
    """What counts a text's tokens, and what it is: tiktoken's table of GPT-4o where it is at hand, else an estimate."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    except (ImportError, OSError, ValueError):  # no package, or no table and no network
        return lambda text: len(PIECES.findall(text)), "estimated (tiktoken's table is not at hand)"
    return lambda text: len(encoding.encode_ordinary(text)), "counted by tiktoken, o200k_base"


@dataclass(frozen=True)
class Estimate:
    """Tokens of the files, how they were counted, and dollars by the table of prices."""

    model: str
    examples: int
    epochs: int
    training_tokens: int
    test_input_tokens: int
    test_output_tokens: int
    counted: str
    training_dollars: float
    test_dollars: float
    prices_of: str

    @property
    def dollars(self) -> float:
        return self.training_dollars + self.test_dollars


def prices() -> pd.DataFrame:
    """Dollars per million tokens by model, with their date and source."""
    columns = "model training input output date source".split()
    return read_table(paths.reference() / "entp" / "fine_tuning_prices.csv", columns, unique="model", needed=columns)


def estimate(train: Path, test: Path, model: str, epochs: int = 3) -> Estimate:
    """What fine-tuning on ``train`` and answering ``test`` would cost. ConfigError for what cannot be."""
    require(epochs >= 1, f"epochs = {epochs}: must be at least 1")
    table = prices().set_index("model")
    require(
        model in table.index, f"model = {model!r}: no price in fine_tuning_prices.csv; known: {', '.join(table.index)}"
    )
    count, counted = counter()
    taught, asked = read_examples(train), read_examples(test, fewest=1)
    both = {json.dumps(e) for e in taught} & {json.dumps(e) for e in asked}
    require(not both, f"{len(both)} examples stand in {train.name} and in {test.name}: the test would be of memory")
    price = table.loc[model]

    def tokens(message: dict) -> int:
        return count(message["content"]) + 4  # the format's own tokens around every message

    longest = max(sum(map(tokens, e["messages"])) for e in taught)
    require(longest <= MOST_TOKENS, f"{train.name}: an example of {longest} tokens; at most {MOST_TOKENS} are taken")
    training = sum(tokens(m) for e in taught for m in e["messages"])
    given = sum(tokens(m) for e in asked for m in e["messages"][:-1])
    answered = sum(tokens(e["messages"][-1]) for e in asked)
    return Estimate(
        model,
        len(taught),
        epochs,
        training,
        given,
        answered,
        counted,
        training * epochs * price["training"] / 1e6,
        (given * price["input"] + answered * price["output"]) / 1e6,
        f"{price['date']}, {price['source']}",
    )
