"""Weights & Biases. Without a network or an account: `tracker.mode=offline`, and `wandb sync`
later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from fedpriv.errors import require
from fedpriv.trackers.base import Log, Tracker, finite, require_installed, settings

MODES = ("online", "offline")


@dataclass(frozen=True)
class Wandb(Tracker):
    """A run of a project; sent to the service as it goes on, or kept below `wandb/` in the run's
    folder.

    entity: user or team, None for the account's own.
    """

    project: str
    entity: str | None = None
    mode: str = "online"

    def __post_init__(self) -> None:
        require(self.mode in MODES, "tracker.mode", self.mode, " or ".join(MODES))

    def check(self) -> None:
        require_installed("wandb")

    def open(self, folder: Path, config_yaml: str, *, known: str, after: int) -> Log:
        run = import_module("wandb").init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            dir=str(folder),
            name=folder.name,
            config=settings(config_yaml),
            id=known or None,
            resume="allow" if known else None,
            reinit="create_new",  # the runs of a sweep are open side by side
        )
        run.define_metric(
            "*", step_metric="round"
        )  # rounds that come again after a resume are allowed to
        return _Run(run)


class _Run(Log):
    def __init__(self, run: Any) -> None:
        self._run = run
        self.name = str(run.id)

    def add(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log({"round": round, **finite(values)})

    def end(self, state: str) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "done" else 1)
