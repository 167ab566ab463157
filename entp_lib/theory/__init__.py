"""The paper's statements as things that run: counts, constructions and checks."""

from entp_lib.theory import costs, count3_checks

# What a StudyConfig may name: a function of JSON arguments that returns (metrics, curves).
STUDIES = {
    "costs": costs.measure,
    "programs": count3_checks.programs_study,
    "constructed": count3_checks.constructed_study,
}

__all__ = ["STUDIES"]
