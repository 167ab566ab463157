"""Tokenizers with one interface: bytes, characters and GPT-2's byte pairs.

``state`` is what a tokenizer learned, the characters of the corpus, and is stored with the tokens;
``end`` is the token after a document.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from entp_lib.data.sources import DOCUMENT_END, Source, import_optional
from entp_lib.validation import ConfigError, require

GPT2_USED = 50_257
GPT2_PADDED = 50_304  # nanoGPT rounds the vocabulary up to a multiple of 64


class Tokenizer:
    """Text to ids and back.

    ``decode`` skips unused ids, since a vocabulary may be larger than the set of tokens in use.
    """

    vocab_size: int
    end: int
    state = ""

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        """Return the tokens of texts one after the other, each followed by ``end`` if ``ended``."""
        raise NotImplementedError

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens."""
        raise NotImplementedError


class Bytes(Tokenizer):
    """UTF-8 bytes; a form feed ends a document."""

    vocab_size = 256
    end = ord(DOCUMENT_END)

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        text = "".join(text + DOCUMENT_END * ended for text in texts)
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(map(int, tokens)).decode(errors="replace")


class Characters(Tokenizer):
    """The characters of the corpus in the order of their code points, which ``state`` lists."""

    def __init__(self, vocab_size: int, state: str):
        require(
            len(state) <= vocab_size,
            f"vocabulary = {vocab_size}: the corpus has {len(state)} different characters; it must "
            "be at least that",
        )
        self.vocab_size = vocab_size
        self.state = state
        self.points = np.array([ord(c) for c in state], dtype=np.uint32)
        self.end = state.find(DOCUMENT_END)

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        text = "".join(text + DOCUMENT_END * ended for text in texts)
        points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        strangers = points[~np.isin(points, self.points)]
        if len(strangers):
            raise ConfigError(
                f"{chr(strangers[0])!r}: not among the {len(self.state)} characters of the corpus"
            )
        return self.points.searchsorted(points)

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.state[int(t)] for t in tokens if 0 <= t < len(self.state))


class GPT2(Tokenizer):
    """GPT-2's own encoding, from tiktoken, which downloads and caches it."""

    vocab_size = GPT2_PADDED  # ids above 50,256 never occur
    end = GPT2_USED - 1

    def __init__(self):
        tiktoken = import_optional("tiktoken", "tokenizer = 'gpt2'")
        try:
            self.encoding = tiktoken.get_encoding("gpt2")
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            raise ConfigError(
                "tokenizer = 'gpt2' cannot be downloaded; without a network use 'bytes'"
            ) from error

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        tail = [self.end] * ended
        lists = self.encoding.encode_ordinary_batch(list(texts))
        ids = [token for tokens in lists for token in (*tokens, *tail)]
        return np.array(ids, dtype=np.int32)

    def decode(self, tokens: Iterable[int]) -> str:
        return self.encoding.decode([int(t) for t in tokens if t < GPT2_USED])


FIXED: dict[str, type[Tokenizer]] = {"bytes": Bytes, "gpt2": GPT2}


def vocabulary_size(name: str, vocabulary: int) -> int:
    """Return a tokenizer's vocabulary size; only ``characters`` takes it from ``vocabulary``."""
    if name == "characters":
        require(
            1 <= vocabulary <= 2**31,
            f"vocabulary = {vocabulary}: tokenizer 'characters' needs a size, of at least 1",
        )
        return vocabulary
    fixed = FIXED[name].vocab_size
    require(
        vocabulary in (0, fixed),
        f"vocabulary = {vocabulary}: tokenizer {name!r} has {fixed} tokens; leave it at 0",
    )
    return fixed


def learned_state(name: str, source: Source) -> str:
    """Return the state a tokenizer learns from a source: its sorted characters, or nothing."""
    if name != "characters":
        return ""
    found = set(DOCUMENT_END if source.whole else "")
    for text in source.documents():
        found.update(text)
    return "".join(sorted(found))


def restore(name: str, vocabulary: int, state: str) -> Tokenizer:
    """Return the named tokenizer with its learned ``state``."""
    return Characters(vocabulary, state) if name == "characters" else FIXED[name]()
