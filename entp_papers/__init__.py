"""Experiments and studies of the papers, a folder each; ``entp_lab.registry`` finds them by name."""

# The papers' titles, in the order of the reports; other folders follow, under their names.
TITLES = {
    "entp": "ENTP",
    "looped": "Looped Transformers",
    "scratchpad": "The inductive scratchpad",
    "compact": "Compact Transformers",
    "encoder_decoder": "Encoder-only and decoder-only models",
}
