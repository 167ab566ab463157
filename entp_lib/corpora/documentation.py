"""The embedded corpus: the documentation of the installed Python packages, read from their files.

Real text without a download: docstrings, found in the source by its syntax tree; no package is imported. One document
a file, in a fixed order; of a paragraph that occurs several times the first stays. The text depends on the packages'
versions, so the exported file carries its checksum in its name and can be taken to a machine without the packages.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from entp_lib import paths
from entp_lib.files import locked, write_atomically
from entp_lib.validation import ConfigError, require

# Import name -> distribution.
PACKAGES = {
    "torch": "torch",
    "pandas": "pandas",
    "numpy": "numpy",
    "matplotlib": "matplotlib",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
}
LEFT_OUT = {"test", "tests", "testing", "_vendor"}
RECURRING = 40  # characters below which a paragraph may come again: headings do by nature
DOCUMENT_END = "\f"
EXPORT_HINT = "python -m entp_lib corpus --export FILE"


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module's text, in the order of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # others' escape sequences
        waiting = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found = ast.get_docstring(node)
            if found:
                yield found
        blocks = (getattr(node, name, None) for name in ("finalbody", "orelse", "handlers", "body"))
        waiting += [child for block in blocks if isinstance(block, list) for child in reversed(block)]


def documents(folders: list[Path]) -> Iterator[str]:
    """One document per Python file that has documentation, without paragraphs that came before."""
    seen: set[bytes] = set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py"), key=lambda p: p.relative_to(folder).parts):
            if LEFT_OUT & set(path.relative_to(folder).parts):
                continue
            kept = []
            for text in docstrings(path.read_text(encoding="utf-8")):
                # marks of the end of a document, of binary files and half characters have no place in a text
                text = re.sub("[\f\0\ud800-\udfff]", "", text)
                kept += [p for p in re.split(r"\n[ \t]*\n", text) if is_new(p, seen)]
            if kept:
                yield "\n\n".join(kept) + "\n"


def is_new(paragraph: str, seen: set[bytes]) -> bool:
    """Whether a paragraph is short or was not seen before; it is now. Blank ones never are."""
    words = paragraph.split()
    if not words or len(paragraph) < RECURRING:
        return bool(words)
    digest = hashlib.sha256(" ".join(words).encode()).digest()
    new = digest not in seen
    seen.add(digest)
    return new


def installed() -> dict[str, str]:
    """The packages' versions. Raises ConfigError where one is missing."""
    missing = [d for name, d in PACKAGES.items() if importlib.util.find_spec(name) is None]
    require(
        not missing,
        f"corpus = 'embedded': {', '.join(missing)} not installed, whose documentation belongs to it; export it where "
        f"they are ({EXPORT_HINT}) and give that file as corpus, or put it into {paths.relative(paths.corpora())}",
    )
    return {distribution: importlib.metadata.version(distribution) for distribution in PACKAGES.values()}


def export() -> bytes:
    """The whole corpus as a file's bytes, documents ended by form feeds. Takes about a minute."""
    installed()
    folders = [Path(importlib.util.find_spec(name).origin).parent for name in PACKAGES]
    return "".join(text + DOCUMENT_END for text in documents(folders)).encode()


def embedded_file(checksum: str = "") -> Path:
    """The exported corpus, made on first use. With a ``checksum`` an export brought from elsewhere will do.

    Raises ConfigError where neither such a file is there nor the installed packages give it.
    """
    folder = paths.corpora()
    if checksum and named(folder, checksum).exists():
        return named(folder, checksum)
    versions = " ".join(f"{d} {v}" for d, v in installed().items())
    with locked(folder / "embedded.lock", "it exports the embedded corpus"):
        index = folder / "embedded.json"
        known = read_index(index)
        path = named(folder, known.get(versions, ""))
        if not path.exists():
            data = export()
            known[versions] = hashlib.sha256(data).hexdigest()[:16]
            path = named(folder, known[versions])
            write_atomically(path, data)
            write_atomically(index, json.dumps(known, indent=1).encode())
    if checksum and path != named(folder, checksum):
        raise ConfigError(
            f"checksum = {checksum!r}: the documentation installed here has {known[versions]!r} ({versions}); install "
            f"the versions of requirements.txt, or put embedded-{checksum}.txt, exported where they are, into "
            f"{paths.relative(folder)}"
        )
    return path


def named(folder: Path, checksum: str) -> Path:
    return folder / f"embedded-{checksum}.txt"


def read_index(path: Path) -> dict[str, str]:
    """Which versions gave which checksum; empty where nothing is known or the file is damaged."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return known if all(isinstance(value, str) for value in known.values()) else {}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
