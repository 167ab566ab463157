"""Tokenizers with one interface: bytes, characters, GPT-2's byte pairs, and learned byte pairs.

``state`` holds what was learned, as text, so that tokens on disk bring it along; ``end`` is the
token after a document.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from entp_lib.data.sources import DOCUMENT_END, END_WORDS, Source, library
from entp_lib.validation import ConfigError, require

GPT2_USED = 50_257
GPT2_PADDED = 50_304  # nanoGPT rounds the vocabulary up to a multiple of 64


class Tokenizer:
    """Text to ids and back.

    A subclass defines ``decode``, and ``encode`` or ``lists``, the ids of each text. ``decode``
    leaves out ids that stand for nothing: a vocabulary may be larger than what is used.
    """

    vocab_size: int
    end: int
    state = ""

    def lists(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        """Return the tokens of texts one after the other, each followed by ``end`` if ``ended``."""
        tail = [self.end] if ended else []
        ids = [
            np.array([*tokens, *tail], dtype=np.int32) for tokens in self.lists(list(texts))
        ]
        return np.concatenate(ids or [np.empty(0, np.int32)])

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
        tokens = self.points.searchsorted(points)
        known = self.points[np.minimum(tokens, len(self.points) - 1)] == points
        if not known.all():
            stranger = chr(points[~known][0])
            count = len(self.state)
            raise ConfigError(
                f"{stranger!r}: not among the {count} characters of the corpus"
            )
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.state[int(t)] for t in tokens if 0 <= t < len(self.state))


class GPT2(Tokenizer):
    """GPT-2's own encoding, from tiktoken, which downloads and keeps it."""

    vocab_size = GPT2_PADDED  # ids above 50,256 never occur
    end = GPT2_USED - 1

    def __init__(self):
        tiktoken = library("tiktoken", "tokenizer = 'gpt2'")
        try:
            self.encoding = tiktoken.get_encoding("gpt2")
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            raise ConfigError(
                "tokenizer = 'gpt2' cannot be downloaded; without a network use 'bytes', or 'bpe', "
                "which learns from the corpus"
            ) from error

    def lists(self, texts: list[str]) -> list[list[int]]:
        return self.encoding.encode_ordinary_batch(texts)

    def decode(self, tokens: Iterable[int]) -> str:
        return self.encoding.decode([int(t) for t in tokens if t < GPT2_USED])


class BPE(Tokenizer):
    """Byte pairs learned from the training part, by the ``tokenizers`` library."""

    end = 0

    def __init__(self, vocab_size: int, state: str):
        self.vocab_size = vocab_size
        self.state = state
        self.tokenizer = library("tokenizers", "tokenizer = 'bpe'").Tokenizer.from_str(
            state
        )
        # as ordinary text, wherever a document spells them out
        self.tokenizer.encode_special_tokens = True

    def lists(self, texts: list[str]) -> list[list[int]]:
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def decode(self, tokens: Iterable[int]) -> str:
        return self.tokenizer.decode([int(t) for t in tokens], skip_special_tokens=False)


def vocabulary_size(name: str, vocabulary: int) -> int:
    """Return the size of a tokenizer's vocabulary; only characters and bpe need it said."""
    wrong = f"vocabulary = {vocabulary}: tokenizer {name!r}"
    if name in ("bytes", "gpt2"):
        fixed = Bytes.vocab_size if name == "bytes" else GPT2.vocab_size
        require(vocabulary in (0, fixed), f"{wrong} has {fixed} tokens; leave it at 0")
        return fixed
    least = {"characters": 1, "bpe": 257}[name]  # every byte and the end of a document
    require(least <= vocabulary <= 2**31, f"{wrong} needs a size, of at least {least}")
    return vocabulary


def learn(name: str, vocabulary: int, training: Iterator[str], source: Source) -> Tokenizer:
    """Return the named tokenizer: byte pairs of ``training``, characters of all of ``source``."""
    if name == "characters":
        return Characters(vocabulary, "".join(sorted(characters_of(source))))
    return restore(
        name, vocabulary, learned_pairs(vocabulary, training) if name == "bpe" else ""
    )


def characters_of(source: Source) -> set[str]:
    """Return the characters that a source's tokens need, the end of a document among them."""
    found = set(DOCUMENT_END if source.whole else "")
    for text in source.documents():
        found.update(text)
    return found


def learned_pairs(vocabulary: int, texts: Iterator[str]) -> str:
    """Return byte pairs of a text, most frequent first, as JSON; spaces go with the next word."""
    tokenizers = library("tokenizers", "tokenizer = 'bpe'")
    level = tokenizers.pre_tokenizers.ByteLevel
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = level(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        special_tokens=[END_WORDS],
        initial_alphabet=sorted(level.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()


def restore(name: str, vocabulary: int, state: str) -> Tokenizer:
    """Return the named tokenizer as its ``state`` left it."""
    match name:
        case "bytes":
            return Bytes()
        case "gpt2":
            return GPT2()
        case "characters":
            return Characters(vocabulary, state)
        case "bpe":
            return BPE(vocabulary, state)
    raise ConfigError(f"tokenizer = {name!r}: must be one of bytes, characters, gpt2, bpe")
