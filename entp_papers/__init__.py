"""Experiments and studies of the papers, a folder each; ``entp_lab.registry`` finds them by name."""

# The order in which reports tell of them; folders of one's own follow.
ORDER = ("entp", "looped", "scratchpad", "compact", "encoder_decoder")
