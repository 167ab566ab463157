"""Speed and memory, printed and never asserted: run as ``python -m benchmarks.<name>``."""
