"""Texts in Parquet files, and OpenWebText from its hub."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entp_lib.data.sources import Source, TextFile, file_checksum, import_optional
from entp_lib.validation import ConfigError, require

# OpenWebText as 80 Parquet files of 8,013,769 documents, 24 GB. The revision is fixed, so that later
# commits of the repository cannot change a record.
HUB_REPOSITORY = "Skylion007/openwebtext"
HUB_FILES = 80
HUB_REVISION = "79d93d786212f7344586290adb811d4ae6a1762c"
STRINGS = (
    "string",
    "large_string",
    "string_view",
    "dictionary<values=string, indices=int32, ordered=0>",
)
ELSEWHERE = "a path to a text or Parquet file works without a network"


@dataclass(frozen=True)
class ParquetFiles(Source):
    """Parquet files with a column ``text``, one document per row; rows without a text are counted in the numbering.

    Without ``files`` it is OpenWebText, downloaded when its text is read: tokens made before need no download.
    """

    files: tuple[Path, ...] = ()
    whole = True

    @property
    def checksum(self) -> str:  # type: ignore[override]
        """The SHA-256 of the file, or of the list of SHA-256s of several; for OpenWebText the hub's revision."""
        if not self.files:
            return HUB_REVISION
        digests = [file_checksum(path) for path in self.files]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def numbered(self) -> Iterator[tuple[int, str]]:
        numbers = itertools.count()
        for path, file in self.opened():
            try:
                for batch in file.iter_batches(batch_size=256, columns=["text"]):
                    for text, number in zip(batch.column(0).to_pylist(), numbers, strict=False):
                        if text:
                            yield number, text
            except (OSError, ValueError) as error:  # a damaged page, a text that is not UTF-8
                raise ConfigError(f"corpus: a text in {path} cannot be read ({error})") from error

    def count(self) -> int:
        """Count the rows, including those without a text."""
        return sum(file.metadata.num_rows for _, file in self.opened())

    def opened(self) -> Iterator[tuple[Path, Any]]:
        """Yield each file with its path, open. ConfigError for one without a column of texts."""
        parquet = import_optional("pyarrow.parquet", "Parquet files")
        for path in self.files or download():
            try:
                file = parquet.ParquetFile(path)
            except (OSError, ValueError) as error:  # includes pyarrow's own errors
                raise ConfigError(f"corpus: {path} is not a Parquet file ({error})") from error
            with file:
                names = ", ".join(file.schema_arrow.names)
                require("text" in file.schema_arrow.names, f"corpus: {path} lacks 'text': {names}")
                kind = str(file.schema_arrow.field("text").type)
                require(kind in STRINGS, f"corpus: {path} has {kind} in its column 'text', no text")
                yield path, file


def download() -> tuple[Path, ...]:
    """Return the files of OpenWebText, from the hub's own cache or the network."""
    hub = import_optional("huggingface_hub", "openwebtext")
    try:
        folder = hub.snapshot_download(
            HUB_REPOSITORY,
            repo_type="dataset",
            revision=HUB_REVISION,
            allow_patterns="plain_text/*.parquet",
        )
    except (OSError, ValueError) as error:
        why = str(error).strip().split("\n")[0]
        raise ConfigError(
            f"corpus = 'openwebtext' cannot be downloaded ({why}); {ELSEWHERE}"
        ) from error
    files = tuple(sorted(Path(folder, "plain_text").glob("*.parquet")))
    # without a network the hub returns what an interrupted download left
    require(
        len(files) == HUB_FILES,
        f"corpus = 'openwebtext': {len(files)} of {HUB_FILES} files are there; finish the download "
        f"with a network. {ELSEWHERE}",
    )
    return files


def open_corpus(path: Path) -> Source:
    """Return the source of a text file, a Parquet file, or a folder of Parquet files."""
    if path.is_dir():
        files = tuple(sorted(path.glob("*.parquet")))
        require(files, f"corpus = {str(path)!r}: a folder without Parquet files")
        return ParquetFiles(files)
    return ParquetFiles((path,)) if path.suffix == ".parquet" else TextFile(path)
