"""Records that no training makes: each study is named by what records call it and found by its module and function.

The names are literal, so that records outlive any move of the code, and nothing here imports a paper.
"""

import importlib
from collections.abc import Callable
from typing import Any

from entp_lib.strict import one_of

ENTP = "entp_lib.papers.entp"
COMPACT = "entp_lib.papers.compact"
# A function of JSON arguments that returns (metrics, curves).
STUDIES = {
    "costs": f"{ENTP}.complexity.measurements:measure",
    "expressivity": f"{ENTP}.expressivity.checks:expressivity_study",
    "imitation": f"{ENTP}.expressivity.imitation:imitation_study",
    "programs": f"{ENTP}.rasp.checks:programs_study",
    "constructed": f"{ENTP}.rasp.checks:constructed_study",
    "below_length": f"{ENTP}.rasp.checks:below_length_study",
    "counters": f"{ENTP}.rasp.checks:counters_study",
    "pronouns": f"{ENTP}.downstream.pronouns:pronouns_study",
    "in_context_baselines": f"{ENTP}.in_context.baselines:baselines_study",
    "compact_capacity": f"{COMPACT}.memory_studies:capacity_study",
    "compact_largest_library": f"{COMPACT}.memory_studies:largest_library_study",
    "compact_shatter": f"{COMPACT}.memory_studies:shatter_study",
    "compact_triplets": f"{COMPACT}.graph_studies:triplets_study",
    "compact_walks": f"{COMPACT}.graph_studies:walks_study",
    "compact_abstraction": f"{COMPACT}.abstraction_studies:abstraction_study",
    "compact_addition": f"{COMPACT}.length_studies:addition_study",
}


def study_named(name: str) -> Callable[..., tuple[dict[str, Any], dict[str, list]]]:
    """The function that the study ``name`` stands for. ConfigError for an unknown name."""
    one_of("study", name, STUDIES)
    module, function = STUDIES[name].split(":")
    return getattr(importlib.import_module(module), function)
