"""Speed of the looped computer: passes per second by length, batch and precision, and of numpy with the same weights.

    python -m benchmarks.looped            # prints the table, and 1,000 random programs for 50 passes with their limit

All rows are measured in one run on all cores that torch gets; the restricted form is exact (``docs``: notebook 11).
"""

import argparse
import time

import pandas as pd
import torch

from entp_papers.looped.programs import random_programs
from entp_papers.looped.subleq import Shape, SubleqMachine, states
from entp_papers.looped.subleq_studies import speed_study

LIMIT = 20.0  # seconds for 1,000 programs of 50 passes, n about 20


@torch.inference_mode()
def thousand_programs(programs: int = 1000, steps: int = 50, chunk: int = 50) -> float:
    """Seconds for ``steps`` passes of random programs on 21 tokens, fp32, the sparse form."""
    shape = Shape(8, 10, 10)
    on = SubleqMachine(shape, torch.float32)
    stack, x = on.sparse(), states(on, random_programs(shape, programs))
    began = time.perf_counter()
    for part in x.split(chunk):
        for _ in range(steps):
            part = stack(part)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="per row")
    seconds = parser.parse_args().seconds
    _, curves = speed_study([21, 65, 257], [1, 32], seconds)
    table = pd.DataFrame(curves).pivot_table(
        index=["tokens", "batch", "precision"], columns="form", values="passes_per_second", sort=False
    )
    print(table.round(0).to_string())
    print(f"1,000 programs, 50 passes, 21 tokens: {thousand_programs():.1f} s on {torch.get_num_threads()} threads")
    print(f"limit {LIMIT:g} s on two cores")


if __name__ == "__main__":
    main()
