"""Start a run, or continue the one that its folder holds."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from omegaconf import OmegaConf

from fedpriv.algorithms.evaluation import Evaluation
from fedpriv.errors import FedprivError, require
from fedpriv.runs.background_writer import SharedWriters
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.folder import CONFIG, RunFolder
from fedpriv.runs.journal import JOURNAL
from fedpriv.runs.loop import train
from fedpriv.runs.progress import OnRound
from fedpriv.runs.status import STATUS, Status
from fedpriv.runs.stored_config import read_config, require_same_rounds, stored_experiment
from fedpriv.runtime.identity import SWEPT
from fedpriv.runtime.prepare import identify
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
    checkpoint. Raises FedprivError for a folder with a run of other settings, records, owners of
    records, plan or code: the runs of a sweep differ in what was swept alone."""
    origin = origin or Origin.of(config_yaml)
    known = read_config(folder) if (folder / CONFIG).exists() else None
    if known is not None:
        if other := Origin.of_values(known).differences(origin):
            raise FedprivError(
                f"{folder}: holds a run with other settings ({', '.join(other)}); name another "
                "folder"
            )
        require_same_rounds(known, experiment.options.rounds)
        status = Status.find(folder)
        finished = status is not None and status.state == "done"
        if status and finished and known["rounds"] == experiment.options.rounds:
            identify(experiment).require_unchanged(folder, asdict(status.identity), SWEPT)
            return
    started = known is not None and (folder / JOURNAL).exists()
    if not started:
        (folder / STATUS).unlink(missing_ok=True)  # the earlier run failed before its first round
    train(
        experiment,
        config_yaml,
        folder,
        started,
        kept=SWEPT,
        origin=origin,
        words=words,
        shared_writers=shared_writers,
        quiet=quiet,
        on_round=on_round,
    )


def resume(line: CommandLine, folder: str, jobs: int = 1, *, quiet: bool = False) -> None:
    """Continue the run in `folder` with its stored settings (see `stored_experiment`)."""
    experiment, config = stored_experiment(line, folder, jobs)
    if isinstance(experiment.algo, Evaluation) and experiment.algo.models:
        above = Path(folder).absolute().parent
        raise FedprivError(f"{folder}: evaluations of the run above; continue with resume={above}")
    ledger = experiment.options.ledger
    typed = ledger is None or any(word.startswith("ledger=") for word in line.overrides)
    allowed = f"typed beside resume={folder}: a folder chooses no place to write to"
    require(typed, "ledger", ledger, allowed)
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
