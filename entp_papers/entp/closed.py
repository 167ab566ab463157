"""Experiments whose runs are finished, and listed beside their records."""

from typing import Any

from entp_lab.experiment import Closed, Experiment, no_claims


def closed(name: str, title: str, notebook: str, measure=no_claims, **options: Any) -> Experiment:
    """Make a finished experiment; ``options``: further fields of ``Experiment``."""
    return Experiment(name, 1, title, notebook, Closed(name), measure, **options)
