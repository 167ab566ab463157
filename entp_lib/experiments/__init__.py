"""What experiments, claims and figures of every paper are made of."""
