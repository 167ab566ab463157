"""Studies of notebook 11: functions of JSON arguments that return (metrics, curves), and their common parts."""

from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from entp_lib.validation import one_of

Study = tuple[dict[str, Any], dict[str, list]]
PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}


def precision(name: str) -> torch.dtype:
    """The dtype of a name; ConfigError for an unknown one."""
    one_of("precision", name, PRECISIONS)
    return PRECISIONS[name]


def columns(rows: list[dict]) -> dict[str, list]:
    """A list per name, from a dictionary per row."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def largest(x: ndarray | Tensor) -> float:
    """The largest absolute value of an array."""
    return float(abs(x).max())


def slope(rows: list[dict], x: str = "delta", y: str = "error") -> float:
    """Of log y against log x, by least squares; 0 for fewer than two points."""
    if len(rows) < 2:
        return 0.0
    return float(np.polyfit(np.log([r[x] for r in rows]), np.log([r[y] for r in rows]), 1)[0])
