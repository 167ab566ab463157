"""Inductive scratchpads (Abbe et al. 2024): a state reads the question and the last state only."""

# Experiments by the name that records carry; values are "module:attribute", from this folder.
EXPERIMENTS = {
    "scratchpad": "experiment:SCRATCHPAD",
    "scratchpad_training": "experiment:SCRATCHPAD_TRAINING",
}

# Study functions by name: they take JSON arguments and return (metrics, curves).
STUDIES = {
    "scratchpad_equivalence": "exact:equivalence_study",
    "scratchpad_writing": "exact:writing_study",
    "scratchpad_reuse": "exact:reuse_study",
    "scratchpad_relative": "exact:relative_study",
    "scratchpad_mixed": "exact:mixed_batch_study",
    "scratchpad_training": "training:training_study",
}

# The order in which a long tier runs its experiments: cheap ones first, so that most questions are
# answered early.
NIGHTLY_ORDER = ("scratchpad_training",)
