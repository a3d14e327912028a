"""Weights & Biases. Without a network, use `tracker.mode=offline` or WANDB_MODE=offline, and
`wandb sync` later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from fedpriv.errors import require
from fedpriv.trackers.base import Log, Tracker, finite, settings

MODES = ("online", "offline", "disabled")


@dataclass(frozen=True)
class Wandb(Tracker):
    """A run of a W&B project.

    project: its name.
    entity: user or team; None: the account's own.
    mode: online (sent to the service), offline (stored in `wandb/` in the run's folder) or
        disabled; None: that of the environment variable WANDB_MODE, else online.
    """

    package: ClassVar[str] = "wandb"
    project: str
    entity: str | None = None
    mode: str | None = None

    def __post_init__(self) -> None:
        allowed = f"{', '.join(MODES)} or null (WANDB_MODE, else online)"
        require(self.mode in (None, *MODES), "tracker.mode", self.mode, allowed)

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
            reinit="create_new",  # the runs of a sweep are open at the same time
        )
        run.define_metric("*", step_metric="round")  # allows rounds to be repeated after a resume
        return _WandbLog(run)


class _WandbLog(Log):
    def __init__(self, run: Any) -> None:
        self._run = run
        self.name = str(run.id)

    def add(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log({"round": round, **finite(values)})

    def end(self, state: str) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "done" else 1)
