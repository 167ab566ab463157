"""Inductive scratchpads (Abbe et al. 2024): a state reads the question and the last state only."""

# Of this folder, as "module:attribute", by the name that records carry.
EXPERIMENTS = {
    "scratchpad": "experiment:SCRATCHPAD",
    "scratchpad_training": "experiment:SCRATCHPAD_TRAINING",
}

# Functions of JSON arguments that return (metrics, curves).
STUDIES = {
    "scratchpad_equivalence": "exact:equivalence_study",
    "scratchpad_writing": "exact:writing_study",
    "scratchpad_reuse": "exact:reuse_study",
    "scratchpad_relative": "exact:relative_study",
    "scratchpad_mixed": "exact:mixed_batch_study",
    "scratchpad_training": "training:training_study",
}

# Studies with a training loop that continues from a checkpoint (``entp_lab.resume``).
RESUMABLE = ("scratchpad_training",)

# In which order the runs of a long tier are made: the cheap ones first, so that most questions are
# whole early.
NIGHTLY_ORDER = ("scratchpad_training",)
