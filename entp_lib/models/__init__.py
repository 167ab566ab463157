"""The three architectures of the paper as one stack: ``decoder``, ``prefix_decoder`` and ``entp``."""

from entp_lib.models.transformer import Transformer, build_model, parameter_count

__all__ = ["Transformer", "build_model", "parameter_count"]
