"""Sources of text: one interface for text files and for the sources that ``entp_lab`` adds.

A source yields documents one at a time, so that none of them needs to be in memory for long, and
has a ``checksum`` that identifies its content. ``whole``: documents are separate texts, each
followed by an end token; if False they are pieces of one running text.
"""

import codecs
import contextlib
import hashlib
import importlib
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from entp_lib.data.folders import FOLDERS
from entp_lib.validation import ConfigError, require

DOCUMENT_END = "\f"
CHUNK = 2**20
LONGEST_PIECE = 4096  # characters after which a text without blank lines is cut
END_WORDS = "<|endoftext|>"  # what other programs write between documents
log = logging.getLogger(__name__)


class Source:
    """A text as documents. A subclass defines ``numbered``; a split may use the numbers."""

    checksum: str
    whole: bool

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Yield documents with their numbers."""
        raise NotImplementedError

    def documents(self) -> Iterator[str]:
        """Yield the documents."""
        return (text for _, text in self.numbered())

    def count(self) -> int:
        """Count the documents."""
        return sum(1 for _ in self.numbered())


class TextFile(Source):
    """A UTF-8 text file. Form feeds between texts end documents; else its pieces are paragraphs.

    The pieces joined are the file without its byte order mark. The checksum is the SHA-256 of the
    file. The whole file is checked when it is opened: ConfigError if it is not text.
    """

    def __init__(self, path: Path):
        self.path = path
        digest = hashlib.sha256()
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        feeds = re.compile(rf"\S\s*{DOCUMENT_END}\s*\S")
        require(path.is_file(), f"corpus: {path} is no regular file")
        size = path.stat().st_size
        require(size > 0, f"corpus: {path} is empty")
        self.whole = False
        before = ""
        at = 0
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                check_is_text(path, chunk, at)
                try:
                    text = decoder.decode(chunk, final=at + len(chunk) == size)
                except UnicodeDecodeError as error:
                    raise ConfigError(
                        f"corpus: {path} is not UTF-8 near byte {at + error.start}; convert it"
                    ) from error
                if at == 0:
                    warn_of_formats(path, text)
                digest.update(chunk)
                self.whole |= feeds.search(before + text) is not None
                before = (before + text)[-CHUNK:]
                at += len(chunk)
        self.checksum = digest.hexdigest()

    def numbered(self) -> Iterator[tuple[int, str]]:
        with open(self.path, encoding="utf-8-sig", newline="") as file:
            yield from enumerate(ended_documents(file) if self.whole else pieces(file))


def check_is_text(path: Path, chunk: bytes, at: int) -> None:
    """Raise ConfigError for bytes that no UTF-8 text has; ``at``: their offset in the file."""
    if at == 0 and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"corpus: {path} is UTF-16; convert it to UTF-8")
    zero = chunk.find(0)
    require(
        zero < 0,
        f"corpus: {path} is a binary file, at byte {at + zero}; text is needed",
    )


def warn_of_formats(path: Path, text: str) -> None:
    """Warn of a text in another program's format, which is read here as plain text."""
    if END_WORDS in text:
        log.warning("%s: %s is read as text; form feeds end documents", path, END_WORDS)
    line = text.lstrip().partition("\n")[0]
    if line.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(line)
            log.warning(
                "%s: lines of JSON are read as text, names and quotes included", path
            )


def ended_documents(file: TextIO) -> Iterator[str]:
    """Yield the texts between form feeds, empty ones left out."""
    rest = ""
    while chunk := file.read(CHUNK):
        *ready, rest = (rest + chunk).split(DOCUMENT_END)
        yield from filter(str.strip, ready)
    if rest.strip():
        yield rest


def pieces(file: TextIO) -> Iterator[str]:
    """Yield pieces of a running text, cut after blank lines and where they grow too long."""
    lines: list[str] = []
    held = 0
    while line := file.readline(LONGEST_PIECE):  # a text may be a single line
        lines.append(line)
        held += len(line)
        if held >= LONGEST_PIECE or (not line.strip() and held > len(line)):
            yield "".join(lines)
            lines = []
            held = 0
    if lines:
        yield "".join(lines)


def import_optional(name: str, what: str, extra: str = "language") -> Any:
    """Import an optional library; ConfigError says what needs it and how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the package {error.name or name}: "
            f".venv/bin/python -m pip install -e '.[{extra}]'"
        ) from error


def source_of(corpus: str, checksum: str = "") -> Source:
    """Return the source that a task's ``corpus`` names.

    ``corpus`` is a name in ``FOLDERS.corpora``, or a path relative to ``FOLDERS.root``.
    ``checksum``: the expected first 16 hexadecimal digits, "" for any. Raises ConfigError for a
    file that is missing, empty, binary or not UTF-8, or has another checksum.
    """
    if corpus in FOLDERS.corpora:
        source = FOLDERS.corpora[corpus](checksum)
    else:
        path = FOLDERS.root() / corpus
        known = "".join(f"{name!r} or " for name in FOLDERS.corpora)
        wrong = f"corpus = {str(path)!r}"
        require(
            path.exists(),
            f"{wrong}: no such file; it must be {known}a path to a file",
        )
        require(os.access(path, os.R_OK), f"{wrong}: this user may not read it")
        source = (FOLDERS.reader or TextFile)(path)
    require(
        source.checksum.startswith(checksum),
        f"checksum = {checksum!r}: corpus {corpus!r} has {source.checksum[:16]!r}: another text "
        "than asked for",
    )
    return source


def check_checksum(checksum: str) -> None:
    """Raise ConfigError unless ``checksum`` is empty or has 16 hexadecimal digits."""
    require(
        re.fullmatch("[0-9a-f]{16}|", checksum) is not None,
        f"checksum = {checksum!r}: must be 16 hexadecimal digits, or '' to take any file",
    )


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
