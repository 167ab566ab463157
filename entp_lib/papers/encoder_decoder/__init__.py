"""Encoder-only and decoder-only models: a primer, its bugs, its parts rightly built, and three objectives compared."""

from entp_lib.papers.encoder_decoder.experiment import ENCODER_DECODER, OBJECTIVES

EXPERIMENTS = (ENCODER_DECODER, OBJECTIVES)
