"""Cells of notebooks that train models while the reader waits."""

import os
from typing import Any

from entp_lab.stopping import Stopped
from entp_lib.validation import Json, positive, require

VARIABLE = "ENTP_LIVE"
FEW = 2  # steps, enough to run all of the code
STOPPED = "interrupted; run the cell again to start it over"


def steps(count: int, tier: str) -> int:
    """Return how many steps a live cell makes: ``count``, or a few at tier ``smoke`` and if ``ENTP_LIVE=short``.

    Tests set this variable, and so does ``./run_all.sh`` unless it is asked for single notebooks or for an update.
    """
    positive("steps", count)
    is_short = tier == "smoke" or os.environ.get(VARIABLE) == "short"
    return min(count, FEW) if is_short else count


def shape(width: int, heads: int, layers: int, **more: Any) -> Json:
    """Return the size of a live cell's model; ConfigError for one that cannot be built."""
    size = {"width": width, "heads": heads, "layers": layers}
    for name, value in size.items():
        positive(name, value)
    require(width % heads == 0, f"width = {width}: must be a multiple of heads = {heads}")
    return size | more


def answer_interrupts() -> None:
    """Make a notebook report an interrupt in one line: it is no mistake, and a traceback would hide the output."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell:
        shell.set_custom_exc((KeyboardInterrupt,), report)


def report(shell: Any, kind: type, value: BaseException, *_: Any, **__: Any) -> None:
    """Print an interrupt in one line: a sweep's own, which says what it keeps, or that the cell starts over."""
    print(value if isinstance(value, Stopped) else STOPPED)
