"""Tokenizers: texts come back, documents end, what is learned does not depend on chance."""

import sys
import types

import numpy as np
import pytest

from entp_lib.corpora.tokenizers import BPE, GPT2, Bytes, Characters, learned_pairs, vocabulary_size
from entp_lib.validation import ConfigError

SPEECHES = "".join(f"Speaker {i}:\nWords of the speech number {i}, für alle → 語.\n\n" for i in range(300))


def bpe(vocabulary=300):
    pytest.importorskip("tokenizers")
    return BPE(vocabulary, learned_pairs(vocabulary, iter([SPEECHES])))


TOKENIZERS = {
    "bytes": Bytes,
    "characters": lambda: Characters(200, "".join(sorted(set(SPEECHES + "\f")))),
    "bpe": bpe,
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_come_back(name):
    tokenizer, texts = TOKENIZERS[name](), [SPEECHES[:500], "für", SPEECHES[500:900]]
    plain, ended = (tokenizer.encode(texts, ended).tolist() for ended in (False, True))
    assert tokenizer.decode(plain) == "".join(texts)
    assert ended.count(tokenizer.end) == 3 and [t for t in ended if t != tokenizer.end] == plain
    assert 0 <= min(ended) and max(ended) < tokenizer.vocab_size
    assert tokenizer.encode([], True).tolist() == []


def test_learned_pairs_fill_the_vocabulary_and_do_not_depend_on_chance():
    one, two = bpe(), bpe()
    assert one.state == two.state and one.tokenizer.get_vocab_size() == 300
    assert len(one.encode([SPEECHES], False)) < 0.6 * len(SPEECHES.encode())
    assert one.decode(one.encode(["not learned: ☃"], False)) == "not learned: ☃"  # every byte has a token


def test_gpt2_is_the_encoding_of_tiktoken(monkeypatch):
    """Without its download: a stand-in that counts words."""
    encoding = types.SimpleNamespace(
        encode_ordinary_batch=lambda texts: [[len(w) for w in text.split()] for text in texts],
        decode=lambda ids: " ".join(map(str, ids)),
    )
    monkeypatch.setitem(sys.modules, "tiktoken", types.SimpleNamespace(get_encoding={"gpt2": encoding}.get))
    tokenizer = GPT2()
    assert tokenizer.encode(["a bb ccc", "dddd"], True).tolist() == [1, 2, 3, 50_256, 4, 50_256]
    assert tokenizer.decode(np.array([1, 50_256])) == "1 50256" and tokenizer.vocab_size % 64 == 0

    def offline(_):
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "tiktoken", types.SimpleNamespace(get_encoding=offline))
    with pytest.raises(ConfigError, match="'gpt2'"):
        GPT2()


@pytest.mark.parametrize(
    ("name", "vocabulary", "field"),
    [
        ("byte", 0, "tokenizer = 'byte'"),
        ("bytes", 100, "vocabulary"),
        ("gpt2", 50_257, "vocabulary"),
        ("bpe", 0, "vocabulary"),
        ("characters", 0, "vocabulary"),
    ],
)
def test_wrong_vocabularies_are_named(name, vocabulary, field):
    with pytest.raises(ConfigError, match=field):
        vocabulary_size(name, vocabulary)
