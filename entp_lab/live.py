"""Cells of notebooks that train models while the reader waits."""

import os

VARIABLE = "ENTP_LIVE"
FEW = 2  # enough to go through the code


def steps(count: int, tier: str = "best") -> int:
    """Return how many steps a live cell makes: ``count``, or few at tier ``smoke`` and where ``ENTP_LIVE=short``.

    Tests set that, and ``./run_all.sh`` unless it is asked for single notebooks or to update the committed ones.
    """
    is_short = tier == "smoke" or os.environ.get(VARIABLE) == "short"
    return min(count, FEW) if is_short else count
