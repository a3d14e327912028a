"""Attacks on a run's own code path, and the epsilon that they prove to be spent at least."""
