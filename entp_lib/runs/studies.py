"""Records that the training loop does not make: each study by what records call it, with its module and function.

The names are literal, so that records outlive any move of the code, and nothing here imports a paper.
"""

import importlib
from collections.abc import Callable
from typing import Any

from entp_lib.config import RunConfig, StudyConfig
from entp_lib.strict import one_of

ENTP = "entp_lib.papers.entp"
COMPACT = "entp_lib.papers.compact"
LOOPED = "entp_lib.papers.looped.studies"
SCRATCHPAD = "entp_lib.papers.scratchpad"
ENCODER_DECODER = "entp_lib.papers.encoder_decoder"
# A function of JSON arguments that returns (metrics, curves).
STUDIES = {
    "packed_attention": "entp_lib.models.packed_attention:choice_study",
    "costs": f"{ENTP}.complexity.measurements:measure",
    "expressivity": f"{ENTP}.expressivity.checks:expressivity_study",
    "pairless_bound": f"{ENTP}.pairless:bounds_study",
    "logged_steps": f"{ENTP}.logged:logged_study",
    "counting_probe": f"{ENTP}.shortcut:probe_study",
    "counting_repeats": f"{ENTP}.count3_sets:repeats_study",
    "imitation": f"{ENTP}.expressivity.imitation:imitation_study",
    "programs": f"{ENTP}.rasp.checks:programs_study",
    "constructed": f"{ENTP}.rasp.checks:constructed_study",
    "constructed_decoder": f"{ENTP}.rasp.checks:constructed_decoder_study",
    "below_length": f"{ENTP}.rasp.checks:below_length_study",
    "counters": f"{ENTP}.rasp.checks:counters_study",
    "pronouns": f"{ENTP}.downstream.pronouns:pronouns_study",
    "text_counts": f"{ENTP}.language.counts:counts_study",
    "in_context_baselines": f"{ENTP}.in_context.baselines:baselines_study",
    "pretrained_encoder": f"{ENTP}.pretrained.bert:encoder_study",
    "pretrained_prompts": f"{ENTP}.pretrained.lora:lora_study",
    "pretrained_zero_shot": f"{ENTP}.pretrained.lora:zero_shot_study",
    "pretrained_dry_run": f"{ENTP}.pretrained.dry_run:dry_run_study",
    "pretrained_lifted": f"{ENTP}.pretrained.lora:lifted_study",
    "compact_capacity": f"{COMPACT}.memory_studies:capacity_study",
    "compact_largest_library": f"{COMPACT}.memory_studies:largest_library_study",
    "compact_shatter": f"{COMPACT}.memory_studies:shatter_study",
    "compact_triplets": f"{COMPACT}.graph_studies:triplets_study",
    "compact_walks": f"{COMPACT}.graph_studies:walks_study",
    "compact_abstraction": f"{COMPACT}.abstraction_studies:abstraction_study",
    "compact_last_token": f"{COMPACT}.last_token_studies:last_token_study",
    "compact_addition": f"{COMPACT}.length_studies:addition_study",
    "looped_random_programs": f"{LOOPED}.exact:random_programs_study",
    "looped_library": f"{LOOPED}.exact:library_study",
    "looped_circuits": f"{LOOPED}.exact:circuits_study",
    "looped_copying": f"{LOOPED}.exact:copying_study",
    "looped_drift": f"{LOOPED}.exact:drift_study",
    "looped_temperature": f"{LOOPED}.softmax:temperature_study",
    "looped_off_target": f"{LOOPED}.softmax:off_target_study",
    "looped_masks": f"{LOOPED}.softmax:masks_study",
    "looped_restricted": f"{LOOPED}.softmax:restricted_study",
    "looped_product": f"{LOOPED}.blocks:product_study",
    "looped_sigmoids": f"{LOOPED}.blocks:sigmoids_study",
    "looped_transpose": f"{LOOPED}.blocks:transpose_study",
    "looped_contract": f"{LOOPED}.blocks:contract_study",
    "looped_depth": f"{LOOPED}.blocks:depth_study",
    "looped_fleq": f"{LOOPED}.computing:fleq_study",
    "looped_calculator": f"{LOOPED}.computing:calculator_study",
    "looped_newton": f"{LOOPED}.computing:newton_study",
    "looped_power": f"{LOOPED}.computing:power_study",
    "looped_regression": f"{LOOPED}.learning:regression_study",
    "looped_back_propagation": f"{LOOPED}.learning:back_propagation_study",
    "looped_least_squares": f"{LOOPED}.learning:least_squares_study",
    "looped_sizes": f"{LOOPED}.shown:sizes_study",
    "looped_errata": f"{LOOPED}.shown:errata_study",
    "looped_multiply": f"{LOOPED}.shown:multiply_study",
    "looped_speed": f"{LOOPED}.shown:speed_study",
    "scratchpad_equivalence": f"{SCRATCHPAD}.equivalence:equivalence_study",
    "scratchpad_writing": f"{SCRATCHPAD}.agreement:writing_study",
    "scratchpad_reuse": f"{SCRATCHPAD}.reuse:reuse_study",
    "scratchpad_relative": f"{SCRATCHPAD}.relative:relative_study",
    "scratchpad_training": f"{SCRATCHPAD}.training:training_study",
    "encoder_decoder_bugs": f"{ENCODER_DECODER}.bugs:bugs_study",
    "encoder_decoder_parity": f"{ENCODER_DECODER}.libraries:parity_study",
    "encoder_decoder_masking": f"{ENCODER_DECODER}.libraries:masking_study",
    "encoder_decoder_losses": f"{ENCODER_DECODER}.computing:losses_study",
    "encoder_decoder_sampling": f"{ENCODER_DECODER}.computing:sampling_study",
    "encoder_decoder_caches": f"{ENCODER_DECODER}.computing:caches_study",
    "encoder_decoder_costs": f"{ENCODER_DECODER}.recomputing:costs_study",
    "encoder_decoder_permutations": f"{ENCODER_DECODER}.recomputing:permutations_study",
    "encoder_decoder_coordinates": f"{ENCODER_DECODER}.recomputing:coordinates_study",
    "encoder_decoder_objective": f"{ENCODER_DECODER}.objectives:objective_study",
}


# Studies with a training loop that is kept (``entp_lib.runs.resuming``), and tells its steps.
KEPT = (
    "counting_probe",
    "compact_triplets",
    "compact_walks",
    "compact_abstraction",
    "compact_last_token",
    "compact_addition",
    "scratchpad_training",
    "encoder_decoder_objective",
    "pretrained_encoder",
    "pretrained_prompts",
    "pretrained_lifted",
)


def told_steps(config: RunConfig | StudyConfig) -> int:
    """How many steps a run tells while it goes on: those of its training loop, 1 where it has none."""
    return config.steps if isinstance(config, RunConfig) or config.study in KEPT else 1


def study_named(name: str) -> Callable[..., tuple[dict[str, Any], dict[str, list]]]:
    """The function that the study ``name`` stands for. ConfigError for an unknown name."""
    one_of("study", name, STUDIES)
    module, function = STUDIES[name].split(":")
    return getattr(importlib.import_module(module), function)
