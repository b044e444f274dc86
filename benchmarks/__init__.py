"""Timings beside a peer, in one run. Each file is a command: ``python -m benchmarks.sliders``."""
