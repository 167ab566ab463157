"""Studies of notebook 11: functions of JSON arguments that return (metrics, curves), and their common parts."""

import numpy as np
import torch

from entp_lib.validation import one_of

PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}


def precision(name: str) -> torch.dtype:
    """The dtype of a name; ConfigError for an unknown one."""
    one_of("precision", name, PRECISIONS)
    return PRECISIONS[name]


def slope(rows: list[dict], x: str = "delta", y: str = "error") -> float:
    """Of log y against log x, by least squares; 0 for fewer than two points."""
    if len(rows) < 2:
        return 0.0
    return float(np.polyfit(np.log([r[x] for r in rows]), np.log([r[y] for r in rows]), 1)[0])
