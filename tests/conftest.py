"""Small models and configurations shared by the tests."""

import os

import matplotlib
import pytest
import torch
from hypothesis import settings

from entp_lab import cli
from entp_lab.configs import RunConfig
from entp_lab.store import Store
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.model import build_model

settings.register_profile("any machine", deadline=None)  # a first call or a busy core may be slow
settings.load_profile("any machine")


def seeded(seed):
    """A generator of random numbers that depend on the seed alone."""
    return torch.Generator().manual_seed(seed)


def everywhere(inputs):
    """Scored positions: all of them."""
    return torch.ones(inputs.shape[:2], dtype=torch.bool)


# The schedule of a run that is only to have been made.
BRIEF = dict(warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8)


@torch.no_grad()
def spread(model, seed=0):
    """Weights larger than the initial 0.02, so that attention and order matter, and biases that are
    not 0.
    """
    generator = seeded(seed)
    for p in model.parameters():
        p.mul_(8) if p.dim() > 1 else p.add_(
            torch.randn(p.shape, generator=generator).to(p), alpha=0.3
        )


matplotlib.use("agg")
for name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[name]  # inside of a hook they are of the repository that is committed to


@pytest.fixture(autouse=True)
def one_thread():
    """Results must not depend on how many cores the tests get."""
    torch.set_num_threads(1)


def model_of(architecture="entp", seed=0, dtype=torch.float64, **changes):
    """A model of width 16, double precision unless told otherwise, whose weights matter."""
    shape = dict(n_layers=2, n_heads=2, width=16, vocab_size=11, max_length=12)
    model = build_model(ModelConfig(architecture=architecture, **(shape | changes)), seed)
    spread(model, seed)
    return model.to(dtype).eval()


@pytest.fixture
def small_model():
    """``model_of``, for tests that import nothing from here."""
    return model_of


@pytest.fixture
def small_run():
    """A function that builds the configuration of a Count3 run of a second or less."""

    def build(architecture="decoder", seed=0, model=None, task=None, experiment="test", **train):
        task_params = dict(length=8, seed_length=3, symbols=8) | (task or {})
        schedule = dict(
            steps=12,
            batch_size=8,
            warmup_steps=3,
            eval_every=4,
            eval_sequences=32,
            final_eval_sequences=64,
        )
        shape = dict(n_layers=2, n_heads=2, width=16, vocab_size=8, max_length=8) | (model or {})
        return RunConfig(
            experiment,
            "smoke",
            "counting",
            task_params,
            ModelConfig(architecture=architecture, **shape),
            TrainConfig(**(schedule | train)),
            model_seed=seed,
            data_seed=seed,
        )

    return build


@pytest.fixture
def store(tmp_path):
    """A writable store of the test's own."""
    return Store(tmp_path / "results", read_only=False)


@pytest.fixture
def apart(tmp_path):
    """Another store, for the same runs where nothing interrupts them."""
    return Store(tmp_path / "apart", read_only=False)


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The project's results folder, here of the test's own and to be written to."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    return tmp_path


@pytest.fixture
def refusal(capsys):
    """A function that gives a command and returns the line by which it is refused."""

    def run(command):
        assert cli.main(command.split()) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("entp: ")
        return line

    return run
