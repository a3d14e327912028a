"""A run that may have been here before: what is done is left alone, what has ended early goes on or
begins again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.errors import FedprivError
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.folder import CONFIG, STATUS, read_status
from fedpriv.runs.journal import NAME as BEGUN
from fedpriv.runs.loop import train
from fedpriv.runs.stored_config import loaded

if TYPE_CHECKING:
    from fedpriv.runs.background_writer import SharedWriters
    from fedpriv.settings.experiment import Experiment


def run_or_resume(
    experiment: Experiment,
    config_yaml: str,
    folder: Path,
    *,
    origin: Origin | None = None,
    shared_writers: SharedWriters | None = None,
    quiet: bool = False,
) -> None:
    """See `train`. A run of the same settings that is done there is not run again, whatever else
    was begun goes on from its checkpoint. Raises FedprivError for a folder with a run of other
    settings."""
    origin = origin or Origin.of(config_yaml)
    resume = (folder / CONFIG).exists()
    if resume:
        known = loaded(folder)
        if other := Origin.of_values(known).differences(origin):
            raise FedprivError(
                f"{folder}: holds a run with other settings ({', '.join(other)}); name another "
                "folder"
            )
        if (
            read_status(folder).get("state") == "done"
            and known["rounds"] == experiment.options.rounds
        ):
            return
        if not (folder / BEGUN).exists():  # nothing has come of it
            (folder / STATUS).unlink(missing_ok=True)
            resume = False
    else:
        (folder / STATUS).unlink(missing_ok=True)  # it failed before it began
    train(
        experiment,
        config_yaml,
        folder,
        resume,
        origin=origin,
        shared_writers=shared_writers,
        quiet=quiet,
    )
