"""Hammer at the project: kills, disks, malformed files, company and odd environments, counted in one table.

    python -m benchmarks.hammer           # about 20 minutes on two cores
    python -m benchmarks.hammer --quick   # about two
    python -m benchmarks.hammer --only malformed disks

After each attack the same command runs in peace and must end in the records of an undisturbed one, with all weights,
no traceback and nothing left behind. Exit status 1 where anything failed.
"""

import argparse
import errno
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence

import pandas as pd
import torch

from benchmarks.hammer.attacks import Tally, company, disks, environments, kills_at_points, kills_at_random, peace
from benchmarks.hammer.inputs import malformed

SEED = 20
KINDS = ("malformed", "points", "random", "disks", "company", "environments")  # the cheap ones first


def attacks(kinds: Sequence[str], quick: bool, tries: int) -> Iterator[Tally]:
    """The attacks of these kinds, with ``tries`` kills by each signal; ``quick`` has fewer of each, and no company."""
    if "malformed" in kinds:
        yield from malformed()
    if set(kinds) == {"malformed"}:
        return
    found = {what: peace(what) for what in ("count3", "text")}
    expected = {what: records for what, (records, _) in found.items()}
    took = {what: seconds for what, (_, seconds) in found.items()}
    if "points" in kinds:
        yield from kills_at_points(expected, *([(signal.SIGKILL,)] if quick else []))
    if "random" in kinds:
        yield from kills_at_random(1 if quick else tries, SEED, expected, took)
    if "disks" in kinds:
        yield from disks(expected, *([(errno.ENOSPC,)] if quick else []))
    if "company" in kinds and not quick:
        yield company(expected, 4)
    if "environments" in kinds and not quick:
        yield environments(expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--tries", type=int, default=26, help="kills at a random moment by each signal (default: 26)")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and theirs, ignore it
    torch.set_num_threads(1)
    logging.getLogger("entp_lib").setLevel(logging.CRITICAL)
    began, tallies = time.monotonic(), []
    for tally in attacks(options.only, options.quick, options.tries):
        tallies.append(tally)
        print(f"{time.monotonic() - began:6.0f} s  {tally.attack}: {len(tally.failures)} of {tally.tries}", flush=True)
        for failure in tally.failures:
            print(f"          {failure}", flush=True)
    table = pd.DataFrame({"attack": t.attack, "tries": t.tries, "failures": len(t.failures)} for t in tallies)
    table.loc[len(table)] = ["all", table["tries"].sum(), table["failures"].sum()]
    print("\n" + table.to_string(index=False))
    return 1 if table["failures"].iloc[-1] else 0


if __name__ == "__main__":
    sys.exit(main())
