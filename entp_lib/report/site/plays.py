"""Things to play with, each a page of plain JavaScript that needs neither a kernel nor a network."""

from pathlib import Path

TITLES: dict[str, str] = {}


def pages(static: Path) -> dict[str, str]:
    return {}
