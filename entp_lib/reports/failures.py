"""Why a notebook failed, in a line: a check that says nothing is told by its own words."""

import re
from collections.abc import Sequence

ARROW = re.compile(r"^-+>\s*\d+\s(.*)$", re.MULTILINE)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def in_words(name: str, value: str, traceback: Sequence[str] = (), partial: int = 0) -> str:
    """An error as one line: its name and text, or the line of code that raised it where it has no text.

    ``traceback``: as Jupyter gives it, coloured. ``partial``: how many runs of the notebook a time limit cut short,
    which is why checks of whole tables fail.
    """
    lines = ARROW.findall(COLOURS.sub("", "\n".join(traceback)))
    text = value.strip() or (f"this does not hold: {lines[-1].strip()}" if lines else "without a word")
    if partial:
        text += f"; {partial} runs are partial, as the time limit cut them: the same command continues them"
    return f"{name}: {text}"
