"""A run that may have been here before: what is done is left alone, what has ended early goes on or begins again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.begun import NAME as BEGUN
from fedpriv.checkpoint import Origin
from fedpriv.errors import FedprivError
from fedpriv.loop import train
from fedpriv.results import CONFIG, STATUS, read_status
from fedpriv.stored import loaded

if TYPE_CHECKING:
    from fedpriv.behind import Shared
    from fedpriv.config import Experiment


def go(
    experiment: Experiment,
    config_yaml: str,
    folder: Path,
    *,
    origin: Origin | None = None,
    shared: Shared | None = None,
    quiet: bool = False,
) -> None:
    """See `train`. A run of the same settings that is done there is not run again, whatever else was begun goes on from
    its checkpoint. Raises FedprivError for a folder with a run of other settings."""
    origin, resume = origin or Origin.of(config_yaml), (folder / CONFIG).exists()
    if resume:
        known = loaded(folder)
        if other := Origin.of_values(known).differences(origin):
            raise FedprivError(f"{folder}: holds a run with other settings ({', '.join(other)}); name another folder")
        if read_status(folder).get("state") == "done" and known["rounds"] == experiment.options.rounds:
            return
        if not (folder / BEGUN).exists():  # nothing has come of it
            (folder / STATUS).unlink(missing_ok=True)
            resume = False
    else:
        (folder / STATUS).unlink(missing_ok=True)  # it failed before it began
    train(experiment, config_yaml, folder, resume, origin=origin, shared=shared, quiet=quiet)
