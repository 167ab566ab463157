"""A corpus without a download: the documentation of the installed Python packages, read from their files.

It consists of docstrings, found by parsing the source; no package is imported. Each file is one document, in a fixed
order, and only the first copy of a repeated paragraph is kept. The text depends on the packages' versions, so the
exported file carries its checksum in its name and can be taken to a machine without the packages.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from entp_lib.data.folders import FOLDERS
from entp_lib.data.sources import DOCUMENT_END
from entp_lib.files import file_lock, write_atomically
from entp_lib.validation import require

# Import name -> distribution.
PACKAGES = {name: name for name in ("torch", "pandas", "numpy", "matplotlib", "scipy")} | {
    "sklearn": "scikit-learn"
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LEFT_OUT = {"test", "tests", "testing", "_vendor"}
RECURRING = 40  # characters; shorter paragraphs may repeat, as headings do


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module's text, in the order of the file."""
    with warnings.catch_warnings(action="ignore"):  # invalid escape sequences in other packages
        waiting = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, DOCUMENTED) and (found := ast.get_docstring(node)):
            yield found
        for block in ("finalbody", "orelse", "handlers", "body"):
            waiting += reversed(getattr(node, block, ()))


def documents(folders: list[Path]) -> Iterator[str]:
    """Yield one document per Python file that has documentation, without long paragraphs seen before."""
    seen: set[str] = set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py"), key=lambda p: p.relative_to(folder).parts):
            if LEFT_OUT & set(path.relative_to(folder).parts):
                continue
            kept = []
            for text in docstrings(path.read_text(encoding="utf-8")):
                # form feeds, null characters and lone surrogates must not occur in a text
                text = re.sub("[\f\0\ud800-\udfff]", "", text)
                for paragraph in re.split(r"\n[ \t]*\n", text):
                    words = " ".join(paragraph.split())
                    if words and (len(paragraph) < RECURRING or words not in seen):
                        kept.append(paragraph)
                    if len(paragraph) >= RECURRING:
                        seen.add(words)
            if kept:
                yield "\n\n".join(kept) + "\n"


def embedded_file(checksum: str = "", packages: Mapping[str, str] | None = None) -> Path:
    """Return the path of the exported corpus, made on first use.

    With a ``checksum``, an export copied from another machine is accepted. ``packages``: those to read
    in place of ``PACKAGES``. Raises ConfigError if there is no such file and the installed packages do not give it.
    """
    packages = packages or PACKAGES
    folder = FOLDERS.cache()
    path = folder / f"embedded-{checksum}.txt"
    if checksum and path.exists():
        return path
    missing = [d for name, d in packages.items() if importlib.util.find_spec(name) is None]
    copy = f"copy embedded-{checksum or '*'}.txt from results/corpora of a machine that has it to {folder}"
    require(
        not missing,
        f"corpus = 'embedded': {', '.join(missing)} not installed, whose documentation it is; {copy}",
    )
    versions = " ".join(f"{d} {importlib.metadata.version(d)}" for d in packages.values())
    with file_lock(folder / "embedded.lock", "it exports the embedded corpus"):
        index = folder / "embedded.json"  # from the packages' versions to the checksum
        try:
            known = dict(json.loads(index.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            known = {}  # the file is missing or damaged
        path = folder / f"embedded-{known.get(versions, '')}.txt"
        if not path.exists():
            specs = map(importlib.util.find_spec, packages)
            sources = [Path(spec.origin).parent for spec in specs if spec and spec.origin]
            # takes about a minute
            data = "".join(text + DOCUMENT_END for text in documents(sources)).encode()
            known[versions] = hashlib.sha256(data).hexdigest()[:16]
            path = folder / f"embedded-{known[versions]}.txt"
            write_atomically(path, data)
            write_atomically(index, json.dumps(known, indent=1).encode())
    require(
        checksum in ("", known[versions]),
        f"checksum = {checksum!r}: the documentation installed here has {known[versions]!r} ({versions}); "
        f"install those of requirements.txt, or {copy}",
    )
    return path
