"""Places: found from the package in its repository; without it the library works and says where results may go."""

import os
import shutil
import subprocess
import sys

import pytest

from entp_lib import paths

LIBRARY = """\
import sys
import torch
import entp_lib
from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.models import build_model
from entp_lib.models.decoding import generate
from entp_lib.records.store import Store
from entp_lib.records.sweeps import sweep

assert entp_lib.__file__.startswith(sys.argv[1]), entp_lib.__file__
shape = ModelConfig("entp", 2, 2, 16, 8, 8)
schedule = TrainConfig(6, 4, warmup_steps=1, eval_every=3, eval_sequences=8, final_eval_sequences=8)
run = RunConfig("mine", "smoke", "counting", dict(length=8, seed_length=3, symbols=8), shape, schedule)
(record,) = sweep([run], 1, store=Store(sys.argv[2]), jobs=1).records
print(record.status, record.provenance["commit"])
tokens = generate(build_model(shape).eval(), torch.zeros(1, 3, dtype=torch.long), 4)
print(tuple(tokens.shape))
print(Store().root)
"""


@pytest.fixture
def installed(tmp_path):
    """The package alone, as an installation has it."""
    copy = tmp_path / "site" / "entp_lib"
    shutil.copytree(paths.root() / "entp_lib", copy, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ENTP_")}
    return tmp_path, environment | {"PYTHONPATH": str(copy.parent), "TQDM_DISABLE": "1"}


def test_the_package_trains_and_generates_without_its_repository(installed):
    folder, environment = installed
    command = [sys.executable, "-c", LIBRARY, str(folder), str(folder / "store")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    trained, shape, place = done.stdout.splitlines()
    assert trained == "complete unknown" and shape == "(1, 7)" and place == str(folder / "results")
    assert not any((folder / "site").rglob("*.json"))


def test_commands_that_need_the_repository_say_so(installed):
    folder, environment = installed
    for command in ("claims", "run --only 03"):
        done = subprocess.run(
            [sys.executable, "-m", "entp_lib", *command.split()],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 2 and "clone the repository" in done.stderr, command
        assert len(done.stderr.splitlines()) == 1, done.stderr
