"""Positional schemes, one module each, found by folder: a scheme has the name of its module."""

import importlib

from entp_lib.architectures import POSITIONS
from entp_lib.models.positions.none import Positions


def scheme_of(name: str) -> type[Positions]:
    """The class derived from ``Positions`` that the module of a scheme defines."""
    module = importlib.import_module(f"{__name__}.{name}")
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Positions)]
    return next(kind for kind in kinds if kind.__module__ == module.__name__)


SCHEMES = {name: scheme_of(name) for name in POSITIONS}

__all__ = ["SCHEMES", "Positions"]
