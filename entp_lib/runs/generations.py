"""A fresh generation: the runs of a sweep computed again, over as many calls as that takes.

It has a token, kept in a file until its last record is there. A record of the generation carries the token in its
provenance and counts as done; a run that was cut continues from the generation's own checkpoint; what existed before
stays until its successor is complete.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from pathlib import Path

from entp_lib.files import write_atomically
from entp_lib.runs.provenance import sources
from entp_lib.runs.records import Record, Store


def generation_path(store: Store, experiment: str, ids: Iterable[str]) -> Path:
    """Where the token lies while the runs ``ids`` are computed again."""
    name = hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16]
    return store.root / "checkpoints" / experiment / f"generation-{name}.json"


def begin_or_continue(store: Store, experiment: str, ids: Iterable[str]) -> str:
    """The token of the generation of these runs that is in progress, or else of a new one.

    One that other sources began is not continued: its records would be half theirs.
    """
    path = generation_path(store, experiment, ids)
    with store.lock(experiment, path.stem):
        held = token_in(path)
        if held is None:
            if path.is_dir():
                store.set_aside(path, f"generation {path} is a folder where a file should be")
            held = secrets.token_hex(4)
            write_atomically(path, json.dumps({"token": held, "sources": sources()}).encode())
    return held


def token_in(path: Path) -> str | None:
    """The token in a generation's file; None where there is none, or none that this code may continue."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return held["token"] if held["sources"] == sources() else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # a new generation loses nothing but time
        return None


def end(store: Store, experiment: str, ids: Iterable[str]) -> None:
    """Forget the token: the next fresh call computes everything again."""
    generation_path(store, experiment, ids).unlink(missing_ok=True)


def is_done(record: Record | None, generation: str) -> bool:
    """Whether ``record`` is what a sweep wants: complete, and of ``generation`` where that is not empty."""
    if record is None or record.status != "complete":
        return False
    return not generation or record.provenance.get("generation") == generation
