"""The paper's tasks with inductive scratchpads, one file each, and the literal registry that names them.

Formats are those of the authors' public code (github.com/aryol/inductive-scratchpad), as the paper's appendix names
only one of the tasks.
"""

from entp_papers.scratchpad.problems.base import Problem
from entp_papers.scratchpad.problems.cycles import TwoCycles
from entp_papers.scratchpad.problems.parity import SpacedParity
from entp_papers.scratchpad.problems.shift import ShiftAddition
from entp_papers.scratchpad.problems.spaced_addition import SpacedAddition

PROBLEMS: dict[str, type[Problem]] = {
    "parity": SpacedParity,
    "spaced_addition": SpacedAddition,
    "shift_addition": ShiftAddition,
    "two_cycles": TwoCycles,
}

__all__ = ["PROBLEMS", "Problem", "ShiftAddition", "SpacedAddition", "SpacedParity", "TwoCycles"]
