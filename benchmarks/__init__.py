"""Measurements of what fedpriv promises. `python -m benchmarks` runs them all."""
