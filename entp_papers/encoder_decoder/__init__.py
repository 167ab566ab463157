"""Encoder-only and decoder-only models: a primer, its corrected bugs, and three objectives."""

# Experiments by the name that records carry; values are "module:attribute", from this folder.
EXPERIMENTS = {
    "encoder_decoder": "experiment:ENCODER_DECODER",
    "objectives": "experiment:OBJECTIVES",
    "encoder_decoder_pretraining": "experiment:PRETRAINING",
}

# Study functions by name: they take JSON arguments and return (metrics, curves).
STUDIES = {
    "encoder_decoder_bugs": "bugs:bugs_study",
    "encoder_decoder_parity": "libraries:parity_study",
    "encoder_decoder_masking": "libraries:masking_study",
    "encoder_decoder_losses": "computing:losses_study",
    "encoder_decoder_sampling": "computing:sampling_study",
    "encoder_decoder_caches": "computing:caches_study",
    "encoder_decoder_costs": "computing:costs_study",
    "encoder_decoder_permutations": "computing:permutations_study",
    "encoder_decoder_coordinates": "computing:coordinates_study",
    "encoder_decoder_objective": "objectives:objective_study",
    "encoder_decoder_heads": "libraries:heads_study",
    "encoder_decoder_parameters": "libraries:parameters_study",
    "encoder_decoder_pretraining": "pretraining:pretraining_study",
    "encoder_decoder_tuning": "pretraining:tuning_study",
}
