"""Tokenizers with one interface: bytes, characters, GPT-2's byte-pair encoding, and one learned from the corpus.

``state`` holds what was learned, as text, so that tokens on disk bring it along; ``end`` is the token after a document.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from entp_lib.data.sources import DOCUMENT_END, Source, library
from entp_lib.validation import ConfigError, require

GPT2_USED, GPT2_PADDED = 50_257, 50_304  # nanoGPT rounds the vocabulary up to a multiple of 64
END_TOKEN = "<|endoftext|>"


class Tokenizer:
    """Text to ids and back; subclasses define ``decode``, and ``encode`` or ``lists``, the ids of each text.

    ``decode`` leaves out ids that stand for nothing: a vocabulary may be larger than what was found or is used.
    """

    vocab_size: int
    end: int
    state = ""

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        """The tokens of several texts, one after the other, each followed by ``end`` if ``ended``."""
        tail = [self.end] if ended else []
        ids = [np.array([*tokens, *tail], dtype=np.int32) for tokens in self.lists(list(texts))]
        return np.concatenate(ids or [np.empty(0, np.int32)])


class Bytes(Tokenizer):
    """UTF-8 bytes; a form feed ends a document."""

    vocab_size, end = 256, ord(DOCUMENT_END)

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        return np.frombuffer("".join(text + DOCUMENT_END * ended for text in texts).encode(), dtype=np.uint8)

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(map(int, tokens)).decode(errors="replace")


class Characters(Tokenizer):
    """The characters of the corpus in the order of their code points, which ``state`` lists."""

    def __init__(self, vocab_size: int, state: str):
        self.vocab_size, self.state = vocab_size, state
        right = f"the corpus has {len(state)} different characters; it must be at least that"
        require(len(state) <= vocab_size, f"vocabulary = {vocab_size}: {right}")
        self.points = np.array([ord(c) for c in state], dtype=np.uint32)
        self.end = state.find(DOCUMENT_END)

    def encode(self, texts: Sequence[str], ended: bool) -> np.ndarray:
        points = np.frombuffer("".join(text + DOCUMENT_END * ended for text in texts).encode("utf-32-le"), dtype="<u4")
        tokens = self.points.searchsorted(points)
        known = self.points[np.minimum(tokens, len(self.points) - 1)] == points
        if not known.all():
            raise ConfigError(f"{chr(points[~known][0])!r}: not among the {len(self.state)} characters of the corpus")
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.state[int(t)] for t in tokens if 0 <= t < len(self.state))


class GPT2(Tokenizer):
    """GPT-2's own encoding, from tiktoken, which downloads and keeps it; ids above 50,256 never occur."""

    vocab_size, end = GPT2_PADDED, GPT2_USED - 1

    def __init__(self):
        tiktoken = library("tiktoken", "tokenizer = 'gpt2'")
        try:
            self.encoding = tiktoken.get_encoding("gpt2")
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            right = "without a network use 'bytes', or 'bpe', which learns from the corpus"
            raise ConfigError(f"tokenizer = 'gpt2' cannot be downloaded; {right}") from error

    def lists(self, texts: list[str]) -> list[list[int]]:
        return self.encoding.encode_ordinary_batch(texts)

    def decode(self, tokens: Iterable[int]) -> str:
        return self.encoding.decode([int(t) for t in tokens if t < GPT2_USED])


class BPE(Tokenizer):
    """Byte-pair encoding learned from the training part, as a tokenizer of the ``tokenizers`` library in JSON."""

    end = 0

    def __init__(self, vocab_size: int, state: str):
        self.vocab_size, self.state = vocab_size, state
        self.tokenizer = library("tokenizers", "tokenizer = 'bpe'").Tokenizer.from_str(state)
        self.tokenizer.encode_special_tokens = True  # as ordinary text, wherever a document spells them out

    def lists(self, texts: list[str]) -> list[list[int]]:
        return [found.ids for found in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, tokens: Iterable[int]) -> str:
        return self.tokenizer.decode([int(t) for t in tokens], skip_special_tokens=False)


def vocabulary_size(name: str, vocabulary: int) -> int:
    """The size of a tokenizer's vocabulary; ``vocabulary`` belongs to characters and bpe alone. Raises ConfigError."""
    fixed = {"bytes": Bytes.vocab_size, "gpt2": GPT2.vocab_size}.get(name)
    wrong = f"vocabulary = {vocabulary}: tokenizer {name!r}"
    if fixed:
        require(vocabulary in (0, fixed), f"{wrong} has {fixed} tokens; leave it at 0")
        return fixed
    least = {"characters": 1, "bpe": 257}[name]  # every byte and the end of a document
    require(least <= vocabulary <= 2**31, f"{wrong} needs a size, of at least {least}")
    return vocabulary


def learn(name: str, vocabulary: int, training: Iterator[str], source: Source) -> Tokenizer:
    """The named tokenizer for a corpus: byte pairs from the ``training`` texts, characters from all of ``source``."""
    if name == "characters":
        return Characters(vocabulary, "".join(sorted(characters_of(source))))
    return restore(name, vocabulary, learned_pairs(vocabulary, training) if name == "bpe" else "")


def characters_of(source: Source) -> set[str]:
    """The characters that a source's tokens need, with the one that ends a document where documents are ended."""
    found = set(DOCUMENT_END if source.whole else "")
    for text in source.documents():
        found.update(text)
    return found


def learned_pairs(vocabulary: int, texts: Iterator[str]) -> str:
    """Byte pairs of a text, most frequent first, as the JSON of a tokenizer; spaces belong to the next word."""
    tokenizers = library("tokenizers", "tokenizer = 'bpe'")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    start = {"special_tokens": [END_TOKEN], "initial_alphabet": sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())}
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, **start)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()


def restore(name: str, vocabulary: int, state: str) -> Tokenizer:
    """The named tokenizer as its ``state`` left it."""
    learned = {"characters": Characters, "bpe": BPE}.get(name)
    return learned(vocabulary, state) if learned else {"bytes": Bytes, "gpt2": GPT2}[name]()
