"""Positional schemes, one file each, and the registry that names them: a new one is a file here and its two lines.

``entp_lib.architectures.POSITIONS`` has the same names, since configurations must not import models.
"""

from entp_lib.models.positions.alibi import Alibi
from entp_lib.models.positions.base import Positions
from entp_lib.models.positions.learned import Learned
from entp_lib.models.positions.rotary import Rotary

SCHEMES: dict[str, type[Positions]] = {"learned": Learned, "none": Positions, "rotary": Rotary, "alibi": Alibi}

__all__ = ["SCHEMES", "Alibi", "Learned", "Positions", "Rotary"]
