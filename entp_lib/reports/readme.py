"""README's generated parts, between markers, and the generated pages of ``docs/``, from the ledger and the records."""

import argparse
import re
from collections.abc import Callable

import pandas as pd

from entp_lib import paths
from entp_lib.files import read_text, write_atomically
from entp_lib.records.store import Store
from entp_lib.reports import costs, findings
from entp_lib.reports.ledger import ledger
from entp_lib.reports.parameters import sorted_notebooks
from entp_lib.validation import require


def findings_part(table: pd.DataFrame) -> str:
    """The answer in three sentences, and the figure of comparisons."""
    alt = "ENTP's lead over a decoder on ten tasks, at equal steps and at equal multiply-adds"
    return f"{findings.headline(table)}\n\n![{alt}](figures/00_full_attention.png)"


def notebooks_part(_: pd.DataFrame) -> str:
    """The notebooks, linked."""
    links = [f"[{p.stem.replace('_', ' ')}](notebooks/{p.name})" for p in sorted_notebooks()]
    return " · ".join(links) + ".\n"


PARTS: dict[str, Callable[[pd.DataFrame], str]] = {
    "findings": findings_part,
    "notebooks": notebooks_part,
}
PAGES: dict[str, Callable[[pd.DataFrame, Store], str]] = {
    "docs/findings.md": findings.page,
    "docs/costs.md": costs.page,
}


def markers(text: str) -> dict[str, re.Pattern]:
    """Patterns that match each generated part in ``text``. ConfigError where a marker is missing."""
    patterns = {
        name: re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(\n<!-- {name}:end -->)", re.DOTALL) for name in PARTS
    }
    for name, pattern in patterns.items():
        lacking = f"README.md lacks the markers <!-- {name}:begin --> and <!-- {name}:end -->"
        require(pattern.search(text) is not None, lacking)
    return patterns


def render(text: str, table: pd.DataFrame) -> str:
    """``text`` with its generated parts as the ledger ``table`` has them. ConfigError where a marker is missing."""
    for name, pattern in markers(text).items():
        part = PARTS[name](table)
        text = pattern.sub(lambda m, part=part: m[1] + part + m[2], text)
    return text


def outdated() -> list[str]:
    """Generated files that differ from what the records say now, README first; missing ones are among them."""
    store = Store(read_only=True)
    readme = read_text(paths.readme())
    markers(readme)  # a mistake there is reported before the ledger is computed
    table = ledger(store)
    found = [] if readme == render(readme, table) else ["README.md"]
    for name, make in PAGES.items():
        path = paths.root() / name
        if not path.exists() or read_text(path) != make(table, store):
            found.append(name)
    return found


def write() -> None:
    """Bring README.md and the generated pages up to date."""
    path, store = paths.readme(), Store(read_only=True)
    text = read_text(path)
    markers(text)
    table = ledger(store)
    write_atomically(path, render(text, table).encode())
    for name, make in PAGES.items():
        write_atomically(paths.root() / name, make(table, store).encode())


def readme_command(options: argparse.Namespace) -> int:
    """``readme``: rewrite what is generated, or with ``--check`` name what is out of date (1 where something is)."""
    if not options.check:
        write()
        return 0
    found = outdated()
    print("README.md and the generated pages are up to date" if not found else f"out of date: {', '.join(found)}")
    return 1 if found else 0
