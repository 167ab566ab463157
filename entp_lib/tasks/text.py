"""Language modelling (§7.3, appendix C.5): predict the next token in random windows of text.

    >>> Text(corpus="README.md", tokenizer="bytes", split="tail", context=8).vocab_size
    256

Letters: B batch, T tokens, S tokens of a part of the corpus.
"""

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from entp_lib.data.cache import Recipe, Tokens, open_tokens
from entp_lib.data.sources import check_checksum
from entp_lib.data.tokenizers import vocabulary_size
from entp_lib.decoding import generate
from entp_lib.tasks.base import Batch, Task, generator_for, integers, some_positions
from entp_lib.validation import Json, check_intervals, check_types, require

SAMPLES = 3
SAMPLE_TOKENS = 100
SAMPLE_TEMPERATURE = 0.8


@dataclass(frozen=True)
class Text(Task):
    """Windows of ``context`` tokens from the training part, evaluated on the validation part.

    ``corpus``: ``embedded``, ``openwebtext``, or the path of a text or Parquet file, relative
    to the working directory; with ``entp_lab``, which alone has the first two and Parquet, to
    the project's root. Its tokens are kept in ``corpora`` there (with ``entp_lab``, in
    ``results/corpora``). ``checksum``: the first 16 hexadecimal digits of its checksum, so that
    a record cannot mean two texts; "" accepts any. ``vocabulary``: the vocabulary size of the
    tokenizer ``characters``. ``split`` and ``held_out``: which documents are validation
    (``entp_lib.data.cache.Recipe``). ``prefixes``: how many positions of each training window
    are scored, drawn at random; 0 for all. ``eval_prefixes``: the same for evaluation, but
    evenly spaced and always the same.
    """

    corpus: str = "embedded"
    checksum: str = ""
    tokenizer: Literal["bytes", "characters", "gpt2"] = "bytes"
    vocabulary: int = 0
    split: Literal["hash", "tail", "nanogpt"] = "hash"
    held_out: float = 0.05
    context: int = 128
    prefixes: int = 0
    eval_prefixes: int = 0
    stationary = True
    same_prompts = False  # windows have none
    patience_score = "loss"

    def __post_init__(self):
        check_types(self)
        require(
            self.corpus,
            "corpus = '': must be 'embedded', 'openwebtext' or a path",
        )
        check_checksum(self.checksum)
        vocabulary_size(self.tokenizer, self.vocabulary)
        intervals = {
            "held_out": "(0, 1)",
            "context": "[1, inf)",
            "prefixes": f"[0, {self.context}]",
            "eval_prefixes": f"[0, {self.context}]",
        }
        check_intervals(self, intervals)

    @property
    def vocab_size(self) -> int:
        return vocabulary_size(self.tokenizer, self.vocabulary)

    @property
    def length(self) -> int:
        return self.context

    def tokens(self) -> Tokens:
        """Return the corpus in tokens, as it was when this task first asked for it.

        Raises ConfigError where a part is shorter than one window.
        """
        return self.opened

    @functools.cached_property
    def opened(self) -> Tokens:
        """The result of ``tokens``."""
        recipe = Recipe(
            self.corpus,
            self.checksum,
            self.tokenizer,
            self.vocabulary,
            self.split,
            self.held_out,
        )
        tokens = open_tokens(recipe)
        for name, tokens_S in tokens.parts.items():
            require(
                len(tokens_S) > self.context,
                f"context = {self.context}: the {name} part of corpus {self.corpus!r} has "
                f"{len(tokens_S)} tokens; it needs one more than the context",
            )
        return tokens

    def facts(self) -> Json:
        """Return checksums and sizes of the corpus and of its tokens, under ``corpus``."""
        meta = self.tokens().meta
        return {"corpus": {"checksum": meta["corpus_checksum"], **meta["parts"]}}

    def samples(self, model: Any, generator: Generator) -> Json:
        """Return, under ``samples``, windows of validation text and the model's continuations.

        Each token is sampled at ``SAMPLE_TEMPERATURE``, given the last ``context`` tokens.
        """
        tokens_BT = self.batch(generator, SAMPLES, evaluating=True).inputs_BT
        for _ in range(SAMPLE_TOKENS):
            window_BT = tokens_BT[:, -self.context :]
            drawn_BT = generate(
                model, window_BT, 1, temperature=SAMPLE_TEMPERATURE, generator=generator
            )
            tokens_BT = torch.cat([tokens_BT, drawn_BT[:, -1:]], 1)
        decode = self.tokens().tokenizer().decode
        n = self.context
        return {
            "samples": [
                {"prompt": decode(row[:n]), "continuation": decode(row[n:])}
                for row in tokens_BT.tolist()
            ]
        }

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        tokens_S = self.tokens().parts["validation" if evaluating else "train"]
        starts_B = integers(generator, len(tokens_S) - self.context, size)
        places_BT = starts_B.cpu().numpy()[:, None] + np.arange(self.context + 1)
        text_BT = torch.from_numpy(tokens_S[places_BT].astype(np.int64)).to(
            generator.device
        )
        return Batch.of_text(text_BT, self.scored(generator, size, evaluating))

    def scored_sample(self) -> Tensor:
        # the corpus is not needed
        return self.scored(generator_for("cpu", "wanted"), 256, evaluating=False)

    def scored(self, generator: Generator, size: int, evaluating: bool) -> Tensor:
        """Return the scored positions, (B, T)."""
        count = self.eval_prefixes if evaluating else self.prefixes
        device = generator.device
        scored_BT = torch.ones(size, self.context, dtype=torch.bool, device=device)
        if count and not evaluating:
            return some_positions(generator, scored_BT, count)
        if count:
            scored_BT[:] = False
            ends = torch.arange(1, count + 1, device=device) * self.context // count
            scored_BT[:, ends - 1] = True
        return scored_BT
