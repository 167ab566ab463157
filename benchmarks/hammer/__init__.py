"""Attacks on the project by users, disks and bad nights: ``python -m benchmarks.hammer``."""
