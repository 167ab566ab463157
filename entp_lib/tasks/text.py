"""Language modelling (§7.3, appendix C.5): the next token of running text, in windows at random places.

    >>> Text(corpus="README.md", tokenizer="bytes", split="tail", context=8).vocab_size
    256

Letters: B batch, T tokens, S tokens of a part of the corpus.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from entp_lib.data.cache import Recipe, Tokens, open_tokens
from entp_lib.data.sources import check_checksum
from entp_lib.data.tokenizers import vocabulary_size
from entp_lib.decoding import generate
from entp_lib.tasks.base import Batch, Task, generator_for, some_positions
from entp_lib.validation import check_intervals, check_types, require

SAMPLES, SAMPLE_TOKENS, SAMPLE_TEMPERATURE = 3, 100, 0.8


@dataclass(frozen=True)
class Text(Task):
    """Windows of ``context`` tokens from anywhere in the training part, evaluated on the validation part.

    ``corpus``: ``embedded``, ``openwebtext``, or a text or Parquet file, its path from the project's root.
    ``checksum``: its first 16 hexadecimal digits, so that a record cannot mean two texts; "" takes what is there.
    ``vocabulary``: the size that ``characters`` and ``bpe`` need. ``split`` and ``held_out``: which documents are
    validation (``entp_lib.data.cache.Recipe``). ``prefixes``: how many positions of a training window are scored,
    drawn anew; 0 for all. ``eval_prefixes``: the same for evaluation, evenly spaced and always the same.
    """

    corpus: str = "embedded"
    checksum: str = ""
    tokenizer: Literal["bytes", "characters", "gpt2", "bpe"] = "bytes"
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
        require(self.corpus != "", "corpus = '': must be 'embedded', 'openwebtext' or a path")
        check_checksum(self.checksum)
        vocabulary_size(self.tokenizer, self.vocabulary)
        counts = f"[0, {self.context}]"
        intervals = {"held_out": "(0, 1)", "context": "[1, inf)", "prefixes": counts, "eval_prefixes": counts}
        check_intervals(self, intervals)

    @property
    def vocab_size(self) -> int:
        return vocabulary_size(self.tokenizer, self.vocabulary)

    @property
    def length(self) -> int:
        return self.context

    def tokens(self) -> Tokens:
        """The corpus in tokens. Raises ConfigError where a part is shorter than one window and its last target."""
        recipe = Recipe(self.corpus, self.checksum, self.tokenizer, self.vocabulary, self.split, self.held_out)
        found = open_tokens(recipe)
        for name in ("train", "validation"):
            length = len(found.part(name))
            right = f"the {name} part of corpus {self.corpus!r} has {length} tokens; it needs one more than the context"
            require(length > self.context, f"context = {self.context}: {right}")
        return found

    def facts(self) -> dict[str, Any]:
        """Checksums and sizes of the corpus and of its tokens, under ``corpus``."""
        meta = self.tokens().meta
        return {"corpus": {"checksum": meta["corpus_checksum"], **meta["parts"]}}

    def samples(self, model: nn.Module, generator: torch.Generator) -> dict[str, Any]:
        """Under ``samples``: windows of validation text as prompts, and how the model goes on, one token at a time.

        Each token is drawn at ``SAMPLE_TEMPERATURE`` from what the last ``context`` tokens predict.
        """
        prompts_BT = tokens_BT = self.batch(generator, SAMPLES, evaluating=True).inputs_BT
        for _ in range(SAMPLE_TOKENS):
            window_BT = tokens_BT[:, -self.context :]
            drawn_BT = generate(model, window_BT, 1, temperature=SAMPLE_TEMPERATURE, generator=generator)
            tokens_BT = torch.cat([tokens_BT, drawn_BT[:, -1:]], 1)
        decode = self.tokens().tokenizer().decode
        pairs = zip(prompts_BT.tolist(), tokens_BT[:, self.context :].tolist(), strict=True)
        return {"samples": [{"prompt": decode(prompt), "continuation": decode(rest)} for prompt, rest in pairs]}

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        tokens_S = self.tokens().part("validation" if evaluating else "train")
        device = generator.device
        starts_B = torch.randint(len(tokens_S) - self.context, (size,), generator=generator, device=device)
        text_BT = tokens_S[starts_B.cpu().numpy()[:, None] + np.arange(self.context + 1)]
        text_BT = torch.from_numpy(text_BT.astype(np.int64)).to(device)
        return Batch.of_text(text_BT, self.scored(generator, size, evaluating))

    def scored_sample(self) -> Tensor:
        return self.scored(generator_for("cpu", "wanted"), 256, evaluating=False)  # asks for no corpus

    def scored(self, generator: torch.Generator, size: int, evaluating: bool) -> Tensor:
        """Scored positions, (B, T)."""
        count, device = self.eval_prefixes if evaluating else self.prefixes, generator.device
        scored_BT = torch.ones(size, self.context, dtype=torch.bool, device=device)
        if count and not evaluating:
            return some_positions(generator, scored_BT, count)
        if count:
            scored_BT[:] = False
            scored_BT[:, torch.arange(1, count + 1, device=device) * self.context // count - 1] = True
        return scored_BT
