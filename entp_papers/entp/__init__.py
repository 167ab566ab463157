"""The paper itself, *ENTP: Encoder-only Next Token Prediction*, section by section."""

# Experiments by the name that records carry; values are "module:attribute", from this folder.
EXPERIMENTS = {
    "expressivity": "expressivity.experiment:EXPRESSIVITY",
    "complexity": "complexity.experiment:COMPLEXITY",
    "training_steps": "complexity.training_steps:TRAINING_STEPS",
    "count3": "count3:COUNT3",
    "count3_unseen": "count3:COUNT3_UNSEEN",
    "count3_sets": "count3:COUNT3_SETS",
    "count3_unseen_sets": "count3:COUNT3_UNSEEN_SETS",
    "count3_long": "pilot_runs:COUNT3_LONG",
    "count3_long_pairs": "pilot_runs:COUNT3_LONG_PAIRS",
    "count3_long_all": "pilot_runs:COUNT3_LONG_ALL",
    "count3_repeats": "count3_studies:COUNT3_REPEATS",
    "count3_bounds": "pairless:COUNT3_BOUNDS",
    "count3_probe": "count3_studies:COUNT3_PROBE",
    "authors_log": "logged:AUTHORS_LOG",
    "full_layers": "full_layers:FULL_LAYER_RUNS",
    "pretrained_encoder": "pretrained.experiments:PRETRAINED_ENCODER",
    "pretrained_prompts": "pretrained.experiments:PRETRAINED_PROMPTS",
    "pretrained_lifted": "pretrained.experiments:PRETRAINED_LIFTED",
    "pretrained_provider": "pretrained.experiments:PRETRAINED_PROVIDER",
    "match3": "match3:MATCH3",
    "rasp": "rasp.experiment:RASP",
    "chain_of_thought": "rasp.trained:CHAIN_OF_THOUGHT",
    "depth": "rasp.trained:DEPTH",
    "addition": "addition.experiment:ADDITION",
    "addition_to_999": "addition.experiment:ADDITION_TO_999",
    "addition_lengths": "addition.lengths:LENGTHS",
    "addition_four_digits": "pilot_runs:ADDITION_FOUR_DIGITS",
    "in_context": "in_context.experiment:IN_CONTEXT",
    "in_context_sparse": "in_context.experiment:IN_CONTEXT_SPARSE",
    "in_context_rates": "in_context.experiment:IN_CONTEXT_RATES",
    "in_context_wider": "in_context.experiment:IN_CONTEXT_WIDER",
    "in_context_wider_sparse": "in_context.experiment:IN_CONTEXT_WIDER_SPARSE",
    "in_context_network": "in_context.experiment:IN_CONTEXT_NETWORK",
    "in_context_tree": "in_context.experiment:IN_CONTEXT_TREE",
    "in_context_settings": "in_context.experiment:IN_CONTEXT_SETTINGS",
    "in_context_baselines": "in_context.experiment:IN_CONTEXT_BASELINES",
    "openwebtext": "language.experiment:OPENWEBTEXT",
    "shakespeare": "language.experiment:SHAKESPEARE",
    "downstream": "downstream.experiment:DOWNSTREAM",
    "pronouns": "downstream.experiment:PRONOUNS",
    "count3_operations": "equal_operations:COUNT3_OPERATIONS",
    "match3_operations": "equal_operations:MATCH3_OPERATIONS",
    "in_context_operations": "equal_operations:IN_CONTEXT_OPERATIONS",
    "in_context_wider_operations": "equal_operations:WIDER_OPERATIONS",
    "openwebtext_operations": "equal_operations:TEXT_OPERATIONS",
    "openwebtext_positions": "deciding:TEXT_POSITIONS",
    "text_rising_rate": "deciding:TEXT_RISING_RATE",
    "match3_rates": "deciding:MATCH3_RATES",
    "match3_own_rates": "deciding:MATCH3_OWN_RATES",
    "match3_ascending": "deciding:MATCH3_ASCENDING",
    "match3_either_way": "deciding:MATCH3_EITHER_WAY",
    "match3_end": "deciding:MATCH3_END",
    "count3_gate": "count3_steps:COUNT3_GATE",
    "count3_end": "count3_steps:COUNT3_END",
    "count3_whole": "count3_steps:COUNT3_WHOLE",
    "addition_windows": "deciding:ADDITION_WINDOWS",
    "text_own_rates": "own_rates:TEXT_OWN_RATES",
    "linear_own_rates": "own_rates:LINEAR_OWN_RATES",
    "sets_own_rates": "own_rates:SETS_OWN_RATES",
    "linear_falling_rates": "in_context.experiment:LINEAR_FALLING",
    "sets_falling_rates": "equal_operations:SETS_OPERATIONS",
    "text_falling_rates": "deciding:TEXT_FALLING",
    "linear_larger_decoders": "equal_operations:LINEAR_LARGER",
    "match3_larger": "equal_operations:MATCH3_LARGER",
}

# Tasks defined in this folder; records name them like the tasks of ``entp_lib.tasks``.
TASKS = {"clutrr": "downstream.clutrr:Clutrr"}

# Study functions by name: they take JSON arguments and return (metrics, curves).
STUDIES = {
    "costs": "complexity.measurements:measure",
    "training_steps": "complexity.training_steps:steps_study",
    "expressivity": "expressivity.checks:expressivity_study",
    "pairless_bound": "pairless:bounds_study",
    "logged_steps": "logged:logged_study",
    "counting_probe": "count3_studies:probe_study",
    "counting_repeats": "count3_studies:repeats_study",
    "imitation": "expressivity.imitation:imitation_study",
    "programs": "rasp.studies:programs_study",
    "constructed": "rasp.studies:constructed_study",
    "constructed_decoder": "rasp.studies:constructed_decoder_study",
    "below_length": "rasp.studies:below_length_study",
    "counters": "rasp.studies:counters_study",
    "pronouns": "downstream.pronouns:pronouns_study",
    "text_counts": "language.tables:counts_study",
    "in_context_baselines": "in_context.baselines:baselines_study",
    "pretrained_encoder": "pretrained.studies:encoder_study",
    "pretrained_prompts": "pretrained.studies:lora_study",
    "pretrained_zero_shot": "pretrained.studies:zero_shot_study",
    "pretrained_dry_run": "pretrained.studies:dry_run_study",
    "pretrained_lifted": "pretrained.studies:lifted_study",
}

# The order in which a long tier runs its experiments: cheap ones first, so that most questions are
# answered early.
NIGHTLY_ORDER = tuple(
    (
        "count3_repeats count3 match3 openwebtext addition_lengths in_context_baselines "
        "count3_unseen full_layers addition_four_digits count3_long in_context addition "
        "in_context_sparse match3_operations openwebtext_operations count3_operations "
        "in_context_operations count3_long_pairs count3_sets count3_unseen_sets count3_long_all "
        "openwebtext_positions match3_rates match3_own_rates match3_end count3_gate count3_end "
        "count3_whole addition_windows in_context_rates in_context_wider "
        "in_context_wider_operations in_context_wider_sparse linear_own_rates text_own_rates "
        "sets_own_rates linear_falling_rates sets_falling_rates text_falling_rates "
        "match3_ascending match3_either_way linear_larger_decoders match3_larger"
    ).split()
)
