"""Many small models in one batched model against one after the other: ``python -m benchmarks.compact``.

    python -m benchmarks.compact                  # three shapes of the memorisation sweeps, in turn, three rounds
    python -m benchmarks.compact --rounds 5 --json rows.json

Both ways train the same runs (same weights, libraries and order of batches). Ratios are processor seconds of one after
the other over those of the batched model, measured in turn; ``differ`` is the largest difference of a mean loss
between the two, which should be 0 or a rounding.
"""

import time

import pandas as pd
import torch

from benchmarks import in_turn, parser_of, show
from entp_papers.compact import memory
from entp_papers.compact.memory import MemoryConfig, Schedule

# name: model, runs, sequences of a library, schedule; figure 8's, and two of the sweep of capacity
CASES = {
    "figure 8, width 16, 50 runs": (MemoryConfig(width=16, head_width=8), 50, 16, Schedule(epochs=40, batch_size=16)),
    "sweep, width 16, 5 runs": (MemoryConfig(symbols=64, width=16, head_width=16), 5, 1024, Schedule(epochs=8)),
    "two layers, width 24, 3 runs": (
        MemoryConfig(symbols=64, width=24, n_heads=2, head_width=12, n_layers=2),
        3,
        1024,
        Schedule(epochs=8),
    ),
}


def compare(cfg: MemoryConfig, runs: int, library: int, schedule: Schedule, rounds: int) -> dict[str, float]:
    """Ratios of processor seconds over ``rounds``, and the largest difference of a mean loss."""
    seeds = range(runs)

    def together():
        return memory.train(cfg, schedule, library, seeds).losses_RC

    def one_by_one():
        found = [memory.train(cfg, schedule, library, [seed]).losses_RC for seed in seeds]
        return torch.cat(found)

    def seconds(work) -> float:
        began = time.process_time()
        losses[work.__name__] = work()
        return time.process_time() - began

    losses: dict[str, torch.Tensor] = {}
    found = in_turn(together, one_by_one, rounds, seconds)
    return found | {"differ": float((losses["together"] - losses["one_by_one"]).abs().max())}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [{"case": name, **compare(*case, options.rounds)} for name, case in CASES.items()]
    show(pd.DataFrame(rows), 3, options.json)


if __name__ == "__main__":
    main()
