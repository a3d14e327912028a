"""Whole runs inside a test's process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fedpriv.engines.inprocess import InProcess
from fedpriv.settings.experiment import Experiment
from fedpriv.testing import experiments


def experiment(*words: str) -> Experiment:
    """The experiment of a command line, with eight users and one local epoch unless the words say
    otherwise."""
    return experiments.experiment(
        "preset.local_epochs=1", "preset.silo_epochs=1", "preset.n_users=8", *words
    )


@dataclass(frozen=True)
class Journaled(InProcess):
    """Silos of this process that keep journals, as they can over Ray."""

    journals: str | None = None  # type: ignore[misc]


def journaled(exp: Experiment, folder: Path) -> Experiment:
    """The experiment with its silos' journals in a folder."""
    return replace(exp, engine=Journaled(journals=str(folder)))
