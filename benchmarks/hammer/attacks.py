"""Kills, disks, company and environments: each attack is one process, then a peaceful one that must end as always."""

import contextlib
import errno
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.hammer.victim import KINDS, POINTS
from entp_lab import cli, paths
from entp_lab.configs import RunConfig
from entp_lab.store import Store
from entp_lab.weights import trained_model
from entp_lib import files
from entp_lib.data.cache import open_tokens

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TEXT = "".join(f"Line {i} of a text that says {i * i % 97} and nothing else.\n\n" for i in range(400))


@dataclass
class Tally:
    """One line of the table: how often an attack was tried, and what went wrong."""

    attack: str
    tries: int = 0
    failures: list[str] = field(default_factory=list)

    def note(self, name: str, wrong: list[str]) -> None:
        self.tries += 1
        self.failures += [f"{name}: {'; '.join(wrong)}"] if wrong else []


class Ground:
    """Where one attack takes place: a store, a folder for temporary files, and a text to train on."""

    def __init__(self, folder: Path, what: str, jobs: int = 1):
        self.root, self.temporary, self.what = folder / "results", folder / "tmp", what
        self.temporary.mkdir(parents=True)
        self.text = folder / "text.txt"
        self.text.write_text(TEXT)
        common = ["--results", str(self.root), "--jobs", str(jobs)]
        run = ["--architecture", "decoder", "--seeds", "2"]
        if what == "count3":
            self.command = ["train", "count3", "--tier", "smoke", *run, *common]
        else:
            short = ["--context", "8", "--steps", "30", "--batch-size", "8", "--size", "extra_small"]
            self.command = ["text", str(self.text), "--tokenizer", "bytes", *short, *run, *common]
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("ENTP_")},
            **{"ENTP_RESULTS": str(self.root), "TMPDIR": str(self.temporary), "PYTHONPATH": str(paths.root())},
        }

    def start(self, plan: dict, options: tuple[str, ...] = (), **environment: str) -> subprocess.Popen:
        """The command as a process of its own; back when it is ready to begin."""
        command = [sys.executable, *options, "-m", "benchmarks.hammer.victim", json.dumps(plan), *self.command]
        given = {k: v for k, v in {**self.environment, **environment}.items() if v != "unset"}
        process = subprocess.Popen(
            command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=paths.root()
        )
        process.stdout.readline()
        return process

    def finish(self) -> list[str]:
        """Run the command in peace; a line where it went wrong."""
        open_tokens.cache_clear()
        said = io.StringIO()
        with environment_of(ENTP_RESULTS=str(self.root)), contextlib.redirect_stdout(io.StringIO()):
            try:
                with contextlib.redirect_stderr(said):
                    status = cli.main(self.command)
            except Exception as error:
                return [f"the next call ended in {type(error).__name__}: {error}"]
        return [f"the next call ended with {status}: {said.getvalue().strip()[-200:]}"] if status else []

    def found(self) -> list[tuple[str, str, str]]:
        """The content of the records, times aside; the weights of every run are read on the way.

        Not by id: that of a run on a text holds where the text lies.
        """
        store, found = Store(self.root, read_only=True), []
        for folder in sorted((self.root / "records").glob("*")):
            for r in store.all(folder.name):
                curves = {k: v for k, v in r.curves.items() if k != "seconds"}
                found.append((r.status, json.dumps(r.metrics, sort_keys=True), json.dumps(curves, sort_keys=True)))
                if isinstance(r.config, RunConfig):
                    trained_model(store.weights_path(r.name), r.name)
        return sorted(found)

    def litter(self) -> list[str]:
        """Files left that nobody needs, once an hour has passed and the command has run again."""
        then = time.time() - 2 * files.STALE_SECONDS
        for path in (*self.root.rglob("*"), *self.root.rglob(".*")):
            os.utime(path, (then, then), follow_symlinks=False)
        for weights in sorted(self.root.glob("checkpoints/*/*.weights.safetensors"))[:1]:
            record = self.root / "records" / weights.parent.name / weights.name.replace("weights.safetensors", "json")
            record.unlink()  # so that there is something to compute
        self.finish()
        left = [p for p in self.root.rglob("*") if p.name.startswith(".")]
        kept = (".weights.safetensors", ".tokenizer.json")  # what a run is for
        left += [p for p in self.root.glob("checkpoints/*/*") if not p.name.endswith(kept)]
        left += [p for p in self.temporary.iterdir() if not p.name.startswith("torchinductor_")]  # torch's own cache
        return [f"left behind: {p.name}" for p in left]

    def differs(self, expected: list) -> list[str]:
        """A line where the records are not the expected ones, or cannot be read."""
        try:
            return [] if self.found() == expected else ["other records than without the attack"]
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]

    def judge(self, expected: list, err: str) -> list[str]:
        """Everything wrong after an attack that said ``err``."""
        return ["a traceback"] * ("Traceback" in err) + self.finish() + self.differs(expected) + self.litter()


@contextlib.contextmanager
def ground_of(what: str, jobs: int = 1) -> Iterator[Ground]:
    """A ground for one attack, removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Ground(Path(folder), what, jobs)


@contextlib.contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """The environment with these variables, for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def peace(what: str) -> tuple[list, float]:
    """Records of the command when nobody attacks it, and its seconds as a process once it is ready."""
    with ground_of(what) as ground:
        process, begun = ground.start({}), time.monotonic()
        out, err = process.communicate(timeout=600)
        took = time.monotonic() - begun
        if process.returncode:
            raise RuntimeError(f"the victim fails by itself:\n{out}{err}")
        return ground.found(), took


def kills_at_random(tries: int, seed: int, expected: dict[str, list], took: dict[str, float]) -> Iterator[Tally]:
    """Signals at any moment, with one process and with workers; both commands in turn."""
    chance = random.Random(seed)
    for number in SIGNALS:
        tally = Tally(f"{number.name} at a random moment")
        for i in range(tries):
            what, jobs = ("count3", "text")[i % 2], 1 + i // 2 % 2
            with ground_of(what, jobs) as ground:
                process, moment = ground.start({}), chance.uniform(0, (1 + jobs) / 2 * took[what])
                time.sleep(moment)
                process.send_signal(number)
                err = process.communicate(timeout=600)[1]
                tally.note(f"{what}, {jobs} at a time, after {moment:.2f} s", ground.judge(expected[what], err))
        yield tally


def hit(tally: Tally, expected: dict[str, list], kind: str, plan: dict, said: str = "") -> None:
    """Have the plan strike while the command writes a file of a kind; its last words must hold ``said``."""
    what = "text" if kind == "tokens" else "count3"
    with ground_of(what) as ground:
        process = ground.start({"file": kind, **plan})
        err = process.communicate(timeout=600)[1]
        wrong = ["it was not hit"] * (process.returncode == 0) + [f"not named: {err[-200:]}"] * (said not in err)
        tally.note(f"{kind} {plan['point']}", wrong + ground.judge(expected[what], err))


def kills_at_points(expected: dict[str, list], signals: tuple = SIGNALS) -> Iterator[Tally]:
    """Signals while each kind of file is written, and when it has just taken its place."""
    for number in signals:
        tally = Tally(f"{number.name} while a file is written")
        for kind, point in itertools.product(KINDS, POINTS):
            hit(tally, expected, kind, {"point": point, "signal": number})
        yield tally


def disks(expected: dict[str, list], errors: tuple = (errno.ENOSPC, errno.EROFS)) -> Iterator[Tally]:
    """A disk that takes no more of one kind of file, and then does again."""
    for number in errors:
        tally = Tally(f"disk: {os.strerror(number)}")
        for kind in KINDS:
            hit(tally, expected, kind, {"point": "written", "error": number}, os.strerror(number))
        yield tally


def company(expected: dict[str, list], writers: int) -> Tally:
    """Several processes that make the same records at once."""
    tally = Tally(f"{writers} writers at once")
    for what in expected:
        with ground_of(what) as ground:
            processes = [ground.start({}) for _ in range(writers)]
            ends = [(p.communicate(timeout=600)[1], p.returncode) for p in processes]
            wrong = [f"ended with {status}: {err[-200:]}" for err, status in ends if status]
            tally.note(what, wrong + ground.judge(expected[what], "".join(err for err, _ in ends)))
    return tally


ENVIRONMENTS = {
    "no HOME": dict(HOME="unset"),
    "a TMPDIR that is not there": dict(TMPDIR="/nowhere/at/all"),
    "LANG=C": dict(LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii"),
    "TERM=dumb": dict(TERM="dumb"),
    "python -O": {},
}


def environments(expected: dict[str, list]) -> Tally:
    """Odd surroundings, in which the command must do as always."""
    tally = Tally("odd environments")
    for name, changes in ENVIRONMENTS.items():
        with ground_of("count3") as ground:
            process = ground.start({}, ("-O",) * name.endswith("-O"), **changes)
            err = process.communicate(timeout=600)[1]
            wrong = [f"ended with {process.returncode}: {err[-200:]}"] * bool(process.returncode)
            tally.note(name, wrong + ground.differs(expected["count3"]) + ground.judge(expected["count3"], err))
    return tally
