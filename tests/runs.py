"""Whole runs inside a test's process."""

from __future__ import annotations

from fedpriv.compose import Words, compose_jobs, own
from fedpriv.config import Experiment, build
from fedpriv.help import conf_dir


def experiment(*words: str) -> Experiment:
    """The experiment of a command line, with eight users and one local epoch unless the words say otherwise."""
    [config] = compose_jobs(
        Words.parse(["preset.local_epochs=1", "preset.silo_epochs=1", "preset.n_users=8", *words]), conf_dir()
    )
    return build(own(config))
