"""The paper's statements as things that run: counts, constructions and checks."""

from entp_lib.theory import costs

# What a StudyConfig may name: a function of JSON arguments that returns (metrics, curves).
STUDIES = {"costs": costs.measure}

__all__ = ["STUDIES"]
