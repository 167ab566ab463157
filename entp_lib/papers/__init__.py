"""The papers, a folder each, and the registry of their experiments by the name that records carry."""

from entp_lib.papers import compact, encoder_decoder, entp, looped, scratchpad

PAPERS = (entp, looped, scratchpad, compact, encoder_decoder)
EXPERIMENTS = {experiment.name: experiment for paper in PAPERS for experiment in paper.EXPERIMENTS}
NIGHTLY_ORDER = tuple(name for paper in PAPERS for name in getattr(paper, "NIGHTLY_ORDER", ()))
