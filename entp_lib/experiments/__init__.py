"""Experiments as tables, budgets, claims with their verdicts, frames and figures, for every paper."""
