"""Texts of files, read with one-line errors that name the file, and texts that are safe on a terminal."""

import re
from pathlib import Path

from entp_lib.validation import ConfigError


def printable(text: str) -> str:
    """Return a text that is safe to print on a terminal: control characters are escaped."""
    controls = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # line feeds and tabs stay
    return re.sub(controls, lambda match: repr(match[0])[1:-1], text)


def read_text(path: Path) -> str:
    """Return a UTF-8 text, without byte order mark and with line feeds as line ends; ConfigError names another file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}); convert it") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
