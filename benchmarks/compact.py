"""Many small models in one batched model against one after the other: ``python -m benchmarks.compact``.

    python -m benchmarks.compact                  # three shapes of the memorisation sweeps, in turn, three rounds
    python -m benchmarks.compact --rounds 5 --json rows.json

Both ways train the same runs (same weights, libraries and order of batches). ``ratio`` is the seconds of one after the
other divided by those of side by side, measured in turn in one process; ``differ`` is the largest difference of a
mean loss between the two, which should be 0 or a rounding.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import pandas as pd
import torch

from entp_papers.compact import memory
from entp_papers.compact.memory import MemoryConfig, Schedule, random_library

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
    """Median, lowest and highest ratio of seconds over ``rounds``, and the largest difference of a mean loss."""
    seeds = list(range(runs))
    libraries = torch.stack([random_library(cfg, library, seed) for seed in seeds])

    def together():
        return memory.train(cfg, schedule, libraries, seeds).losses_RC

    def one_by_one():
        found = [memory.train(cfg, schedule, libraries[r : r + 1], seeds[r : r + 1]).losses_RC for r in seeds]
        return torch.cat(found)

    ratios, differ = [], 0.0
    for _ in range(rounds):
        (batched, ours), (separate, theirs) = timed(together), timed(one_by_one)
        ratios.append(theirs / ours)
        differ = max(differ, float((batched - separate).abs().max()))
    return {
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "differ": differ,
    }


def timed(work) -> tuple[torch.Tensor, float]:
    """What ``work`` returns, and the processor seconds that it took."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the table as rows, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [{"case": name, **compare(*case, options.rounds)} for name, case in CASES.items()]
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
