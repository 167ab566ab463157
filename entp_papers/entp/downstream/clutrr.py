"""CLUTRR (§7.3, Table 4): how two people are related, from a story about their family.

    Erik packed a lunch for his daughter Emma. Jonas borrowed a bicycle from Emma, his sister. Jonas
    is Erik's -> son

The authors' protocol, from their code: 16 of the 21 relations, those that are one token; the prompt
as above, dropped if it has more than 128 tokens; the answer is the token after it, chosen from the
whole vocabulary; the first ``n_train`` rows of the training file; the score is the best of many
evaluations on the validation set. The ``fair`` protocol trains on rows drawn by a seed and tests
the checkpoint that is best on validation. A record has the scores of both.

Rows are padded on the right, where no architecture sees the padding; the authors pad on the left,
which shifts positions.

Letters: B batch, T tokens, P examples of a part.
"""

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from entp_lab.configs import Json, canonical_json
from entp_lab.tables import read_table
from entp_lib.data.folders import FOLDERS
from entp_lib.data.sources import import_optional
from entp_lib.data.tokenizers import Tokenizer, restore
from entp_lib.tasks.base import PARTS, Batch, FixedData, generator_for
from entp_lib.tasks.text import Text
from entp_lib.validation import ConfigError, check_intervals, check_types, from_dict, require
from entp_papers.entp.downstream import kinship

# Relations that are one token of GPT-2; in-laws take several.
RELATIONS = tuple(label for label in kinship.LABELS if "-in-law" not in label)
COLUMNS = ("story", "query", "target_text", "task_name")
HUB = "CLUTRR/v1"
HUB_CONFIG = "gen_train234_test2to10"
HUB_REVISION = "refs/convert/parquet"
# The hub's reference moves when the data are converted again, so what was read is compared with the
# published data: the number of examples of each part, and the checksums of the parts that the
# authors' reported numbers rest on.
HUB_EXAMPLES = {"train": 12_064, "validation": 3019, "test": 1048}
HUB_CHECKSUMS = {
    "validation": "558b3ea4da01c47cca9f4ac6e51a416a7ecd315eb2671190332a7f9c16e83aeb",
    "test": "e95851a26d1f2149ebca7a38ae192a04899fdaeaa2de028addacec73692d1fb5",
}
EMBEDDED = {"validation": 960, "test": 1728}  # stories, whole rounds over answers and lengths
QUERY = re.compile(r"""\((['"])(.+?)\1, (['"])(.+?)\3\)""")  # a pair of names as Python writes it
# The search for embedded stories ends if less than this share of them is short enough.
FITTING = 0.2


class Example(NamedTuple):
    """A prompt, the relation that answers it, and the number of relations in its chain."""

    prompt: str
    answer: str
    chain: int


@dataclass(frozen=True)
class Clutrr(FixedData):
    """Prompts of one part, scored at their last token: ``train`` (evaluated on validation) or
    ``test``.

    ``source``: ``embedded`` (this project's own stories), ``hub`` (the published data), or the path
    of CSV files from the project's root, with ``{part}`` for train, validation and test. ``text``:
    parameters of the text task whose tokenizer is used; unless it is GPT-2's, the 21 answers are
    added to it as tokens. Chains have up to ``longest_train`` relations, in the test set up to
    ``longest_test``. ``brief``: embedded stories in few words, in the order of the chain.
    """

    source: str = "embedded"
    protocol: Literal["authors", "fair"] = "fair"
    text: Json = field(default_factory=dict)
    n_train: int = 1000
    subset_seed: int = 0
    longest_train: int = 4
    longest_test: int = 10
    max_tokens: int = 512
    brief: bool = False
    part: Literal["train", "test"] = "train"
    patience_score = "loss"
    stationary = True  # so that the baseline is the most frequent answer, wherever prompts end

    def __post_init__(self):
        check_types(self)
        require(
            self.source in ("embedded", "hub") or "{part}" in self.source,
            f"source = {self.source!r}: must be 'embedded', 'hub', or a path with {{part}} for "
            "train, validation, test",
        )
        intervals = {
            "n_train": "[1, inf)",
            "max_tokens": "[1, inf)",
            "subset_seed": "[0, inf)",
            "longest_train": "[2, 10]",
            "longest_test": "[2, 10]",
        }
        check_intervals(self, intervals)
        require(
            not self.brief or self.source == "embedded",
            f"brief = True: source {self.source!r} has its own stories; only those of 'embedded' "
            "can be brief",
        )
        self.base()

    def base(self) -> Text:
        """Return the text task whose tokenizer is used."""
        return from_dict(Text, self.text, "text.")

    @property
    def added_tokens(self) -> int:
        return 0 if self.base().tokenizer == "gpt2" else len(kinship.LABELS)

    @property
    def vocab_size(self) -> int:
        return self.base().vocab_size + self.added_tokens

    @property
    def length(self) -> int:
        return self.max_tokens

    def facts(self) -> Json:
        """Return each part's checksum and size, and how many stories were left out, by reason."""
        return {"stories": {part: self.encoded(part).facts for part in PARTS}}

    def encoded(self, part: str) -> "Encoded":
        return encoded(canonical_json(asdict(replace(self, part="train"))), part)

    def examples(self, part: str) -> Batch:
        return self.encoded(part).examples

    def rows_of(self, part: str, chosen_B: Tensor) -> Batch:
        """Return the chosen examples, padded to the longest of them."""
        found = super().rows_of(part, chosen_B)
        longest = int(found.prompt_lengths_B.max())
        return found.map(lambda x: x[:, :longest] if x.dim() == 2 else x)

    def scored_sample(self) -> Tensor:
        """Return a sample of scored positions, from a few stories as for any task.

        For published data it is the longest prompt that fits, so that no data are loaded.
        """
        if self.source == "embedded":
            return replace(self, n_train=8).batch(generator_for("cpu", "wanted"), 8).scored_BT
        return torch.arange(self.max_tokens)[None] == self.max_tokens - 1

    def groups(self, batch: Batch) -> list[str]:
        """Return the length of each story's chain, as in "chain of 4"."""
        chains = self.encoded(self.part_of(evaluating=True)).chains
        rows = zip(batch.inputs_BT.tolist(), batch.prompt_lengths_B.tolist(), strict=True)
        return [f"chain of {chains[tuple(row[:end])]}" for row, end in rows]


class Encoded(NamedTuple):
    """A part in tokens: right-padded prompts, each prompt's chain length, and facts on the part."""

    examples: Batch
    chains: dict[tuple[int, ...], int]
    facts: Json


@functools.lru_cache(maxsize=8)
def encoded(parameters: str, part: str) -> Encoded:
    """Encode a part of the task with these parameters (JSON) in tokens.

    ConfigError if no or too few usable examples are left.
    """
    task = Clutrr(**json.loads(parameters))
    tokenizer = tokenizer_of(task.base())
    answers = {label: tokenizer.vocab_size + kinship.LABELS.index(label) for label in RELATIONS}
    if not task.added_tokens:  # GPT-2's vocabulary has each, after a space
        answers = {label: int(tokenizer.encode([f" {label}"], False)[0]) for label in RELATIONS}
    longest = task.longest_test if part == "test" else task.longest_train
    asked = task.n_train if part == "train" else None
    kept = []
    left_out = dict.fromkeys(("other relations", "longer chains", "too many tokens"), 0)
    for example in candidates(task, part):
        ids = tokenizer.encode([example.prompt], False).tolist()
        if example.answer not in answers:
            left_out["other relations"] += 1
        elif example.chain > longest:
            left_out["longer chains"] += 1
        elif len(ids) > task.max_tokens:
            left_out["too many tokens"] += 1
        else:
            kept.append((ids, example))
        if len(kept) == asked:
            break
    limit = f"n_train = {asked}" if asked else f"max_tokens = {task.max_tokens}"
    require(
        len(kept) >= (asked or 1),
        f"{limit}: the {part} part of source {task.source!r} has {len(kept)} usable examples; "
        f"left out: {left_out}",
    )
    lengths_P = torch.tensor([len(ids) for ids, _ in kept])
    rows = [torch.tensor(ids, dtype=torch.int32) for ids, _ in kept]
    ids_PT = pad_sequence(rows, batch_first=True)
    answers_P = torch.tensor([answers[example.answer] for _, example in kept], dtype=torch.int32)
    scored_PT = torch.arange(ids_PT.shape[1]) == lengths_P[:, None] - 1
    facts = {
        "checksum": checksum([example for _, example in kept])[:16],
        "examples": len(kept),
        "left out": left_out,
    }
    examples = Batch(ids_PT, torch.where(scored_PT, answers_P[:, None], 0), scored_PT, lengths_P)
    return Encoded(examples, {tuple(ids): example.chain for ids, example in kept}, facts)


def checksum(examples: Sequence[Example]) -> str:
    """Return the SHA-256 of examples in their order."""
    text = canonical_json([example._asdict() for example in examples])
    return hashlib.sha256(text.encode()).hexdigest()


def tokenizer_of(text: Text) -> Tokenizer:
    """Return a text task's tokenizer; those for bytes and GPT-2 need no corpus."""
    if text.tokenizer in ("bytes", "gpt2"):
        return restore(text.tokenizer, text.vocab_size, "")
    return text.tokens().tokenizer()


def candidates(task: Clutrr, part: str) -> Iterator[Example]:
    """Yield a part's examples in the order of use, including any that are left out later."""
    if task.source != "embedded":
        if task.source == "hub":
            examples = published(part)
        else:
            path = FOLDERS.root() / task.source.replace("{part}", part)
            require(
                path.is_file(),
                f"source = {task.source!r}: there is no {path}; source = 'embedded' needs no files",
            )
            examples = from_frame(read_table(path, COLUMNS), str(path))
        order = range(len(examples))
        if part == "train" and task.protocol == "fair":
            order = np.random.default_rng(task.subset_seed).permutation(len(examples))
        yield from (examples[i] for i in order)
        return
    longest = task.longest_train, task.longest_test
    if part == "train":
        avoid = [s.text for name in EMBEDDED for s in held_out(name, *longest, task.brief)]
        seed = task.subset_seed if task.protocol == "fair" else 0
        edges = range(2, task.longest_train + 1)
        found = kinship.stories(10 + seed, edges, RELATIONS, task.brief, avoid)
        found = itertools.islice(found, round(task.n_train / FITTING))
    else:
        found = held_out(part, *longest, task.brief)
    for story in found:
        yield Example(
            prompt(story.text, story.names[0], story.names[-1]), story.answer, len(story.relations)
        )


@functools.lru_cache(maxsize=4)
def held_out(part: str, longest_train: int, longest_test: int, brief: bool) -> list[kinship.Story]:
    """Return the embedded stories of validation or test, the same for every training set."""
    avoid = []
    longest = longest_test
    if part != "test":
        avoid = [s.text for s in held_out("test", longest_train, longest_test, brief)]
        longest = longest_train
    edges = range(2, longest + 1)
    found = kinship.stories(PARTS.index(part), edges, RELATIONS, brief, avoid)
    return list(itertools.islice(found, EMBEDDED[part]))


def prompt(story: str, first: str, second: str) -> str:
    """Return the authors' prompt: the story without brackets, then the sentence to complete."""
    return f"{story.replace('[', '').replace(']', '')} {second} is {first}'s"


def from_hub(name: str, config: str, revision: str, split: str) -> Any:
    """Load a part of a data set from the Hugging Face hub; ConfigError if it cannot be loaded."""
    what = "source = 'hub' (source = 'embedded' needs neither library nor network)"
    datasets = import_optional("datasets", what)
    try:
        return datasets.load_dataset(name, config, revision=revision, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        why = str(error).strip().split("\n")[0]
        raise ConfigError(f"{what}: {name} cannot be loaded ({why})") from error


def published(part: str) -> list[Example]:
    """Read a part of the published data; ConfigError if the hub's data differ from it.

    The data set's loading script no longer runs, but the hub keeps its output as Parquet.
    """
    rows = from_hub(HUB, HUB_CONFIG, HUB_REVISION, part)
    found = from_frame(rows.to_pandas(), f"{HUB}, {part}")
    known = checksum(found)
    require(
        len(found) == HUB_EXAMPLES[part] and HUB_CHECKSUMS.get(part, known) == known,
        f"{HUB}, {part}: the hub's {len(found)} examples are not the {HUB_EXAMPLES[part]} "
        "published ones, with which the paper's numbers compare; pass files of your own as "
        "source = 'FOLDER/{part}.csv'",
    )
    return found


def from_frame(table: pd.DataFrame, where: str) -> list[Example]:
    """Make examples from the published columns; ConfigError names a line that cannot be read."""
    found = []
    rows = table[list(COLUMNS)].itertuples(index=False)
    for line, row in enumerate(rows, 2):  # line 1 has the column names
        require(
            row.target_text in kinship.LABELS,
            f"{where}, line {line}: target_text {row.target_text!r} must be one of "
            f"{', '.join(kinship.LABELS)}",
        )
        pair = QUERY.fullmatch(str(row.query))
        chain = re.fullmatch(r"task_\d+\.(\d+)", str(row.task_name))
        require(
            isinstance(row.story, str) and pair and chain,
            f"{where}, line {line}: story {row.story!r:.80}, query {row.query!r:.80} and task_name "
            f"{row.task_name!r:.80} must be a text, a pair of names like \"('Ann', 'Bob')\", and a "
            "chain's length like 'task_1.3'",
        )
        found.append(Example(prompt(row.story, pair[2], pair[4]), row.target_text, int(chain[1])))
    return found
