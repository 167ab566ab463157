"""What a determined user, a bad disk and an unlucky night can break: ``python -m benchmarks.hammer``."""
