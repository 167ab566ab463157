"""Tokens of a corpus on disk, mapped into memory: made once, verified whenever they are opened.

A folder holds ``train.bin``, ``validation.bin`` and ``meta.json``, which has lengths, checksums and
what the tokenizer learned. It gets its name only when all three are complete, so that a reader
never sees a partial one.
"""

import functools
import hashlib
import json
import logging
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from entp_lib.data.folders import FOLDERS
from entp_lib.data.sources import Source, file_checksum, source_of
from entp_lib.data.tokenizers import Tokenizer, learned_state, restore, vocabulary_size
from entp_lib.files import file_lock, remove_stale
from entp_lib.validation import ConfigError, Json, require

FORMAT = 3  # raise it when the same corpus would now give other tokens
PARTS = ("train", "validation")
FILES = ("meta.json", "train.bin", "validation.bin")
NANOGPT_SEED = 2357
CHARACTERS_AT_ONCE = 2**20
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the tokens of a corpus.

    ``split`` chooses a share ``held_out`` of the documents for validation. ``hash`` decides by a
    document's text, so that copies of a document are on one side. ``tail`` takes the end of the
    corpus, from the start of a document. ``nanogpt`` takes the first rows of a permutation with
    nanoGPT's seed, as the authors do. Documents stay whole, so that ``tail`` holds out far more if
    the last of few documents is long.
    """

    corpus: str
    checksum: str
    tokenizer: str
    vocabulary: int
    split: str
    held_out: float


@dataclass(frozen=True)
class Tokens:
    """The tokens of both parts, mapped from disk into memory, and facts about them."""

    parts: dict[str, np.memmap]
    meta: Json
    recipe: Recipe

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that made them."""
        recipe = self.recipe
        return restore(
            recipe.tokenizer, recipe.vocabulary, self.meta["tokenizer_state"]
        )


def open_tokens(recipe: Recipe) -> Tokens:
    """Return the tokens of a recipe, made where they are missing or damaged.

    If several processes ask at once, one makes them and the others wait. Raises ConfigError for a
    corpus that is not text or lacks a part.
    """
    path = FOLDERS.root() / recipe.corpus
    return tokens_of(recipe, path, path.stat().st_mtime_ns if path.exists() else 0)


@functools.lru_cache(maxsize=8)
def tokens_of(recipe: Recipe, path: Path, changed: int) -> Tokens:
    """Return ``open_tokens`` of a recipe whose corpus lies at ``path``, last changed then."""
    source = source_of(recipe.corpus, recipe.checksum)
    key = [
        FORMAT,
        source.checksum,
        recipe.tokenizer,
        vocabulary_size(recipe.tokenizer, recipe.vocabulary),
        recipe.split,
        recipe.held_out,
    ]
    folder = FOLDERS.cache() / f"{recipe.tokenizer}-{checksum_of(key)[:16]}"
    with file_lock(
        folder.with_suffix(".lock"), f"it makes the tokens of {recipe.corpus}"
    ):
        remove_stale(folder.parent, f".*-{'?' * 16}.*")  # left by killed processes
        meta = read_meta(folder)
        if meta is None:
            make(folder, source, recipe)
            meta = read_meta(folder)
    if meta is None:
        raise ConfigError(
            f"tokens in {folder} do not read back as written; check the disk"
        )
    parts = {
        name: np.memmap(folder / f"{name}.bin", meta["dtype"], "r") for name in PARTS
    }
    return Tokens(parts, meta, recipe)


def read_meta(folder: Path) -> Json | None:
    """Return the content of ``meta.json`` if the token files match it, else None."""
    if not os.path.lexists(folder):
        return None
    try:
        for name in FILES:
            if not (folder / name).is_file():  # reading a pipe would never end
                raise ValueError(f"{name} is no regular file")
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta.pop("checksum") != checksum_of(meta):
            raise ValueError("meta.json does not match its checksum")
        for name in PARTS:
            if file_checksum(folder / f"{name}.bin") != meta["parts"][name]["checksum"]:
                raise ValueError(f"{name}.bin does not match its checksum")
        return meta
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        log.warning("tokens in %s are damaged and made again: %s", folder, error)
        return None


def checksum_of(values: object) -> str:
    """Return the SHA-256 of values of JSON, such as the facts about tokens."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def make(folder: Path, source: Source, recipe: Recipe) -> None:
    """Encode a corpus into ``folder``, part after part; the folder appears when it is complete."""
    is_held_out = splitter(source, recipe)
    state = learned_state(recipe.tokenizer, source)
    tokenizer = restore(recipe.tokenizer, recipe.vocabulary, state)
    dtype = np.min_scalar_type(tokenizer.vocab_size - 1)
    parts = {}
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        for side, name in enumerate(PARTS):
            texts = (
                text for i, text in source.numbered() if is_held_out(i, text) == side
            )
            parts[name] = write(
                temporary / f"{name}.bin", texts, tokenizer, dtype, source.whole
            )
            require(
                parts[name]["tokens"] > 0,
                f"corpus = {recipe.corpus!r}: split = {recipe.split!r} keeps documents whole and "
                f"leaves none for {name}; use more text, another held_out than {recipe.held_out}, "
                "or another split",
            )
        require(
            source_of(recipe.corpus).checksum == source.checksum,
            f"corpus = {recipe.corpus!r} changed while its tokens were made; start again",
        )
        warn_of_share(recipe, parts)
        meta = {
            "corpus_checksum": source.checksum,
            "dtype": dtype.name,
            "parts": parts,
            "tokenizer_state": tokenizer.state,
        }
        meta["checksum"] = checksum_of(meta)
        (temporary / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # a damaged one
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def warn_of_share(recipe: Recipe, parts: dict[str, Json]) -> None:
    """Warn if long documents make the held-out tail far from the share asked for."""
    train, held_out = (parts[name]["tokens"] for name in PARTS)
    share = held_out / (train + held_out)
    if recipe.split == "tail" and not 0.5 < share / recipe.held_out < 2:
        log.warning(
            "%s: %d tokens are held out, %.0f %% of all, since documents stay whole",
            recipe.corpus,
            held_out,
            100 * share,
        )


def write(
    path: Path, texts: Iterator[str], tokenizer: Tokenizer, dtype: np.dtype, ended: bool
) -> Json:
    """Encode documents into a file; return the part's counts and checksum."""
    counts = {"documents": 0, "bytes": 0, "tokens": 0, "largest": 0}
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        while some := take(texts):
            tokens = tokenizer.encode(some, ended)
            data = tokens.astype(dtype).tobytes()
            counts["documents"] += len(some)
            counts["bytes"] += sum(len(text.encode()) for text in some)
            counts["tokens"] += len(tokens)
            counts["largest"] = max(counts["largest"], int(tokens.max(initial=0)))
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return counts | {"checksum": digest.hexdigest()}


def take(texts: Iterator[str]) -> list[str]:
    """Return the next texts, until they have ``CHARACTERS_AT_ONCE`` characters or more."""
    some = []
    held = 0
    for text in texts:
        some.append(text)
        held += len(text)
        if held >= CHARACTERS_AT_ONCE:
            break
    return some


def splitter(source: Source, recipe: Recipe) -> Callable[[int, str], bool]:
    """Return a function that tells by number and text whether a document is for validation."""
    share = recipe.held_out
    if recipe.split == "hash":
        return lambda i, text: first_bytes(text) < share * 2**64
    if recipe.split == "nanogpt":
        # as Hugging Face datasets do with nanoGPT's seed: the first of a permutation, rounded up
        count = source.count()
        order = np.random.default_rng(NANOGPT_SEED).permutation(count)
        chosen = set(order[: math.ceil(share * count)].tolist())
        return lambda i, text: i in chosen
    cut = (1 - share) * sum(map(len, source.documents()))
    before = 0
    first = -1
    for first, text in source.numbered():  # noqa: B007
        if before >= cut:
            break
        before += len(text)
    return lambda i, text: i >= first


def first_bytes(text: str) -> int:
    """Return the first eight bytes of a text's SHA-256 as a number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
