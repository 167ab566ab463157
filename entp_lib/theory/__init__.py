"""The paper's statements as things that run: counts, constructions and checks."""

from entp_lib.theory import checks, costs, count3_checks, imitation

# What a StudyConfig may name: a function of JSON arguments that returns (metrics, curves).
STUDIES = {
    "costs": costs.measure,
    "expressivity": checks.expressivity_study,
    "imitation": imitation.imitation_study,
    "programs": count3_checks.programs_study,
    "constructed": count3_checks.constructed_study,
}

__all__ = ["STUDIES"]
