"""Inductive scratchpads (Abbe et al. 2024): every state is written from the question and the state before it alone."""

EXPERIMENTS = ()
