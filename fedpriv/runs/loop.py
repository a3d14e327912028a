"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import contextlib
import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline, headlines
from fedpriv.aggregation.epsilon_target import beyond_target
from fedpriv.errors import FedprivError, require
from fedpriv.ledgers.data_ledger import BeyondBudgetError
from fedpriv.rounds.query import Query, events_of
from fedpriv.rounds.state import State
from fedpriv.runs.background_writer import BackgroundWriter, SharedWriters
from fedpriv.runs.charging import LedgerCharge, charged
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.epsilon_forecast import bounded
from fedpriv.runs.folder import CONFIG, ROSTER, RunFolder
from fedpriv.runs.progress import OnRound, Progress, summary
from fedpriv.runs.records import RunRecords
from fedpriv.runs.release import is_private, labels_of, require_private, with_labels
from fedpriv.runs.status import Status
from fedpriv.runtime import PreparedRun, RoundResult, StoppedError, prepare
from fedpriv.runtime.identity import RESUMED
from fedpriv.settings.experiment import Experiment
from fedpriv.trackers.base import Log, numbers, tracked
from fedpriv.util.durable_files import replace_file
from fedpriv.util.logs import LOGGER, logged
from fedpriv.util.starting import garbage_kept
from fedpriv.util.stopwatch import Stopwatch

CHECKPOINT_SECONDS = 1.0
"""Shortest time between two checkpoints of a seeded run. A run with system randomness writes each
checkpoint as soon as it can, because a resumed run is charged again for the rounds after it."""
MOST_WITHOUT_SUM = 16
"""Rounds in a row without a sum after which a run stops: each is charged, and teaches nothing."""


def train(
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
) -> None:
    """Run an experiment into folder `path`, or resume it from its last checkpoint.

    config_yaml: the experiment's resolved configuration; checkpoints are tied to it.
    kept: digests that a resumed run must have unchanged (`RunIdentity.require_unchanged`).
    origin: the origin of this configuration, if it is known.
    words: its overrides on the command line, which its folder keeps.
    shared_writers: threads that write the checkpoints; None: the run has its own.
    quiet: show neither progress nor results.
    on_round: see `Progress`.

    Errors in the settings or the data are raised before the folder is touched. Later failures are
    recorded in status.json and raised again.
    """
    options = experiment.options
    quiet = quiet or options.quiet
    folder = RunFolder(path)
    origin = origin or Origin.of(config_yaml)
    with _disk_errors_name_the_run(path), contextlib.ExitStack() as stack:
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
            LOGGER.info("simulation: %s", simulated)
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
                loop = _TrainingLoop(experiment, prepared, records, log, quiet, on_round, charge)
                rows, ending = loop.run()
            if not (path / CONFIG).exists():  # deleted meanwhile; no run is read without it
                replace_file(path / CONFIG, config_yaml.encode())
            private = is_private(experiment, prepared, rows, records.devices)
            records.write_bundle(rows, private)
            folder.status(
                state="done",
                reason=ending,
                epsilon=bounded(headline(rows, experiment.algo.headline_observer)),
                dp_valid=private,
                set_ups=prepared.standing.set_ups,
            )
            notes = beyond_target(rows, records.target) if records.target else []
            for note in notes:
                LOGGER.warning(note)
            LOGGER.info("done%s", f": {ending}" if ending else "")
    if not quiet:
        repeated = sum(records.charged_twice.values())
        summary(
            path, experiment, rows, ending=ending, repeated=repeated, notes=notes, private=private
        )


@contextlib.contextmanager
def _disk_errors_name_the_run(path: Path) -> Iterator[None]:
    """Turn an OSError into one line that says how to resume the run."""
    try:
        yield
    except OSError as error:
        hint = f"; then continue with resume={path}" if (path / CONFIG).exists() else ""
        raise FedprivError(f"{error.filename or path}: {error.strerror or error}{hint}") from error


@contextlib.contextmanager
def _failures_recorded(folder: RunFolder) -> Iterator[None]:
    """Record in status.json and in the log how a run ended early."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        LOGGER.warning("interrupted")
        folder.ended("interrupted", f"continue with resume={folder.path}")
        interrupt.add_note(f"continue with fedpriv {shlex.quote(f'resume={folder.path}')}")
        raise
    except Exception as error:
        LOGGER.error("failed: %s", error, exc_info=True)
        folder.ended("failed", str(error) or type(error).__name__, traceback.format_exc())
        raise


@dataclass
class _TrainingLoop:
    """A run in progress.

    experiment: its settings and components.
    prepared: its parties, with data and initial state.
    records: what it writes to its folder.
    log: its tracker.
    quiet: show no progress.
    on_round: see `Progress`.
    charge: what a ledger pays for; None: there is none.
    aborts: why the last rounds in a row had no sum, in this process.
    """

    experiment: Experiment
    prepared: PreparedRun
    records: RunRecords
    log: Log
    quiet: bool
    on_round: OnRound | None
    charge: LedgerCharge | None
    aborts: list[str] = field(default_factory=list)

    def run(self) -> tuple[list[EpsilonRow], str | None]:
        """Run rounds until the last one, or until the next would exceed the budget.

        Returns the last epsilon rows, and why the run ended early (None if it did not).
        """
        prepared = self.prepared
        rounds = self.experiment.options.rounds
        number = self.records.completed
        state = prepared.state
        ledger = self._ledger()
        rows = ledger.rows(number)
        ending = None
        last = self.experiment.algo.last_round(prepared.plan.federation)
        metric = prepared.evaluation.task.metric
        with Progress(rounds, number, metric, quiet=self.quiet, on_round=self.on_round) as progress:
            for note in prepared.facts.notes:
                progress.say(f"data: {note}")
            if self.records.target:
                progress.say(self.records.target.text)
            if number < rounds:
                query = prepared.queries(number + 1)[0]
                for line in prepared.aggregation.estimate(query, prepared.plan.federation):
                    progress.say(line)
            while number < rounds:
                if number == last:
                    ending = f"round {number + 1} has no records left: one pass is over"
                    self.records.save(number, state)
                    break
                watch = Stopwatch()
                setup: list[dict[str, Any]] = []
                with watch.phase("aggregation"):
                    self._gather(number, state, setup)
                with watch.phase("plan"):
                    queries = prepared.queries(number + 1)
                # With a limit any round may turn out to be the last.
                shown = self._is_shown(number + 1) or self._limited
                with watch.phase("accounting"):
                    after = ledger.copy()
                    after.record(events_of(queries))
                    rows_after = after.rows(number + 1) if shown else rows
                    exceeded = self._exceeded(rows_after) or self._unpaid(queries)
                if exceeded:
                    ending = f"round {number + 1} would exceed {exceeded}"
                    self.records.save(number, state)
                    break
                number = number + 1
                ledger = after
                rows = rows_after
                with watch.phase("accounting"):
                    self.records.begin_round(number)
                result = self._round(number, queries, state, ledger=ledger, watch=watch)
                self.aborts = [*self.aborts, result.aborted] if result.aborted else []
                if result.aborted:
                    progress.say(f"round {number} released nothing: {result.aborted}")
                if result.empty:
                    progress.say(f"round {number} learned nothing: {result.empty}")
                row = self._show(number, state, result, rows, watch) if shown else {}
                state = result.state
                result = replace(result, traffic=[*setup, *result.traffic])
                self.records.end_round(number, result, watch)
                progress.update(number, row, self._headline(rows) if shown else None)
        self.records.finish(number, state, rows)
        return rows, ending

    def _unpaid(self, queries: Sequence[Query]) -> str:
        """Charge a round to the ledger. Returns which budget it would exceed; empty: none."""
        try:
            if self.charge is not None:
                self.charge.begin(queries)
        except BeyondBudgetError as refusal:
            return f"{refusal.population.budget} of {refusal.population.name} in the ledger"
        return ""

    def _gather(self, completed: int, state: State, lines: list[dict[str, Any]]) -> None:
        """Have the next round's silos ready before it is charged. If that fails, or if too many
        rounds had no sum, the run stops after `completed` rounds."""
        try:
            if len(self.aborts) >= MOST_WITHOUT_SUM:
                many = f"{len(self.aborts)} rounds in a row had no sum"
                raise StoppedError(f"{many}: {self.aborts[-1]}")
            self.prepared.gather(completed + 1, lines, state)
        except StoppedError as stop:
            self.records.note_losses()
            self.records.save(completed, state)
            path = self.records.folder.path
            raise StoppedError(f"{stop}; mend it, then continue with resume={path}") from stop

    def _ledger(self) -> Ledger:
        """Open the run's records. Returns the ledger of all rounds begun so far."""
        damaged = self.records.open(self.log.name)
        ledger = Ledger(self.experiment.accountant)
        silos = self.records.earlier_silos
        for past, times in self.records.charged_twice.items():
            ledger.record(events_of(self.prepared.queries(past, silos)), times)
        for past in range(1, self.records.completed + 1):
            ledger.record(events_of(self.prepared.queries(past, silos)))
            if past in damaged:
                self.records.epsilons(ledger.rows(past))
        return ledger

    def _show(
        self,
        number: int,
        before: State,
        result: RoundResult,
        rows: list[EpsilonRow],
        watch: Stopwatch,
    ) -> dict[str, Any]:
        """Evaluate a round; write its metrics and epsilons. Returns the row of its metrics."""
        with watch.phase("evaluation"):
            step = float(np.linalg.norm(result.state.params - before.params))
            row = self.records.evaluate(number, result.state, result.stats, step)
        self.records.epsilons(rows)
        self.log.add(number, numbers(row, rows, self.experiment.algo.headline_observer))
        return row

    def _headline(self, rows: list[EpsilonRow]) -> float:
        return headline(rows, self.experiment.algo.headline_observer)

    @property
    def _limited(self) -> bool:
        """Whether a limit of epsilon may end the run. The noise of a target is enough for every
        planned round, but not for repeated ones, nor for silos that know a larger share of it since
        others were lost. Other runs may spend what a ledger has left."""
        if self.charge is not None:
            return True
        accountant = self.experiment.accountant
        if accountant.target is not None:
            lost = self.prepared.uncounted or (
                self.records.earlier_silos != self.prepared.settings.silos
            )
            return bool(self.records.charged_twice or lost)
        return accountant.budget is not None or bool(self.experiment.algo.contributors.budgets)

    def _exceeded(self, rows: list[EpsilonRow]) -> str | None:
        """The first limit that the epsilons of `rows` exceed; None if there is none."""
        accountant = self.experiment.accountant
        if accountant.limit is not None and self._headline(rows) > accountant.limit:
            return accountant.limit_text
        algo = self.experiment.algo
        spent = headlines(rows, algo.headline_observer)
        for group, limit in algo.contributors.budgets.items():
            if spent[group] > limit:
                return f"algo.budgets.{group}.epsilon={limit:g}"
        return None

    def _is_shown(self, number: int) -> bool:
        return (
            number % self.experiment.options.evaluate_every == 0
            or number == self.experiment.options.rounds
        )

    def _round(
        self,
        number: int,
        queries: tuple[Query, ...],
        state: State,
        *,
        ledger: Ledger,
        watch: Stopwatch,
    ) -> RoundResult:
        """Run a round. If it fails, record who was lost, and its cost in epsilon.csv: its messages
        may have been seen."""
        try:
            return self.prepared.run_round(queries, state, watch)
        except BaseException:
            self.records.note_losses()
            self.records.epsilons(ledger.rows(number))
            raise
