"""Corpora on disk: nothing is lost between a text and its tokens, damage is found, and what is no
text is named.
"""

import hashlib
import json
import logging
import os
import sys
import tracemalloc
import types

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_up import turn_bit
from mistakes import refused

from entp_lab import parquet as parquet_module
from entp_lab import paths
from entp_lib.data import cache, sources
from entp_lib.data.cache import Recipe, open_tokens, splitter
from entp_lib.data.sources import TextFile, source_of
from entp_lib.data.tokenizers import GPT2, Bytes, Characters

SPEECHES = "".join(
    f"Speaker {i}:\nWords of the speech number {i}, für alle → 語.\n\n" for i in range(300)
)


pytestmark = pytest.mark.usefixtures("results")


@pytest.fixture
def file(tmp_path):
    """A function that writes a file and returns its path as a task's ``corpus`` names it."""

    def write(data, name="corpus.txt"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write


def recipe(corpus, tokenizer="bytes", vocabulary=0, split="hash", held_out=0.2):
    return Recipe(corpus, "", tokenizer, vocabulary, split, held_out)


def parts_of(tokens):
    """The text of training and of validation."""
    return [tokens.tokenizer().decode(tokens.parts[name]) for name in cache.PARTS]


def reopened(scored):
    """The tokens as another process would find them."""
    cache.tokens_of.cache_clear()
    return open_tokens(scored)


def test_a_text_that_was_edited_or_lies_in_another_folder_is_read_anew(tmp_path, monkeypatch):
    texts = []
    for folder, word in (("one", "first"), ("two", "other"), ("two", "third")):
        path = tmp_path / folder / "novel.txt"
        path.parent.mkdir(exist_ok=True)
        monkeypatch.setattr(cache.FOLDERS, "root", lambda root=path.parent: root)
        path.write_text(f"{word}\n\nthing" * 3)
        os.utime(path, (1, len(texts) + 1))
        texts.append(parts_of(open_tokens(recipe("novel.txt", split="tail")))[0])
    assert [text[:5] for text in texts] == ["first", "other", "third"]


# Sources


@settings(max_examples=80)
@example("x" * 3 * sources.LONGEST_PIECE)
@given(st.text(alphabet=st.sampled_from("ab \t\nä\r\f"), min_size=1, max_size=60).filter(str.strip))
def test_form_feeds_part_texts_and_pieces_joined_are_the_file(tmp_path_factory, text):
    """A form feed at an end parts nothing, and a line may be longer than a piece."""
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes(text.encode())
    source = TextFile(path)
    found = list(source.documents())
    documents = [part for part in text.split("\f") if part.strip()]
    assert source.whole == (len(documents) > 1)
    if source.whole:
        assert found == documents
    else:
        assert max(map(len, found)) <= sources.LONGEST_PIECE
        assert "".join(found) == text
    assert source.count() == len(found)
    assert source.checksum == hashlib.sha256(text.encode()).hexdigest()


def test_form_feeds_end_documents_wherever_a_chunk_ends(file, monkeypatch):
    monkeypatch.setattr(sources, "CHUNK", 7)
    documents = ["first\n\nof two paragraphs", "second", "third, without an end"]
    source = source_of(file("\f".join(documents)))
    assert list(source.documents()) == documents
    assert source.whole


def test_a_mark_of_byte_order_is_no_symbol(file):
    assert list(source_of(file("\ufeffa text\n")).documents()) == ["a text\n"]


@pytest.mark.parametrize(
    ("text", "what"),
    [("one<|endoftext|>two\n", "endoftext"), ('{"text": "one"}\n{"text": "two"}\n', "JSON")],
)
def test_a_text_that_another_program_takes_apart_is_read_with_a_warning(file, text, what, caplog):
    assert "".join(source_of(file(text)).documents()) == text
    assert what in caplog.text


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "corpus.txt is empty"),
        ("a text".encode("utf-16"), "is UTF-16"),
        (b"some text\0and a zero", "byte 9"),
        ("Grüße".encode("latin-1"), "byte 2"),
        ("ends within ä".encode()[:-1], "corpus.txt is not UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_named(file, data, place):
    with refused(place):
        open_tokens(recipe(file(data)))


def test_a_missing_file_and_another_text_are_named(file, tmp_path):
    with refused("'openwebtext'"):
        source_of("embeded")
    corpus = file("a text\n")
    right = hashlib.sha256(b"a text\n").hexdigest()[:16]
    assert source_of(corpus, right).checksum.startswith(right)
    with refused(f"checksum.*{right}"):
        source_of(corpus, "0" * 16)
    with refused("corpus"):
        source_of(str(tmp_path))


@pytest.fixture
def parquet(tmp_path):
    """A function that writes texts as a Parquet file."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(texts, name="a.parquet", column="text"):
        path = tmp_path / "parquet" / name
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pa.table({column: texts}), path, row_group_size=3)
        return path

    return write


@pytest.mark.parametrize("kind", ["lists", "numbers", "bytes", "not UTF-8"])
def test_parquet_of_anything_but_texts_is_named(parquet, kind):
    pa = pytest.importorskip("pyarrow")
    latin = pa.array([b"fine", b"not \xff"], pa.binary()).view(pa.string())
    texts = {"lists": [["a", "b"]], "numbers": [1, 2], "bytes": [b"a"], "not UTF-8": latin}
    with refused("a.parquet"):
        list(source_of(str(parquet(texts[kind]))).documents())


def test_damaged_parquet_is_named(parquet):
    path = parquet([str(i) * 999 for i in range(200)])
    whole = path.read_bytes()
    for damaged in (whole[:50] + b"\xff" * 8950 + whole[9000:], whole[:-20]):
        path.write_bytes(damaged)
        with refused("a.parquet"):
            list(source_of(str(path)).documents())


def test_parquet_gives_its_rows(parquet):
    one = parquet(["a", "b", "c", "d\n"])
    both = one.parent
    two = parquet(["", "e", None], "b.parquet")
    source = source_of(str(both))
    assert list(source.numbered()) == [(0, "a"), (1, "b"), (2, "c"), (3, "d\n"), (5, "e")]
    assert source.whole
    assert source.count() == 7  # rows without a text keep their numbers
    assert source_of(str(one)).checksum == hashlib.sha256(one.read_bytes()).hexdigest()
    assert len({source_of(str(path)).checksum for path in (one, two, both)}) == 3
    with refused("'text'"):
        list(source_of(str(parquet(["a"], "c.parquet", "body"))).documents())


def test_openwebtext_reads_what_the_hub_gives(parquet, monkeypatch):
    """The hub's folder, through the code that reads local files; a part of it is not taken for the
    whole.
    """
    hub = pytest.importorskip("huggingface_hub")
    path = parquet([f"document {i}" for i in range(20)])
    (path.parent / "plain_text").mkdir()
    path.rename(path.parent / "plain_text" / "train-0.parquet")
    asked = {}
    monkeypatch.setattr(
        hub, "snapshot_download", lambda name, **options: asked.update(options) or str(path.parent)
    )
    with refused("1 of 80 files"):
        list(source_of("openwebtext").documents())
    monkeypatch.setattr(parquet_module, "HUB_FILES", 1)
    assert list(source_of("openwebtext").documents())[3] == "document 3"
    revision = parquet_module.HUB_REVISION
    assert asked["revision"] == source_of("openwebtext", revision[:16]).checksum == revision
    tokens = reopened(recipe("openwebtext", split="nanogpt"))
    assert [tokens.meta["parts"][name]["documents"] for name in cache.PARTS] == [16, 4]


def test_without_a_network_the_corpus_is_named(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    errors = pytest.importorskip("huggingface_hub.errors")

    def fail(*_, **__):
        raise errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with refused("'openwebtext'"):
        parquet_module.download()


@pytest.mark.parametrize(
    ("library", "tokenizer"),
    [("tiktoken", "gpt2"), ("pyarrow.parquet", "bytes")],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, file, library, tokenizer):
    monkeypatch.setitem(sys.modules, library, None)
    corpus = file(b"PAR1", "a.parquet") if "parquet" in library else file(SPEECHES)
    with refused(f"{library.split('.')[0]}.*\\[language\\]"):
        open_tokens(recipe(corpus, tokenizer))


# Tokens on disk


@pytest.mark.parametrize("split", ["hash", "tail", "nanogpt"])
def test_every_document_is_on_one_side(file, split):
    parts = parts_of(open_tokens(recipe(file(SPEECHES), split=split)))
    documents = [document for part in parts for document in part.split("\n\n")]
    assert sorted(filter(None, documents)) == sorted(filter(None, SPEECHES.split("\n\n")))
    assert len(parts[1]) / len(SPEECHES) == pytest.approx(0.2, abs=0.06)


def test_a_document_that_comes_twice_is_on_one_side(file):
    tokens = open_tokens(recipe(file("".join(f"document {i % 40}\f" for i in range(400)))))
    train, validation = (set(part.split("\f")) - {""} for part in parts_of(tokens))
    assert not train & validation
    assert len(train | validation) == 40


def test_nanogpts_split_is_that_of_datasets():
    """Of ``train_test_split(test_size=0.01, seed=2357)`` on 999 documents."""
    source = types.SimpleNamespace(count=lambda: 999)
    side = splitter(source, recipe("", split="nanogpt", held_out=0.01))
    chosen = [i for i in range(999) if side(i, "")]
    assert chosen == [2, 149, 150, 205, 497, 699, 791, 946, 982, 983]


@pytest.mark.parametrize(
    ("tokenizer", "vocabulary", "dtype"),
    [
        ("bytes", 0, "uint8"),
        ("characters", 400, "uint16"),
    ],
)
def test_tokens_read_back_and_name_their_text(file, tokenizer, vocabulary, dtype):
    tokens = open_tokens(recipe(file(SPEECHES), tokenizer, vocabulary, split="tail"))
    texts = parts_of(tokens)
    assert "".join(texts) == SPEECHES
    assert isinstance(tokens.parts["train"], np.memmap)
    assert tokens.parts["train"].dtype == dtype
    assert tokens.meta["corpus_checksum"] == hashlib.sha256(SPEECHES.encode()).hexdigest()
    for name, text in zip(cache.PARTS, texts, strict=True):
        stated = tokens.meta["parts"][name]
        part = tokens.parts[name]
        assert stated["bytes"] == len(text.encode())
        assert stated["tokens"] == len(part)
        assert stated["largest"] == part.max()
        assert stated["checksum"] == hashlib.sha256(part.tobytes()).hexdigest()


def in_list(state):
    """Put another tokenizer into the list of what is there."""

    def damage(folder):
        path = folder / "meta.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_state": state}))

    return damage


def pipe(name):
    def damage(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


DAMAGE = {
    "cut": lambda f: os.truncate(f / "train.bin", (f / "train.bin").stat().st_size - 2),
    "turned bit": lambda f: turn_bit(f / "validation.bin"),
    "no list": lambda f: (f / "meta.json").unlink(),
    "nested": lambda f: (f / "meta.json").write_text("[" * 100_000),
    "a tokenizer of other symbols": in_list("".join(sorted(set(SPEECHES)))[::-1]),
    "a tokenizer that is a number": in_list(7),
    "a pipe": pipe("meta.json"),
    "a pipe of tokens": pipe("train.bin"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_tokens_are_made_again_with_a_line_in_the_log(file, damage, caplog):
    scored = recipe(file(SPEECHES), "characters", 200)
    before = bytes(reopened(scored).parts["train"])
    (meta,) = paths.corpora().glob("*/meta.json")
    damage(meta.parent)
    with caplog.at_level(logging.WARNING, "entp_lib.data.cache"):
        assert bytes(reopened(scored).parts["train"]) == before
    assert "damaged and made again" in caplog.text
    caplog.clear()
    reopened(scored)
    assert not caplog.text


def test_a_text_that_grows_while_its_tokens_are_made_is_refused(file, monkeypatch):
    """Else the tokens of the longer text would stand under the checksum of the shorter one."""
    name = file(SPEECHES)

    def grow(*arguments, write=cache.write):
        with open(name, "a", encoding="utf-8") as text:
            text.write("One speech more.\n\n")
        return write(*arguments)

    with (
        monkeypatch.context() as patch,
        refused("changed while its tokens were made"),
    ):
        patch.setattr(cache, "write", grow)
        open_tokens(recipe(name))
    parts = parts_of(open_tokens(recipe(name)))
    assert sum(len(part.encode()) for part in parts) == os.stat(name).st_size


def test_an_interrupted_encoding_leaves_nothing_behind(file, monkeypatch):
    def interrupted(self, texts, ended):
        raise KeyboardInterrupt

    monkeypatch.setattr(Bytes, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_tokens(recipe(file(SPEECHES)))
    assert not [path for path in paths.corpora().iterdir() if path.is_dir()]


def test_an_empty_part_is_named(file):
    with refused("held_out"):
        open_tokens(recipe(file("one piece alone"), split="tail"))


def test_a_corpus_is_never_in_memory(file, monkeypatch):
    """A million characters are encoded with a bounded number of them in memory."""
    monkeypatch.setattr(sources, "CHUNK", 2**13)
    monkeypatch.setattr(cache, "CHARACTERS_AT_ONCE", 2**13)
    corpus = file(SPEECHES * 60)
    tracemalloc.start()
    open_tokens(recipe(corpus, split="tail"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**19 < len(SPEECHES) * 60 / 1.8


# Tokenizers: texts come back, documents end, what is learned does not depend on chance.


@pytest.mark.parametrize(
    "tokenizer",
    [Bytes(), Characters(200, "".join(sorted(set(SPEECHES + "\f"))))],
    ids=["bytes", "characters"],
)
def test_texts_come_back(tokenizer):
    texts = [SPEECHES[:500], "für", SPEECHES[500:900]]
    plain = tokenizer.encode(texts, False).tolist()
    ended = tokenizer.encode(texts, True).tolist()
    assert tokenizer.decode(plain) == "".join(texts)
    assert ended.count(tokenizer.end) == 3
    assert [token for token in ended if token != tokenizer.end] == plain
    assert set(ended) <= set(range(tokenizer.vocab_size))
    assert tokenizer.encode([], True).tolist() == []


def test_gpt2_is_the_encoding_of_tiktoken(monkeypatch):
    """Without its download: a stand-in that counts words."""
    encoding = types.SimpleNamespace(
        encode_ordinary_batch=lambda texts: [[len(w) for w in text.split()] for text in texts],
        decode=lambda ids: " ".join(map(str, ids)),
    )
    monkeypatch.setitem(
        sys.modules, "tiktoken", types.SimpleNamespace(get_encoding={"gpt2": encoding}.get)
    )
    tokenizer = GPT2()
    assert tokenizer.encode(["a bb ccc", "dddd"], True).tolist() == [1, 2, 3, 50_256, 4, 50_256]
    assert tokenizer.decode(np.array([1, 50_256])) == "1 50256"
    assert tokenizer.vocab_size % 64 == 0
