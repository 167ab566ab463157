"""Times that a user waits: import, a smoke notebook, ``run_all.sh`` from records, and the size of the repository.

    python -m benchmarks.everyday            # prints the table
    python -m benchmarks.everyday --tests    # with ./run_tests.sh, which takes minutes

Times are medians over repetitions where that is cheap, with the limit that the project set itself.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import pandas as pd

from entp_lab import paths
from entp_lab.notebooks import notebook_paths
from entp_lab.provenance import available_cores, device_name, git_environment


def seconds(command: list[str], repeat: int = 1, **environment: str) -> float:
    """Median wall seconds of a command that must succeed, run from the root."""
    times = []
    for _ in range(repeat):
        began = time.monotonic()
        subprocess.run(
            command, cwd=paths.root(), env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL
        )
        times.append(time.monotonic() - began)
    return statistics.median(times)


def tracked_megabytes() -> float:
    """Size of all files that git tracks, in MB."""
    names = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=paths.root(),
        env=git_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [paths.root() / name for name in names.stdout.split("\0") if name]
    return sum(path.stat().st_size for path in found if path.exists()) / 1e6


def measure(tests: bool) -> pd.DataFrame:
    """One row per promise: what, measured, unit, limit."""
    imports = {"import entp_lab.store": "import entp_lab.store", "import all a notebook needs": IMPORT_ALL}
    rows = [(name, seconds([sys.executable, "-c", code], repeat=5), "s", 3) for name, code in imports.items()]
    for path in notebook_paths():
        with tempfile.TemporaryDirectory() as folder:
            smoke = [sys.executable, "-m", "entp_lab", "run", "--tier", "smoke", "--only", paths.number_of(path.stem)]
            rows.append((f"smoke {path.stem}", seconds(smoke, ENTP_RESULTS=folder, ENTP_FIGURES=folder), "s", 20))
    rows.append(("./run_all.sh from records", seconds(["./run_all.sh"]), "s", 180))
    if tests:
        rows.append(("./run_tests.sh", seconds(["./run_tests.sh"]), "s", 900))
    rows.append(("tracked files", tracked_megabytes(), "MB", 30))
    largest = max(path.stat().st_size for path in notebook_paths()) / 1024
    rows.append(("largest notebook", largest, "KiB", 500))
    return pd.DataFrame(rows, columns=["what", "measured", "unit", "limit"])


IMPORT_ALL = "import entp_papers, entp_lab.figures, entp_lab.claims, entp_lib.training"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="time ./run_tests.sh too")
    options = parser.parse_args()
    table = measure(options.tests)
    print(f"{device_name('cpu')}, {available_cores()} cores")
    print(table.round(1).to_string(index=False))


if __name__ == "__main__":
    main()
