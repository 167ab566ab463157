"""The architectures as one stack: ``decoder``, ``prefix_decoder``, ``entp``, and a ``hybrid``."""

from entp_lib.models.transformer import Transformer, build_model, parameter_count

__all__ = ["Transformer", "build_model", "parameter_count"]
