"""Texts of files, read with one-line errors that name the file, and texts that are safe on a terminal."""

import re
from pathlib import Path

from entp_lib.validation import ConfigError


def printable(text: str) -> str:
    """Return a text that is safe to print on a terminal: control characters are escaped."""
    controls = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # line feeds and tabs stay
    return re.sub(controls, lambda match: repr(match[0])[1:-1], text)


def read_text(path: Path) -> str:
    """Return a UTF-8 text without byte order mark; ConfigError names a file that is not one."""
    try:
        return decode_text(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def decode_text(data: bytes, path: Path | str) -> str:
    """Decode a UTF-8 file's bytes, without a BOM and with line feeds as line ends."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}); convert it") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
