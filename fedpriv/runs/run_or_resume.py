"""Start a run, or continue the one that its folder holds."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from omegaconf import OmegaConf

from fedpriv.data.shared import load
from fedpriv.errors import FedprivError
from fedpriv.runs.background_writer import SharedWriters
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.folder import CONFIG, STATUS, RunFolder, read_status
from fedpriv.runs.journal import JOURNAL
from fedpriv.runs.loop import train
from fedpriv.runs.progress import OnRound
from fedpriv.runs.stored_config import read_config, require_same_rounds, stored_experiment
from fedpriv.settings.compose import CommandLine
from fedpriv.settings.experiment import Experiment


def run_or_resume(
    experiment: Experiment,
    config_yaml: str,
    folder: Path,
    *,
    origin: Origin | None = None,
    words: Sequence[str] = (),
    shared_writers: SharedWriters | None = None,
    quiet: bool = False,
    on_round: OnRound | None = None,
) -> None:
    """Like `train`, but leave a finished run alone and resume an unfinished one from its
    checkpoint. Raises FedprivError for a folder with a run of other settings."""
    origin = origin or Origin.of(config_yaml)
    known = read_config(folder) if (folder / CONFIG).exists() else None
    if known is not None:
        if other := Origin.of_values(known).differences(origin):
            raise FedprivError(
                f"{folder}: holds a run with other settings ({', '.join(other)}); name another "
                "folder"
            )
        require_same_rounds(known, experiment.options.rounds)
        finished = read_status(folder).get("state") == "done"
        if finished and known["rounds"] == experiment.options.rounds:
            _require_same_records(folder, experiment)
            return
    started = known is not None and (folder / JOURNAL).exists()
    if not started:
        (folder / STATUS).unlink(missing_ok=True)  # the earlier run failed before its first round
    train(
        experiment,
        config_yaml,
        folder,
        started,
        origin=origin,
        words=words,
        shared_writers=shared_writers,
        quiet=quiet,
        on_round=on_round,
    )


def _require_same_records(folder: Path, experiment: Experiment) -> None:
    """Raise FedprivError when the finished run in `folder` had other records than those of now. A
    run of an earlier version has no digest to compare."""
    then = read_status(folder).get("identity", {}).get("records")
    if then is not None and then != load(experiment.data, experiment.streams).records:
        raise FedprivError(f"{folder}: holds a finished run on other records; name another folder")


def resume(line: CommandLine, folder: str, jobs: int = 1, *, quiet: bool = False) -> None:
    """Continue the run in `folder` with its stored settings (see `stored_experiment`)."""
    experiment, config = stored_experiment(line, folder, jobs)
    train(experiment, OmegaConf.to_yaml(config), Path(folder), resume=True, quiet=quiet)


@contextmanager
def early_failures_recorded(folder: Path, words: Sequence[str]) -> Iterator[None]:
    """Record a failure in status.json if the run did not get as far as to write one.

    words: overrides of the run.
    """
    try:
        yield
    except Exception as error:
        if not (folder / STATUS).exists():
            run = RunFolder(folder)
            with suppress(OSError):  # of a full disk
                run.write_words(words)
            run.ended("failed", str(error), traceback.format_exc())
        raise
