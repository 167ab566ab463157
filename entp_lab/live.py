"""Cells of notebooks that train models while the reader waits."""

import os

VARIABLE = "ENTP_LIVE"
FEW = 20  # enough to go through the code


def steps(count: int) -> int:
    """Return how many steps a live cell makes: ``count``, or few where ``ENTP_LIVE=short``, as in tests.

    ``./run_all.sh`` sets it, too, unless it is asked for single notebooks or to update the committed ones.
    """
    return min(count, FEW) if os.environ.get(VARIABLE) == "short" else count
