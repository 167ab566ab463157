"""A task from your own data: sequences, and which of their tokens to predict.

    >>> sums = [f"{a} + {b} = {a + b}".split() for a in range(9) for b in range(9)]
    >>> task = Table.from_arrays(sums, scored=[[False] * 4 + [True]] * len(sums))
    >>> task.vocab_size, task.length
    (19, 4)

Letters: P examples, G groups of equal inputs, T tokens, d numbers of an input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.tasks.base import PARTS, Batch, FixedData
from entp_lib.validation import Json, one_of, require

MAX_SYMBOLS = 2**20  # a model has an embedding for every number up to the largest
MAX_WORDS_IN_RECORD = 100
Rows = Sequence[Sequence[Any]]  # a list of lists, or an array


@dataclass(frozen=True, eq=False)
class Table(FixedData):
    """Sequences in memory, trained on one part of them and evaluated on the others.

    ``words``: the word of each symbol, empty for numbers. ``continues``: whether the targets are
    the next tokens, so that a model can continue a sequence.
    """

    batches: dict[str, Batch]  # all examples of each part
    vocab_size: int
    words: tuple[str, ...] = ()
    continues: bool = True
    part: Literal["train", "test", "seen"] = "train"

    @classmethod
    def from_arrays(
        cls,
        sequences: Rows,
        scored: Rows | None = None,
        targets: Rows | None = None,
        part: Sequence[str] | None = None,
        *,
        held_out: float = 0.1,
        seed: int = 0,
    ) -> "Table":
        """Return a task on rows of whole numbers or of words, of any lengths.

        ``scored`` has a truth value per token: whether to predict it, by default all but the first.
        With ``targets``, rows like those of ``sequences``, a scored position predicts its target in
        place of the next token; by default all are scored. A string is a row of characters. Real
        numbers (P, T, d) need real targets (P, T) and are scored by squared error.

        ``part`` names train, validation or test for each row. Without it, validation and test each
        get the share ``held_out`` of the different inputs, drawn with ``seed``. Inputs that are
        equal up to the last token that a prediction sees always go to the same part. ConfigError
        names the row at fault.
        """
        require(len(sequences) > 0, "there are no sequences")
        require(
            0 < held_out < 0.5, f"held_out = {held_out}: must be above 0 and below 0.5"
        )
        rows = [*sequences, *([] if targets is None else targets)]
        require(
            all(hasattr(row, "__len__") and len(row) for row in rows),
            "a sequence, or its targets, is empty or a single value",
        )
        if np.ndim(sequences[0][0]) == 1:
            examples = real_examples(sequences, scored, targets)
            symbols = 0
            words: tuple[str, ...] = ()
        else:
            ids, words = as_ids(rows)
            examples = symbol_examples(ids, len(sequences), scored, targets)
            symbols = len(words) or 1 + max(map(max, ids))
            require(
                symbols > 1, "a single symbol leaves nothing to predict; two are needed"
            )
        flags = [] if scored is None else scored
        require(
            all(np.isin(row, (0, 1)).all() for row in flags),
            "scored must be True or False for each token",
        )
        check_each(examples.scored_BT.any(1), "has no scored position")
        part_P = (
            drawn_parts(examples, held_out, seed) if part is None else np.asarray(part)
        )
        require(
            part_P.shape == (len(sequences),),
            f"part has {part_P.size} names, not one a sequence",
        )
        for name in np.unique(part_P):
            one_of("part", name, PARTS)
        batches = {
            name: examples.rows(torch.from_numpy(part_P == name)) for name in PARTS
        }
        return cls(batches, symbols, words, targets is None)

    @property
    def continuous(self) -> bool:
        return self.batches["train"].inputs_BT.dim() == 3

    @property
    def input_dim(self) -> int | None:
        return self.batches["train"].inputs_BT.shape[2] if self.continuous else None

    @property
    def length(self) -> int:
        return self.batches["train"].inputs_BT.shape[1]

    def examples(self, part: str) -> Batch:
        require(
            len(self.batches[part].inputs_BT),
            f"no example is left for {part}; it takes three different inputs, or a sequence "
            f"whose part is {part!r}",
        )
        return self.batches[part]

    def constants_T(self) -> Tensor:
        """Return the mean target of each position in training, (T,)."""
        train = self.examples("train")
        sums_T = (train.targets_BT * train.scored_BT).sum(0)
        return sums_T / train.scored_BT.sum(0).clamp_min(1)

    def facts(self) -> Json:
        """Return, under ``data``, how many examples each part has, and the words if few."""
        about: Json = {part: self.count(part) for part in PARTS}
        if 0 < len(self.words) <= MAX_WORDS_IN_RECORD:
            about["words"] = list(self.words)
        return {"data": about}


def symbol_examples(
    ids: list[list[int]], count: int, scored: Rows | None, targets: Rows | None
) -> Batch:
    """Return examples of symbols; the first ``count`` rows of ids are inputs, the rest targets."""
    tokens_PT = padded(ids[:count])
    lengths_P = torch.tensor([len(row) for row in ids[:count]])
    if scored is None:
        scored_PT = torch.arange(tokens_PT.shape[1]) < lengths_P[:, None]
        scored_PT[:, : 1 if targets is None else 0] = False
    else:
        check_lengths("scored", scored, lengths_P)
        scored_PT = padded(scored).bool()
    if targets is not None:
        check_lengths("targets", ids[count:], lengths_P)
        # a prompt ends with the first prediction
        prompts_P = scored_PT.int().argmax(1) + 1
        return Batch(tokens_PT, padded(ids[count:]), scored_PT, prompts_P)
    check_each(
        ~scored_PT[:, 0], "its first token is scored, before which nothing stands"
    )
    return Batch.of_text(tokens_PT, scored_PT[:, 1:], scored_PT.int().argmax(1))


def real_examples(sequences: Rows, scored: Rows | None, targets: Rows | None) -> Batch:
    """Return examples of real numbers (P, T, d), whose targets are real, (P, T)."""
    require(
        targets is not None,
        "sequences of real numbers need real targets, one a position",
    )
    shapes = [np.shape(row) for row in sequences]
    check_each(
        torch.tensor([shape == shapes[0] for shape in shapes]),
        f"has not the shape {shapes[0]} of the first; real numbers need one for all",
    )
    inputs_PTd = torch.from_numpy(np.asarray(sequences, dtype=np.float32))
    targets_PT = torch.from_numpy(np.asarray(targets, dtype=np.float32))
    shape = inputs_PTd.shape[:2]
    flags = np.ones(shape) if scored is None else scored
    scored_PT = torch.from_numpy(np.asarray(flags, dtype=bool))
    for name, x_PT in (("targets", targets_PT), ("scored", scored_PT)):
        require(
            x_PT.shape == shape,
            f"{name} has shape {tuple(x_PT.shape)}, must be {tuple(shape)}",
        )
    check_each(
        inputs_PTd.isfinite().flatten(1).all(1), "has an input that is not finite"
    )
    check_each(
        (targets_PT.isfinite() | ~scored_PT).all(1),
        "has a scored target that is not finite",
    )
    prompts_P = scored_PT.int().argmax(1) + 1
    return Batch(inputs_PTd, targets_PT.where(scored_PT, 0), scored_PT, prompts_P)


def drawn_parts(examples: Batch, held_out: float, seed: int) -> np.ndarray:
    """Draw the part of each example, (P,); shares count different inputs, not their repetitions."""
    # number of tokens up to the last scored one
    seen_P = examples.scored_BT.cumsum(1).argmax(1) + 1
    unseen_PT = torch.arange(examples.scored_BT.shape[1]) >= seen_P[:, None]
    inputs = examples.inputs_BT.clone()
    inputs[unseen_PT] = 0
    seen = torch.column_stack([inputs.flatten(1), seen_P])  # so that 0 and 0 0 differ
    group_P = np.unique(seen.numpy(), axis=0, return_inverse=True)[1].reshape(-1)
    groups = int(group_P.max()) + 1
    order_G = np.random.default_rng(seed).permutation(groups)
    each = max(1, min(round(held_out * groups), (groups - 1) // 2))
    part_G = np.full(groups, "train", dtype="U10")
    part_G[order_G[:each]] = "validation"
    part_G[order_G[each : 2 * each]] = "test"
    return part_G[group_P]


def as_ids(rows: Sequence[Sequence[Any]]) -> tuple[list[list[int]], tuple[str, ...]]:
    """Return tokens as ids, and the words of the ids; whole numbers are their own ids."""
    lists = [row.tolist() if hasattr(row, "tolist") else list(row) for row in rows]
    symbols = {token for row in lists for token in row}
    if all(isinstance(symbol, str) for symbol in symbols):
        words = tuple(sorted(symbols))
        ids = {word: i for i, word in enumerate(words)}
        return [[ids[token] for token in row] for row in lists], words
    for symbol in symbols:
        is_whole = isinstance(symbol, (int, np.integer)) and type(symbol) is not bool
        require(
            is_whole and 0 <= symbol < MAX_SYMBOLS,
            f"the symbol {symbol!r:.40}: must be words, or whole numbers below {MAX_SYMBOLS}",
        )
    return lists, ()


def padded(rows: Rows) -> Tensor:
    """Return rows of whole numbers as a tensor (P, T), padded with 0."""
    tensors = [torch.as_tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def check_lengths(name: str, rows: Rows, lengths_P: Tensor) -> None:
    """Raise ConfigError unless there is an entry for every token of every sequence."""
    require(
        len(rows) == len(lengths_P),
        f"{name} has {len(rows)} rows, not {len(lengths_P)}",
    )
    given_P = torch.tensor([np.size(row) for row in rows])
    check_each(given_P == lengths_P, f"{name} needs an entry for each of its tokens")


def check_each(right_P: Tensor, fault: str) -> None:
    """Raise ConfigError that names the first sequence that is not right."""
    require(right_P.all(), f"sequence {int(right_P.int().argmin()) + 1}: {fault}")
