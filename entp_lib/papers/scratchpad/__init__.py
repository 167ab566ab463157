"""Inductive scratchpads (Abbe et al. 2024): every state is written from the question and the state before it alone."""

from entp_lib.papers.scratchpad.experiment import SCRATCHPAD, SCRATCHPAD_TRAINING
from entp_lib.papers.scratchpad.format import Example, Scratchpad
from entp_lib.papers.scratchpad.rows import batch_of, chunks, duplicate_states, ordinary
from entp_lib.papers.scratchpad.writing import write

EXPERIMENTS = (SCRATCHPAD, SCRATCHPAD_TRAINING)
NIGHTLY_ORDER = ("scratchpad_training",)  # about two core-hours

__all__ = ["EXPERIMENTS", "Example", "Scratchpad", "batch_of", "chunks", "duplicate_states", "ordinary", "write"]
