"""Inductive scratchpads (Abbe et al. 2024): every state is written from the question and the state before it alone."""

from entp_lib.papers.scratchpad.experiment import SCRATCHPAD, SCRATCHPAD_TRAINING
from entp_lib.papers.scratchpad.format import Example, Scratchpad

EXPERIMENTS = (SCRATCHPAD, SCRATCHPAD_TRAINING)

__all__ = ["EXPERIMENTS", "Example", "Scratchpad"]
