"""Attacks on a run's own code path. Each proves a lower bound of the spent epsilon."""
