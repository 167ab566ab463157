"""Runs side by side against the same runs one after the other."""

import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.compact import side_by_side
from entp_papers.compact.memory_model import MemoryConfig
from entp_papers.compact.side_by_side import Progress, Schedule

CFG = MemoryConfig(symbols=8, length=5, width=12, head_width=6, n_heads=2)


def libraries(runs, sequences=24):
    return torch.stack([side_by_side.random_library(CFG, sequences, seed) for seed in range(runs)])


@pytest.mark.parametrize("changes", [{}, dict(n_layers=2), dict(n_layers=2, architecture="entp", feed_forward="none")])
def test_the_same_as_one_after_the_other(changes):
    cfg = MemoryConfig(**{**vars(CFG), **changes})
    schedule = Schedule(epochs=6, batch_size=8, count_every=2)
    together = side_by_side.train(cfg, schedule, libraries(3), [0, 1, 2])
    for run in range(3):
        alone = side_by_side.train(cfg, schedule, libraries(3)[run : run + 1], [run])
        torch.testing.assert_close(together.losses_RC[run], alone.losses_RC[0], rtol=1e-4, atol=1e-4)


def test_a_small_library_is_learned_by_heart_and_runs_end_there():
    schedule = Schedule(epochs=200, batch_size=8, rate=1e-2, count_every=1, until_all=True)
    outcome = side_by_side.train(CFG, schedule, libraries(2, 12), [0, 1])
    assert outcome.best_R.tolist() == [12, 12]
    assert 0 < int(outcome.ended_R.max()) < 200 and outcome.epochs_C[-1] == int(outcome.ended_R.max())
    assert outcome.losses_RC[:, -1].max() < outcome.losses_RC[:, 0].min()


def test_a_run_without_patience_left_keeps_its_best():
    progress = Progress(Schedule(patience=2), 2, 100)
    for epoch, right in enumerate([[5, 5], [4, 6], [3, 7], [90, 8]], 1):
        done = progress.add(epoch, torch.tensor(right), torch.zeros(2))
    assert progress.best_R.tolist() == [5, 8] and progress.ended_R.tolist() == [3, 0] and not done


def test_epochs_by_steps():
    assert Schedule(steps=100, batch_size=10).passes(95) == 10
    assert Schedule(epochs=7, batch_size=10).passes(95) == 7


def test_libraries_grow_without_changing():
    assert torch.equal(side_by_side.random_library(CFG, 20, 3)[:8], side_by_side.random_library(CFG, 8, 3))


def test_bad_input():
    with pytest.raises(ConfigError, match="2 seeds for 3 libraries"):
        side_by_side.train(CFG, Schedule(), libraries(3), [0, 1])
    with pytest.raises(ConfigError, match="can index only 8 symbols"):
        side_by_side.train(CFG, Schedule(), libraries(1) + 8, [0])
    with pytest.raises(ConfigError, match="batch_size = 0"):
        Schedule(batch_size=0)
