"""Where text comes from: one interface for files, Parquet and the Hugging Face hub, and a corpus without a download.

A source yields documents one at a time, so that none has to fit into memory, and has a ``checksum`` that names its
content. ``whole`` says that a document stands for itself and is ended by a token; pieces of one running text are not.
"""

import codecs
import hashlib
import importlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from entp_lib.data.folders import FOLDERS
from entp_lib.validation import ConfigError, require

DOCUMENT_END = "\f"
CHUNK = 2**20
LONGEST_PIECE = 4096  # characters after which a running text is cut even where no line is blank
# The dataset as 80 Parquet files of 8,013,769 documents, 24 GB; later commits of the repository cannot change a record.
HUB_REPOSITORY, HUB_FILES = "Skylion007/openwebtext", 80
HUB_REVISION = "79d93d786212f7344586290adb811d4ae6a1762c"
STRINGS = ("string", "large_string", "string_view", "dictionary<values=string, indices=int32, ordered=0>")
ELSEWHERE = "corpus='embedded' and a path to a text or Parquet file work without a network"


class Source:
    """A text as documents. Subclasses define ``numbered``: documents with their numbers, which a split may go by."""

    checksum: str
    whole: bool

    def documents(self) -> Iterator[str]:
        return (text for _, text in self.numbered())

    def count(self) -> int:
        return sum(1 for _ in self.numbered())


class TextFile(Source):
    """A UTF-8 text file. Form feeds end documents; without any, its pieces end at blank lines and keep them.

    So the pieces joined are the file, and the SHA-256 of the file is the checksum. All of it is checked at once:
    ConfigError for what is no text.
    """

    def __init__(self, path: Path):
        self.path, self.whole, digest, at = path, False, hashlib.sha256(), 0
        size, decoder = path.stat().st_size, codecs.getincrementaldecoder("utf-8")()
        require(size > 0, f"corpus: {path} is empty")
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                zero = chunk.find(0)
                require(zero < 0, f"corpus: {path} is a binary file, at byte {at + zero}; text is needed")
                try:
                    decoder.decode(chunk, final=at + len(chunk) == size)
                except UnicodeDecodeError as error:
                    where = f"near byte {at + error.start}"
                    raise ConfigError(f"corpus: {path} is not UTF-8 {where}; convert it") from error
                digest.update(chunk)
                self.whole |= DOCUMENT_END.encode() in chunk
                at += len(chunk)
        self.checksum = digest.hexdigest()

    def numbered(self) -> Iterator[tuple[int, str]]:
        with open(self.path, encoding="utf-8", newline="") as file:
            yield from enumerate(ended_documents(file) if self.whole else pieces(file))


def ended_documents(file: TextIO) -> Iterator[str]:
    """The texts between form feeds, empty ones left out."""
    rest = ""
    while chunk := file.read(CHUNK):
        *ready, rest = (rest + chunk).split(DOCUMENT_END)
        yield from filter(None, ready)
    if rest:
        yield rest


def pieces(file: TextIO) -> Iterator[str]:
    """Pieces of a running text, cut after blank lines and where they grow too long."""
    lines, held = [], 0
    while line := file.readline(LONGEST_PIECE):  # a text may be one line
        lines.append(line)
        held += len(line)
        if held >= LONGEST_PIECE or (not line.strip() and held > len(line)):
            yield "".join(lines)
            lines, held = [], 0
    if lines:
        yield "".join(lines)


@dataclass(frozen=True)
class ParquetFiles(Source):
    """Parquet files with a column ``text``, a document a row; rows without a text are left out, but numbered.

    Without ``files`` those of OpenWebText, downloaded where their text is read: tokens made before need no download.
    """

    files: tuple[Path, ...] = ()
    whole = True

    @property
    def checksum(self) -> str:
        """The SHA-256 of a single file, that of the list of them of several; of OpenWebText the hub's revision."""
        if not self.files:
            return HUB_REVISION
        digests = [file_checksum(path) for path in self.files]
        return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def numbered(self) -> Iterator[tuple[int, str]]:
        row = itertools.count()
        for path, file in self.opened():
            try:
                for batch in file.iter_batches(batch_size=256, columns=["text"]):
                    texts = zip(batch.column(0).to_pylist(), row, strict=False)
                    yield from ((number, text) for text, number in texts if text)
            except (OSError, ValueError) as error:  # a page that is damaged, a text that is not UTF-8
                raise ConfigError(f"corpus: a text in {path} cannot be read ({str(error).strip()})") from error

    def count(self) -> int:
        """Rows, those without a text among them."""
        return sum(file.metadata.num_rows for _, file in self.opened())

    def opened(self) -> Iterator[tuple[Path, Any]]:
        parquet = library("pyarrow.parquet", "Parquet files")
        for path in self.files or download():
            try:
                file = parquet.ParquetFile(path)
            except (OSError, ValueError) as error:  # pyarrow's own errors are among these
                raise ConfigError(f"corpus: {path} is not a Parquet file ({str(error).strip()})") from error
            with file:
                names = file.schema_arrow.names
                require("text" in names, f"corpus: {path} has no column 'text', only {', '.join(names)}")
                kind = file.schema_arrow.field("text").type
                require(str(kind) in STRINGS, f"corpus: {path} has {kind} in its column 'text'; strings are needed")
                yield path, file


def download() -> tuple[Path, ...]:
    """The files of OpenWebText, from the hub's own cache or the network. ConfigError where they cannot be had whole."""
    hub = library("huggingface_hub", "openwebtext")
    options = dict(repo_type="dataset", revision=HUB_REVISION, allow_patterns="plain_text/*.parquet")
    try:
        folder = hub.snapshot_download(HUB_REPOSITORY, **options)
    except (OSError, ValueError) as error:
        why = str(error).strip().split("\n")[0]
        raise ConfigError(f"corpus = 'openwebtext' cannot be downloaded ({why}); {ELSEWHERE}") from error
    files = tuple(sorted(Path(folder, "plain_text").glob("*.parquet")))
    # without a network the hub gives what an interrupted download left
    right = f"{len(files)} of {HUB_FILES} files are there; finish the download with a network. {ELSEWHERE}"
    require(len(files) == HUB_FILES, f"corpus = 'openwebtext': {right}")
    return files


def library(name: str, what: str, extra: str = "language"):
    """An optional library, imported. Raises ConfigError that says what needs it and how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        install = f".venv/bin/python -m pip install -e '.[{extra}]'"
        raise ConfigError(f"{what} needs the package {error.name or name}: {install}") from error


def check_checksum(checksum: str) -> None:
    """ConfigError for what is no beginning of a checksum, as tasks on files name it."""
    right = "must be 16 hexadecimal digits, or '' to take any file"
    require(re.fullmatch("[0-9a-f]{16}|", checksum) is not None, f"checksum = {checksum!r}: {right}")


def source_of(corpus: str, checksum: str = "") -> Source:
    """The source that a task's ``corpus`` names: ``embedded``, ``openwebtext``, or a path from the project's root.

    ``checksum``: its first 16 hexadecimal digits, where they must be these. Raises ConfigError for a file that is
    missing, empty, binary or not UTF-8, and for another checksum.
    """
    named = FOLDERS.corpora.get(corpus)
    path = named(checksum) if named else FOLDERS.root() / corpus
    if corpus == "openwebtext":
        source = ParquetFiles()
    else:
        wrong = f"corpus = {str(path)!r}"
        require(path.exists(), f"{wrong}: no such file; it must be 'embedded', 'openwebtext' or a path to a file")
        require(os.access(path, os.R_OK), f"{wrong}: this user may not read it")
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] * (path.suffix == ".parquet")
        require(bool(files) or path.is_file(), f"{wrong}: a folder without Parquet files")
        source = ParquetFiles(tuple(files)) if files else TextFile(path)
    right = f"corpus {corpus!r} has {source.checksum[:16]!r}: another text than asked for"
    require(source.checksum.startswith(checksum), f"checksum = {checksum!r}: {right}")
    return source


def file_checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
