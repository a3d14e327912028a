"""Averages without a server by the alternating direction method of multipliers."""
