"""Measurements of speed and memory. `python -m benchmarks` runs them all."""
