"""Corpora on disk: nothing is lost between a text and its tokens, damage is found, and what is no text is named."""

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

from entp_lab import parquet as parquet_module
from entp_lab import paths
from entp_lib.data import cache, sources
from entp_lib.data.cache import Recipe, open_tokens, splitter
from entp_lib.data.sources import TextFile, source_of
from entp_lib.data.tokenizers import BPE, GPT2, Bytes, Characters, learned_pairs
from entp_lib.validation import ConfigError

SPEECHES = "".join(f"Speaker {i}:\nWords of the speech number {i}, für alle → 語.\n\n" for i in range(300))


@pytest.fixture(autouse=True)
def own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))


@pytest.fixture
def file(tmp_path):
    """A function that writes a file and returns its path as a task's ``corpus`` names it."""

    def write(data, name="corpus.txt"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write


def recipe(corpus, tokenizer="bytes", vocabulary=0, split="hash", held_out=0.2, checksum=""):
    return Recipe(corpus, checksum, tokenizer, vocabulary, split, held_out)


def reopened(scored):
    """The tokens as another process would find them."""
    open_tokens.cache_clear()
    return open_tokens(scored)


# Sources


@settings(max_examples=50)
@example("x" * 3 * sources.LONGEST_PIECE)
@given(st.text(alphabet=st.sampled_from("ab \t\nä\r"), min_size=1, max_size=60).filter(str.strip))
def test_pieces_joined_are_the_file(tmp_path_factory, text):
    """Also of a text whose lines are longer than a piece."""
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes(text.encode())
    source = TextFile(path)
    pieces = list(source.documents())
    assert max(map(len, pieces)) <= sources.LONGEST_PIECE
    assert "".join(pieces) == text
    assert not source.whole
    assert source.count() == len(pieces)
    assert source.checksum == hashlib.sha256(text.encode()).hexdigest()


def test_form_feeds_end_documents_wherever_a_chunk_ends(file, monkeypatch):
    monkeypatch.setattr(sources, "CHUNK", 7)
    documents = ["first\n\nof two paragraphs", "second", "third, without an end"]
    source = source_of(file("\f".join(documents)))
    assert list(source.documents()) == documents
    assert source.whole


@pytest.mark.parametrize("text", ["one\n\ntwo\n\f", "\fone\n\ntwo\n", "one\n\ntwo\n\f\n \n"])
def test_a_form_feed_at_an_end_makes_no_document(file, text):
    source = source_of(file(text))
    assert not source.whole
    assert "".join(source.documents()) == text
    assert source.count() >= 2


def test_a_mark_of_byte_order_is_no_symbol(file):
    text = "a text\n\nof two paragraphs\n"
    assert "".join(source_of(file(b"\xef\xbb\xbf" + text.encode())).documents()) == text


@pytest.mark.parametrize(
    ("text", "what"), [("one<|endoftext|>two\n", "endoftext"), ('{"text": "one"}\n{"text": "two"}\n', "JSON")]
)
def test_a_text_that_another_program_takes_apart_is_read_with_a_warning(file, text, what, caplog):
    assert "".join(source_of(file(text)).documents()) == text
    assert what in caplog.text


def test_a_tail_far_from_its_share_says_how_many_tokens_are_held_out(file, caplog):
    open_tokens(recipe(file("\f".join(["short", "short", "long " * 99])), split="tail", held_out=0.1))
    assert "496 tokens are held out" in caplog.text


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
    with pytest.raises(ConfigError, match=place):
        open_tokens(recipe(file(data)))


def test_a_missing_file_and_another_text_are_named(file, tmp_path):
    with pytest.raises(ConfigError, match="'openwebtext'"):
        source_of("embeded")
    corpus = file("a text\n")
    right = hashlib.sha256(b"a text\n").hexdigest()[:16]
    assert source_of(corpus, right).checksum.startswith(right)
    with pytest.raises(ConfigError, match=f"checksum.*{right}"):
        source_of(corpus, "0" * 16)
    with pytest.raises(ConfigError, match="corpus"):
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


def test_parquet_of_anything_but_texts_is_named(parquet):
    import pyarrow as pa

    wrong = pa.array([b"fine", b"not \xff"], pa.binary()).view(pa.string())
    for texts in ([["a", "b"]], [1, 2], [b"a"], wrong):
        with pytest.raises(ConfigError, match="a.parquet"):
            list(source_of(str(parquet(texts))).documents())
    assert list(source_of(str(parquet(pa.array(["a", "b"], pa.large_string())))).documents()) == ["a", "b"]
    path = parquet([str(i) * 999 for i in range(200)])
    whole = path.read_bytes()
    for damaged in (whole[:50] + b"\xff" * 8950 + whole[9000:], whole[:-20]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="a.parquet"):
            list(source_of(str(path)).documents())


def test_parquet_gives_its_rows(parquet):
    one = parquet(["a", "b", "c", "d\n"])
    two = parquet(["", "e", None], "b.parquet")
    assert list(source_of(str(one)).documents()) == ["a", "b", "c", "d\n"]
    both = source_of(str(one.parent))
    assert list(both.numbered()) == [(0, "a"), (1, "b"), (2, "c"), (3, "d\n"), (5, "e")]
    assert both.whole
    assert both.count() == 7  # rows without a text keep their numbers
    assert source_of(str(one)).checksum == hashlib.sha256(one.read_bytes()).hexdigest()
    assert len({both.checksum, source_of(str(one)).checksum, source_of(str(two)).checksum}) == 3
    with pytest.raises(ConfigError, match="'text'"):
        list(source_of(str(parquet(["a"], "c.parquet", "body"))).documents())


def test_openwebtext_reads_what_the_hub_gives(parquet, monkeypatch):
    """The hub's folder, through the code that reads local files; a part of it is not taken for the whole."""
    hub = pytest.importorskip("huggingface_hub")
    path = parquet([f"document {i}" for i in range(20)], "plain_text/train-0.parquet".replace("/", "-"))
    snapshot = path.parent / "snapshot"
    (snapshot / "plain_text").mkdir(parents=True)
    path.rename(snapshot / "plain_text" / "train-0.parquet")
    asked = {}
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: asked.update(options) or str(snapshot))
    with pytest.raises(ConfigError, match="1 of 80 files"):
        list(source_of("openwebtext").documents())
    monkeypatch.setattr(parquet_module, "HUB_FILES", 1)
    assert list(source_of("openwebtext").documents())[3] == "document 3"
    assert (
        asked["revision"]
        == parquet_module.HUB_REVISION
        == source_of("openwebtext", parquet_module.HUB_REVISION[:16]).checksum
    )
    tokens = reopened(recipe("openwebtext", split="nanogpt"))
    assert [tokens.meta["parts"][name]["documents"] for name in ("train", "validation")] == [16, 4]


def test_without_a_network_the_corpus_is_named(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    errors = pytest.importorskip("huggingface_hub.errors")

    def fail(*_, **__):
        raise errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(ConfigError, match="'openwebtext'"):
        parquet_module.download()


@pytest.mark.parametrize(
    ("library", "tokenizer"), [("tiktoken", "gpt2"), ("tokenizers", "bpe"), ("pyarrow.parquet", "bytes")]
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, file, library, tokenizer):
    monkeypatch.setitem(sys.modules, library, None)
    corpus = file(b"PAR1", "a.parquet") if "parquet" in library else file(SPEECHES)
    with pytest.raises(ConfigError, match=f"{library.split('.')[0]}.*\\[language\\]"):
        open_tokens(recipe(corpus, tokenizer, 300 if tokenizer == "bpe" else 0))


# Tokens on disk


@pytest.mark.parametrize("split", ["hash", "tail", "nanogpt"])
def test_every_document_is_on_one_side(file, split):
    tokens = open_tokens(recipe(file(SPEECHES), split=split))
    parts = [bytes(tokens.part(name)).decode() for name in ("train", "validation")]
    documents = [p for part in parts for p in part.split("\n\n") if p]
    assert sorted(documents) == sorted(p for p in SPEECHES.split("\n\n") if p)
    assert len(parts[1]) / len(SPEECHES) == pytest.approx(0.2, abs=0.06)
    assert [tokens.meta["parts"][n]["bytes"] for n in ("train", "validation")] == [len(p.encode()) for p in parts]
    if split == "tail":
        assert "".join(parts) == SPEECHES


def test_a_document_that_comes_twice_is_on_one_side(file):
    corpus = file("".join(f"{text}\f" for text in [f"document {i % 40}" for i in range(400)]))
    tokens = open_tokens(recipe(corpus))
    sides = [set(bytes(tokens.part(n)).decode().split("\f")) - {""} for n in ("train", "validation")]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 40


def test_nanogpts_split_is_that_of_datasets():
    """4,007 of 8,013,769 documents in OpenWebText; the same ones as the library's own split."""

    def permuted(count, share):
        source = types.SimpleNamespace(count=lambda: count)
        return splitter(source, recipe("", split="nanogpt", held_out=share))

    side = permuted(8_013_769, 0.0005)
    assert sum(side(i, "") for i in range(0, 8_013_769, 1000)) < 30
    small = permuted(999, 0.01)
    chosen = [i for i in range(999) if small(i, "")]
    assert len(chosen) == 10
    datasets = pytest.importorskip("datasets")
    parts = datasets.Dataset.from_dict({"i": list(range(999))}).train_test_split(test_size=0.01, seed=2357)
    assert sorted(parts["test"]["i"]) == chosen


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "bpe"])
def test_tokens_read_back_and_name_their_text(file, tokenizer):
    if tokenizer == "bpe":
        pytest.importorskip("tokenizers")
    corpus = file(SPEECHES)
    tokens = open_tokens(recipe(corpus, tokenizer, 0 if tokenizer == "bytes" else 400, split="tail"))
    text = "".join(tokens.tokenizer().decode(tokens.part(name)) for name in ("train", "validation"))
    assert text == SPEECHES
    assert isinstance(tokens.train, np.memmap)
    assert tokens.train.dtype == (np.uint8 if tokenizer == "bytes" else np.uint16)
    assert tokens.meta["corpus_checksum"] == hashlib.sha256(SPEECHES.encode()).hexdigest()
    for name in ("train", "validation"):
        said = tokens.meta["parts"][name]
        assert said["tokens"] == len(tokens.part(name))
        assert said["largest"] == tokens.part(name).max()
        assert said["checksum"] == hashlib.sha256(tokens.part(name).tobytes()).hexdigest()


def flip(folder):
    data = bytearray((folder / "validation.bin").read_bytes())
    data[3] ^= 1
    (folder / "validation.bin").write_bytes(data)


DAMAGE = {
    "cut": lambda f: os.truncate(f / "train.bin", (f / "train.bin").stat().st_size - 2),
    "turned bit": flip,
    "no list": lambda f: (f / "meta.json").unlink(),
    "a list that is a list": lambda f: (f / "meta.json").write_text("[]"),
    "nested": lambda f: (f / "meta.json").write_text("[" * 100_000),
    "a tokenizer of other symbols": lambda f: learned(f, "".join(sorted(set(SPEECHES)))[::-1]),
    "a tokenizer that is a number": lambda f: learned(f, 7),
    "a pipe": lambda f: ((f / "meta.json").unlink(), os.mkfifo(f / "meta.json")),
    "a pipe of tokens": lambda f: ((f / "train.bin").unlink(), os.mkfifo(f / "train.bin")),
}


def learned(folder, state):
    """Put another tokenizer into the list of what is there."""
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"tokenizer_state": state}))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_tokens_are_made_again_with_a_line_in_the_log(file, damage, caplog):
    scored = recipe(file(SPEECHES), "characters", 200)
    before = bytes(reopened(scored).train)
    (meta,) = paths.corpora().glob("*/meta.json")
    damage(meta.parent)
    with caplog.at_level(logging.WARNING, "entp_lib.data.cache"):
        assert bytes(reopened(scored).train) == before
    assert "damaged and made again" in caplog.text
    caplog.clear()
    reopened(scored)
    assert not caplog.text


def test_a_text_that_grows_while_its_tokens_are_made_is_refused(file, monkeypatch):
    """Else the tokens of the longer text would stand under the checksum of the shorter one."""
    name = file(SPEECHES)
    write = cache.write

    def grow(*arguments):
        with open(name, "a", encoding="utf-8") as text:
            text.write("One speech more.\n\n")
        return write(*arguments)

    monkeypatch.setattr(cache, "write", grow)
    with pytest.raises(ConfigError, match="changed while its tokens were made"):
        open_tokens(recipe(name, "bytes", 0, split="tail"))
    monkeypatch.setattr(cache, "write", write)
    tokens = open_tokens(recipe(name, "bytes", 0, split="tail"))
    assert sum(len(tokens.part(part)) for part in cache.PARTS) == os.stat(name).st_size


def test_an_interrupted_encoding_leaves_nothing_behind(file, monkeypatch):
    scored = recipe(file(SPEECHES))

    def interrupted(self, texts, ended):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Bytes, "encode", interrupted)
        reopened(scored)
    assert not [p for p in paths.corpora().iterdir() if p.is_dir()]
    assert len(reopened(scored).train)


def test_an_empty_part_is_named(file):
    with pytest.raises(ConfigError, match="held_out"):
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
    tokenizer = TOKENIZERS[name]()
    texts = [SPEECHES[:500], "für", SPEECHES[500:900]]
    plain, ended = (tokenizer.encode(texts, ended).tolist() for ended in (False, True))
    assert tokenizer.decode(plain) == "".join(texts)
    assert ended.count(tokenizer.end) == 3
    assert [t for t in ended if t != tokenizer.end] == plain
    assert 0 <= min(ended)
    assert max(ended) < tokenizer.vocab_size
    assert tokenizer.encode([], True).tolist() == []


def test_learned_pairs_fill_the_vocabulary_and_do_not_depend_on_chance():
    one = bpe()
    two = bpe()
    assert one.state == two.state
    assert one.tokenizer.get_vocab_size() == 300
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
    assert tokenizer.decode(np.array([1, 50_256])) == "1 50256"
    assert tokenizer.vocab_size % 64 == 0
