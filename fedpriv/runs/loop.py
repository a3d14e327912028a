"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import contextlib
import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedpriv.accountants.ledger import headline
from fedpriv.aggregation.epsilon_target import beyond_target
from fedpriv.errors import FedprivError, require
from fedpriv.runs.background_writer import BackgroundWriter, SharedWriters
from fedpriv.runs.charging import charged
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.epsilon_forecast import bounded
from fedpriv.runs.folder import CONFIG, ROSTER, RunFolder
from fedpriv.runs.journal import attempts
from fedpriv.runs.progress import OnRound, summary
from fedpriv.runs.records import RunRecords
from fedpriv.runs.release import is_private, labels_of, require_private, with_labels
from fedpriv.runs.run_evaluation import planned_evaluation
from fedpriv.runs.status import Status
from fedpriv.runs.stopping import STOPPING, Rounds, until_no_better
from fedpriv.runs.training_loop import TrainingLoop
from fedpriv.runtime import prepare
from fedpriv.runtime.identity import RESUMED
from fedpriv.settings.experiment import Experiment
from fedpriv.trackers.base import tracked
from fedpriv.util.durable_files import replace_file
from fedpriv.util.logs import LOGGER, logged
from fedpriv.util.starting import garbage_kept

CHECKPOINT_SECONDS = 1.0
"""Shortest time between two checkpoints of a seeded run. A run with system randomness writes each
checkpoint as soon as it can, because a resumed run is charged again for the rounds after it."""


def train(
    experiment: Experiment, config_yaml: str, path: Path, resume: bool = False, **rest: Any
) -> None:
    """Run an experiment into folder `path`, or resume it from its last checkpoint. The rest is as
    for `training`."""
    run = training(experiment, config_yaml, path, resume, **rest)
    if experiment.options.stop.target is None:
        for _ in run:
            pass
    else:
        stored: Any = OmegaConf.to_container(OmegaConf.create(config_yaml))
        asked = planned_evaluation(experiment, stored)
        folder = path / STOPPING
        # A training that has begun a round has begun its evaluations: what they cost is there.
        again = resume and ((folder / CONFIG).exists() or attempts(path).total() > 0)
        scores = training(asked.experiment, asked.yaml, folder, again, quiet=True, whole=path)
        until_no_better(run, scores)


def training(
    experiment: Experiment,
    config_yaml: str,
    path: Path,
    resume: bool = False,
    *,
    kept: Mapping[str, str] = RESUMED,
    origin: Origin | None = None,
    words: Sequence[str] = (),
    shared_writers: SharedWriters | None = None,
    quiet: bool = False,
    on_round: OnRound | None = None,
    whole: Path | None = None,
) -> Rounds:
    """Run an experiment into folder `path`, or resume it from its last checkpoint. Yields None
    once it is checked and paid for, and then as `TrainingLoop.run`.

    config_yaml: the experiment's resolved configuration; checkpoints are tied to it.
    kept: digests that a resumed run must have unchanged (`RunIdentity.require_unchanged`).
    origin: the origin of this configuration, if it is known.
    words: its overrides on the command line, which its folder keeps.
    shared_writers: threads that write the checkpoints; None: the run has its own.
    quiet: show neither progress nor results.
    on_round: see `Progress`.
    whole: see `RunFolder`.

    Errors in the settings or the data are raised before the folder is touched. Later failures are
    recorded in status.json and raised again.
    """
    options = experiment.options
    quiet = quiet or options.quiet
    folder = RunFolder(path, whole)
    origin = origin or Origin.of(config_yaml)
    with _disk_errors_name_the_run(folder), contextlib.ExitStack() as stack:
        saved = journal = before = None
        if resume:
            saved, journal = folder.open_for_resume(origin, synced=options.system)
            stack.enter_context(journal)
            before = Status.find(path)
        completed = saved.round if saved else 0
        allowed = f"at least {completed}: {path} has completed {completed} rounds"
        require(options.rounds >= completed, "rounds", options.rounds, allowed)
        earlier = journal.total if journal else 0
        charge = stack.enter_context(
            charged(experiment, path, resume=resume, completed=completed, earlier=earlier)
        )
        arrays = saved.arrays if saved else None
        with garbage_kept():
            run = prepare(experiment, arrays, roster=folder.roster, charged=True)
        prepared = stack.enter_context(run)
        if options.private is not None:
            require_private(experiment, prepared)
        if saved is not None:
            prepared.facts.identity.require_unchanged(path, saved.identity, kept)
        yield None
        if journal is None:
            journal = stack.enter_context(folder.begin(config_yaml, words))
            if charge is not None:
                charge.place(path)
        else:
            replace_file(path / CONFIG, config_yaml.encode())  # `rounds` may have changed
        stack.enter_context(logged(path))
        prepared.facts.roster.write(path / ROSTER)
        LOGGER.info(
            "%s on %s, from round %d", experiment.algo.label, prepared.facts.device, completed
        )
        LOGGER.info("local training of users: %s", prepared.facts.trainer)
        pinned = experiment.engine.roster
        keys = "new keys" if pinned is None else f"their keys in {pinned}"
        LOGGER.info("all parties have %s: see %s for fingerprints", keys, ROSTER)
        if simulated := prepared.session.simulated:
            LOGGER.info("engine: %s", simulated)
        with _failures_recorded(folder):
            labels = labels_of(experiment, prepared)
            shown = with_labels(config_yaml, labels)
            known = before.tracker if before else ""
            with (
                BackgroundWriter(
                    shared_writers, every=0.0 if options.system else CHECKPOINT_SECONDS
                ) as writer,
                tracked(experiment.tracker, path, shown, known=known, after=completed) as log,
            ):
                records = RunRecords(
                    experiment, prepared, folder, origin, journal, writer, saved, before, labels
                )
                loop = TrainingLoop(experiment, prepared, records, log, quiet, on_round, charge)
                yield from loop.run()
                rows, ending = loop.rows, loop.ending or None
            if not (path / CONFIG).exists():  # deleted meanwhile; no run is read without it
                replace_file(path / CONFIG, config_yaml.encode())
            private = is_private(experiment, prepared, rows, records.devices)
            records.write_bundle([*rows, *loop.tested], private, loop.scores)
            folder.status(
                state="done",
                reason=ending,
                epsilon=bounded(headline(rows, experiment.algo.headline_observer)),
                dp_valid=private,
                set_ups=prepared.standing.set_ups,
            )
            notes = [loop.note] if loop.note else []
            notes += beyond_target(rows, records.target) if records.target else []
            for note in notes:
                LOGGER.warning(note)
            LOGGER.info("done%s", f": {ending}" if ending else "")
    if not quiet:
        repeated = sum(records.charged_twice.values())
        summary(
            path, experiment, rows, ending=ending, repeated=repeated, notes=notes, private=private
        )


@contextlib.contextmanager
def _disk_errors_name_the_run(folder: RunFolder) -> Iterator[None]:
    """Turn an OSError into one line that says how to resume the run."""
    path = folder.path
    try:
        yield
    except OSError as error:
        hint = f"; then continue with resume={folder.whole}" if (path / CONFIG).exists() else ""
        raise FedprivError(f"{error.filename or path}: {error.strerror or error}{hint}") from error


@contextlib.contextmanager
def _failures_recorded(folder: RunFolder) -> Iterator[None]:
    """Record in status.json and in the log how a run ended early."""
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit) as interrupt:
        LOGGER.warning("interrupted")
        folder.ended("interrupted", f"continue with resume={folder.whole}")
        interrupt.add_note(f"continue with fedpriv {shlex.quote(f'resume={folder.whole}')}")
        raise
    except Exception as error:
        LOGGER.error("failed: %s", error, exc_info=True)
        folder.ended("failed", str(error) or type(error).__name__, traceback.format_exc())
        raise
