"""Whole runs inside a test's process."""

from __future__ import annotations

from fedpriv.settings.experiment import Experiment
from fedpriv.testing import experiments


def experiment(*words: str) -> Experiment:
    """The experiment of a command line, with eight users and one local epoch unless the words say
    otherwise."""
    return experiments.experiment(
        "preset.local_epochs=1", "preset.silo_epochs=1", "preset.n_users=8", *words
    )
