"""Experiments in private federated learning whose every epsilon is certified."""

__version__ = "0.1.0"
