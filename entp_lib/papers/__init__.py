"""The papers, a folder each, and the registry of their experiments by the name that records carry."""

from entp_lib.papers import entp

EXPERIMENTS = {experiment.name: experiment for paper in (entp,) for experiment in paper.EXPERIMENTS}
