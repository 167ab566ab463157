"""The paper's statements as things that run: counts, constructions and checks."""

from entp_lib.baselines import baselines_study
from entp_lib.tasks import winogrande
from entp_lib.theory import checks, costs, count3_checks, imitation
from entp_lib.theory.constructed import constructed_count3
from entp_lib.theory.expressivity import refute_decoder, refute_encoder

# What a StudyConfig may name: a function of JSON arguments that returns (metrics, curves).
STUDIES = {
    "costs": costs.measure,
    "expressivity": checks.expressivity_study,
    "imitation": imitation.imitation_study,
    "programs": count3_checks.programs_study,
    "constructed": count3_checks.constructed_study,
    "pronouns": winogrande.pronouns_study,
    "in_context_baselines": baselines_study,
}

__all__ = ["STUDIES", "constructed_count3", "refute_decoder", "refute_encoder"]
