"""Malformed files of every kind the project reads: each is refused by name, or gives what the sound one gives."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.hammer.attacks import TEXT, Tally, environment_of
from entp_lab import paths
from entp_lab.claims import judge
from entp_lab.configs import RunConfig, record_name
from entp_lab.notebooks import defaults
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import run
from entp_lab.stopping import Cut
from entp_lab.store import RecordError, Store
from entp_lab.tables import read_table
from entp_lab.weights import trained_model, weights_of
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.data.cache import Recipe, open_tokens
from entp_lib.data.sources import source_of
from entp_lib.validation import ConfigError
from entp_papers.entp.downstream.clutrr import COLUMNS, from_frame


def turned(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def filled(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


def changed(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


DAMAGE = {
    "truncated": cut,
    "one byte short": changed(lambda data: data[:-1]),
    "turned bit": turned,
    "empty": filled(b""),
    "zeros": changed(lambda data: bytes(len(data))),
    "all bytes": filled(bytes(range(256))),
    "null": filled(b"null\n"),
    "a number": filled(b"5\n"),
    "NaN": changed(lambda data: data.replace(b"1", b"NaN")),
    "nested": filled(b"[" * 100_000),
    "BOM": changed(lambda data: b"\xef\xbb\xbf" + data),
    "CRLF": changed(lambda data: data.replace(b"\n", b"\r\n")),
    "Latin-1": changed(lambda data: data + "é".encode("latin-1")),
    "another version": changed(lambda data: data.replace(b'"version": 1', b'"version": 2')),
    "twice": changed(lambda data: data + data),
    "a folder": folder,
    "a link to itself": link_to_itself,
    "unreadable": lambda path: path.chmod(0),  # which the superuser reads all the same
}


@dataclass(frozen=True)
class Kind:
    """A file to spoil: ``make`` writes it below a folder and says where, ``read`` does what the project does with it.

    ``exact``: what is read must be what a sound file gives, or be refused. Else damage may make another valid file.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    exact: bool = False


def small(steps: int = 4) -> RunConfig:
    """A run of a moment."""
    model = ModelConfig("decoder", 1, 1, 8, 8, 8)
    schedule = TrainConfig(steps, 4, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8)
    return RunConfig("hammer", "smoke", "counting", dict(length=8, seed_length=3, symbols=8), model, schedule)


NAME = record_name(small(), 1)


def store_of(at: Path) -> Store:
    return Store(at / "results", read_only=False)


def made_record(at: Path) -> Path:
    run(small(), 1, store=store_of(at))
    return store_of(at).path(NAME)


def made_weights(at: Path) -> Path:
    made_record(at)
    return store_of(at).weights_path(NAME)


def made_checkpoint(at: Path) -> Path:
    path = store_of(at).checkpoint_path(NAME)
    with contextlib.suppress(Cut):
        train_run(small(), checkpoint=Checkpoint(path, stop=lambda: True))
    return path


def computed(at: Path) -> Any:
    """The record as a run leaves it in spite of what lies in its place."""
    record = run(small(), 1, store=store_of(at))
    return record.status, record.metrics, record.curves["loss"]


def loaded(at: Path) -> Any:
    record = Store(at / "results", read_only=True).load(NAME)
    return record and record.metrics


def made_tokens(at: Path) -> Path:
    written(at, "text.txt", TEXT)
    tokens_of(at)
    return next((at / "results" / "corpora").glob("*/meta.json"))


def tokens_of(at: Path) -> Any:
    open_tokens.cache_clear()
    with environment_of(ENTP_RESULTS=str(at / "results")):
        return bytes(open_tokens(Recipe(str(at / "text.txt"), "", "bytes", 0, "tail", 0.2)).parts["train"])


def written(at: Path, file: str, text: str) -> Path:
    (at / file).write_text(text, encoding="utf-8")
    return at / file


def made_parquet(at: Path) -> Path:
    pd.DataFrame({"text": [f"text number {i}" for i in range(99)]}).to_parquet(at / "a.parquet")
    return at / "a.parquet"


STORY = "story,query,target_text,task_name\n\"[Ann] and [Bob] are kin.\",\"('Ann', 'Bob')\",aunt,task_1.2\n"


def copied_claims(at: Path) -> Path:
    (at / "entp").mkdir()
    return Path(shutil.copyfile(paths.reference() / "entp" / "claims.csv", at / "entp" / "claims.csv"))


def claims_in(at: Path) -> Any:
    reference, paths.reference = paths.reference, lambda: at
    try:
        return judge([])["id"].tolist()
    finally:
        paths.reference = reference


def texts_of(file: str) -> Callable[[Path], Any]:
    return lambda at: list(source_of(str(at / file)).documents())


KINDS = {
    "record, looked at": Kind(made_record, loaded, exact=True),
    "record, computed again": Kind(made_record, computed, exact=True),
    "checkpoint": Kind(made_checkpoint, computed, exact=True),
    "weights": Kind(
        made_weights,
        lambda at: [p.tolist() for p in trained_model(weights_of(store_of(at), NAME))[1].parameters()],
        exact=True,
    ),
    "tokens' list": Kind(made_tokens, tokens_of, exact=True),
    "tokens": Kind(lambda at: made_tokens(at).with_name("train.bin"), tokens_of, exact=True),
    "text": Kind(lambda at: written(at, "a.txt", TEXT), texts_of("a.txt")),
    "Parquet": Kind(made_parquet, texts_of("a.parquet")),
    "stories": Kind(
        lambda at: written(at, "train.csv", STORY),
        lambda at: from_frame(read_table(at / "train.csv", COLUMNS), str(at / "train.csv")),
    ),
    "list of claims": Kind(copied_claims, claims_in),
    "notebook": Kind(
        lambda at: Path(shutil.copyfile(sorted(paths.notebooks().glob("03_*"))[0], at / "03_x.ipynb")),
        lambda at: defaults(at / "03_x.ipynb"),
    ),
}


def malformed() -> Iterator[Tally]:
    """Every kind of file with every kind of damage."""
    for kind, spoiled in KINDS.items():
        tally = Tally(f"malformed: {kind}")
        with tempfile.TemporaryDirectory() as first:
            spoiled.make(Path(first))
            sound = spoiled.read(Path(first))
        for how, damage in DAMAGE.items():
            with tempfile.TemporaryDirectory() as at:
                path = spoiled.make(Path(at))
                damage(path)
                tally.note(how, judged(spoiled, Path(at), path, sound))
                if os.path.lexists(path) and not path.is_symlink():
                    path.chmod(0o700)
        yield tally


def judged(spoiled: Kind, at: Path, path: Path, sound: Any) -> list[str]:
    """A line where a spoiled file is used, or refused without its name."""
    try:
        found = spoiled.read(at)
    except (ConfigError, RecordError) as error:
        said = str(error)
        return [] if path.name in said or path.stem.split(".")[0] in said else [f"it is not named: {said[:200]}"]
    except Exception as error:
        return [f"{type(error).__name__}: {str(error)[:200]}"]
    return ["it is used and gives something else"] if spoiled.exact and found != sound else []
