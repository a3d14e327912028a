"""Event files for TensorBoard in the run's folder: `tensorboard --logdir outputs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from fedpriv.trackers.base import Log, Tracker, finite, settings

FOLDER = "tensorboard"


@dataclass(frozen=True)
class TensorBoard(Tracker):
    """Writes to `tensorboard/` in the run's folder."""

    package: ClassVar[str] = "tensorboard"

    def open(self, folder: Path, config_yaml: str, *, known: str, after: int) -> Log:
        return _TensorBoardLog(folder / FOLDER, config_yaml, purge=after + 1 if known else None)


class _TensorBoardLog(Log):
    name = FOLDER

    def __init__(self, folder: Path, config_yaml: str, *, purge: int | None) -> None:
        """purge: the first round that an earlier process may have shown, and that is repeated."""
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(str(folder), purge_step=purge)
        if purge is None:
            lines = (f"    {key}: {value}" for key, value in settings(config_yaml).items())
            self._writer.add_text("configuration", "\n".join(lines))

    def add(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in finite(values).items():
            self._writer.add_scalar(name, value, round)

    def end(self, state: str) -> None:
        self._writer.close()
