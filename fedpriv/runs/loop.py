"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.accountants.events import DECLARED, RELEASED_MODEL, Event, leaves
from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline, headlines
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import AggregationAbortedError, FedprivError, require
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.runs.background_writer import BackgroundWriter, SharedWriters
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.empty_rounds import account_for_empty_rounds
from fedpriv.runs.folder import CONFIG, ROSTER, RunFolder, read_status
from fedpriv.runs.journal import Journal, repeated
from fedpriv.runs.labels import Labels, run_labels
from fedpriv.runs.progress import Progress, summary
from fedpriv.runs.tables import EPSILON, METRICS, TIMINGS, TRAFFIC
from fedpriv.runtime import PreparedRun, RoundResult, prepare
from fedpriv.settings.experiment import Experiment, RunOptions
from fedpriv.trackers.base import Log, numbers, tracked
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.durable_files import replace_file
from fedpriv.util.logs import LOGGER, logged
from fedpriv.util.stopwatch import Stopwatch

PHASES = ("plan", "accounting", "local_training", "aggregation", "global_update", "evaluation")

CHECKPOINT_SECONDS = 1.0
"""Shortest time between two checkpoints of a seeded run. A run with system randomness writes each
checkpoint as soon as it can, because a resumed run is charged again for the rounds after it."""

ALWAYS_UNCOVERED = (
    "hyper-parameters chosen on private data are not accounted",
    "splits, scaling and sub-sampling of the data set are not accounted",
    "choosing a round or a run by its metrics is not accounted",
    "diagnostics are not private: see labels, for the columns of metrics.csv among others",
)


def train(
    experiment: Experiment,
    config_yaml: str,
    path: Path,
    resume: bool = False,
    *,
    origin: Origin | None = None,
    shared_writers: SharedWriters | None = None,
    quiet: bool = False,
) -> None:
    """Run an experiment into folder `path`, or resume it from its last checkpoint.

    config_yaml: the experiment's resolved configuration; checkpoints are tied to it.
    origin: the origin of this configuration, if it is known.
    shared_writers: threads that write the checkpoints; None: the run has its own.
    quiet: show neither progress nor results.

    Errors in the settings or the data are raised before the folder is touched. Later failures are
    recorded in status.json and raised again.
    """
    options = experiment.options
    quiet = quiet or options.quiet
    folder = RunFolder(path)
    origin = origin or Origin.of(config_yaml)
    with _disk_errors_name_the_run(path), contextlib.ExitStack() as stack:
        saved = journal = None
        if resume:
            saved, journal = folder.open_for_resume(origin, synced=options.system)
            stack.enter_context(journal)
        completed = saved.round if saved else 0
        allowed = f"at least {completed}: {path} has completed {completed} rounds"
        require(options.rounds >= completed, "rounds", options.rounds, allowed)
        prepared = stack.enter_context(
            prepare(experiment, saved.arrays if saved else None, roster=folder.roster)
        )
        if saved is not None:
            prepared.identity.require_unchanged(path, saved.identity)
        if journal is None:
            journal = stack.enter_context(folder.begin(config_yaml))
        else:
            replace_file(path / CONFIG, config_yaml.encode())  # `rounds` may have changed
        stack.enter_context(logged(path))
        prepared.roster.write(path / ROSTER)
        LOGGER.info("%s on %s, from round %d", experiment.algo.label, prepared.device, completed)
        LOGGER.info("all parties have new keys: see %s for their fingerprints", ROSTER)
        with _failures_recorded(folder):
            labels = _labels(experiment, prepared)
            shown = _with_labels(config_yaml, labels)
            known = str(read_status(path).get("tracker", ""))
            with (
                BackgroundWriter(
                    shared_writers, every=0.0 if options.system else CHECKPOINT_SECONDS
                ) as writer,
                tracked(experiment.tracker, path, shown, known=known, after=completed) as log,
            ):
                run = _TrainingLoop(
                    experiment, prepared, folder, origin, journal, writer, log, saved, quiet, labels
                )
                rows, ending = run.loop()
            if not (path / CONFIG).exists():  # deleted meanwhile; no run is read without it
                replace_file(path / CONFIG, config_yaml.encode())
            folder.status(
                state="done",
                reason=ending,
                dp_valid=run.is_private(rows),
                set_ups=prepared.set_ups,
            )
            LOGGER.info("done%s", f": {ending}" if ending else "")
    if not quiet:
        summary(path, experiment, rows, ending=ending, repeated=sum(run.charged_twice.values()))


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
    except KeyboardInterrupt:
        LOGGER.warning("interrupted")
        folder.ended("interrupted", f"continue with resume={folder.path}")
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
    folder: where its records go.
    origin: configuration and package versions, which its checkpoints carry.
    journal: rounds begun by this and by earlier processes.
    writer: writes its checkpoints.
    log: its tracker.
    saved: the checkpoint that it resumes from.
    quiet: show no progress.
    labels: of everything that it writes.
    """

    experiment: Experiment
    prepared: PreparedRun
    folder: RunFolder
    origin: Origin
    journal: Journal
    writer: BackgroundWriter
    log: Log
    saved: Checkpoint | None
    quiet: bool
    labels: Labels

    @property
    def options(self) -> RunOptions:
        return self.experiment.options

    @property
    def completed(self) -> int:
        """Rounds that the checkpoint has completed."""
        return self.saved.round if self.saved else 0

    @property
    def repeated(self) -> dict[int, int]:
        """Round: how many attempts of earlier processes this run does not record."""
        return repeated(self.journal.attempts, self.completed)

    @property
    def charged_twice(self) -> dict[int, int]:
        """The attempts of `repeated` that cost privacy. A seeded run repeats a round bit for bit,
        so the second attempt shows nothing new."""
        return self.repeated if self.options.system else {}

    def is_private(self, rows: list[EpsilonRow]) -> bool:
        """Whether the released model has a certificate: system randomness, bounded contributions,
        a finite epsilon that rests on more than the author's word, and no invented users if it
        speaks of users.

        rows: the epsilon rows of the last round.
        """
        clips = all(
            parameters.mechanism.clips
            for parameters in self.prepared.plan.query_parameters.values()
        )
        released = [row for row in rows if row.observer == RELEASED_MODEL]
        finite = any(math.isfinite(row.certified) and row.status != DECLARED for row in released)
        invented = self.experiment.allocator.invents_users
        real = not invented or all(row.unit != "user" for row in released)
        return self.options.system and clips and finite and real

    def loop(self) -> tuple[list[EpsilonRow], str | None]:
        """Run rounds until the last one, or until the next would exceed the budget.

        Returns the last epsilon rows, and why the run ended early (None if it did not).
        """
        options = self.options
        prepared = self.prepared
        ledger = self._start()
        state = prepared.state
        number = self.completed
        ending = None
        last = self.experiment.algo.last_round(prepared.plan.federation)
        rows = ledger.rows(number)
        with Progress(options.rounds, number, prepared.task.metric, quiet=self.quiet) as progress:
            if number < options.rounds and (
                estimate := prepared.estimate(number + 1, options.rounds - number)
            ):
                progress.expect(estimate)
            while number < options.rounds:
                if number == last:
                    ending = f"round {number + 1} has no records left: one pass is over"
                    self._save(number, state)
                    break
                watch = Stopwatch()
                with watch.phase("plan"):
                    queries = prepared.queries(number + 1)
                # With a budget any round may turn out to be the last.
                shown = self._shown(number + 1) or self._limited
                with watch.phase("accounting"):
                    after = ledger.copy()
                    after.record(events_of(queries))
                    rows_after = after.rows(number + 1) if shown else rows
                if exceeded := self._exceeded(rows_after):
                    ending = f"round {number + 1} would exceed {exceeded}"
                    self._save(number, state)
                    break
                number = number + 1
                ledger = after
                rows = rows_after
                before = state
                with watch.phase("accounting"):
                    self.journal.append(number, synced=self.options.system)
                result = self._round(number, queries, state, ledger=ledger, watch=watch)
                state = result.state
                if result.aborted:
                    progress.say(f"round {number} released nothing: {result.aborted}")
                if result.empty:
                    progress.say(f"round {number} learned nothing: {result.empty}")
                step = float(np.linalg.norm(state.params - before.params))
                row: dict[str, Any] = {}
                if shown:
                    with watch.phase("evaluation"):
                        row = self._evaluated(number, state, result.stats, step)
                    self.folder.append(METRICS, [row])
                    self._append_epsilons(rows)
                    self.log.add(number, numbers(row, rows, self.experiment.algo.headline_observer))
                self._record(number, result, watch)
                progress.update(number, row, self._headline(rows) if shown else None)
        self._finish(number, state, rows)
        return rows, ending

    def _append_epsilons(self, rows: list[EpsilonRow]) -> None:
        columns = [vars(row) | {"assumptions": "; ".join(row.assumptions)} for row in rows]
        self.folder.append(EPSILON, columns)

    def _headline(self, rows: list[EpsilonRow]) -> float:
        return headline(rows, self.experiment.algo.headline_observer)

    @property
    def _limited(self) -> bool:
        """Whether a budget may end the run."""
        algo = self.experiment.algo
        return self.experiment.accountant.budget is not None or bool(algo.budget_limits)

    def _exceeded(self, rows: list[EpsilonRow]) -> str | None:
        """The first budget that the epsilons of `rows` exceed; None if there is none."""
        budget = self.experiment.accountant.budget
        if budget is not None and self._headline(rows) > budget:
            return f"accountant.budget={budget:g}"
        algo = self.experiment.algo
        spent = headlines(rows, algo.headline_observer)
        for group, limit in algo.budget_limits.items():
            if spent[group] > limit:
                return f"algo.budgets.{group}.epsilon={limit:g}"
        return None

    def _shown(self, number: int) -> bool:
        return number % self.options.evaluate_every == 0 or number == self.options.rounds

    def _start(self) -> Ledger:
        """Open the run's records, or cut them back to the checkpoint. Returns the ledger of all
        rounds begun so far."""
        prepared = self.prepared
        folder = self.folder
        whole = folder.rewind(self.saved)
        shown = [] if whole else folder.evaluated
        ledger = Ledger(self.experiment.accountant)
        for past, times in self.charged_twice.items():
            ledger.record(events_of(prepared.queries(past)), times)
        for past in range(1, self.completed + 1):
            ledger.record(events_of(prepared.queries(past)))
            if past in shown:  # the table was damaged
                self._append_epsilons(ledger.rows(past))
        self._opening_status()
        if self.saved is None:
            folder.append(METRICS, [self._evaluated(0, prepared.state)])
            folder.append(TRAFFIC, prepared.setup)
            # A run with begun rounds and no checkpoint could not be resumed.
            self._write_checkpoint(self._checkpoint(0, prepared.state))
        return ledger

    def _round(
        self,
        number: int,
        queries: tuple[Query, ...],
        state: State,
        *,
        ledger: Ledger,
        watch: Stopwatch,
    ) -> RoundResult:
        """Run a round. If it fails, record its cost in epsilon.csv: its messages may have been
        seen."""
        try:
            return self.prepared.run_round(queries, state, watch)
        except BaseException:
            self._append_epsilons(ledger.rows(number))
            raise

    def _record(self, number: int, result: RoundResult, watch: Stopwatch) -> None:
        """Record a round's times and traffic, and save a checkpoint if one is due."""
        seconds = {phase: watch.seconds.get(phase, 0.0) for phase in PHASES}
        self.folder.append(
            TIMINGS,
            [
                {
                    "round": number,
                    **seconds,
                    "aborted": result.aborted,
                    "empty": result.empty,
                }
            ],
        )
        self.folder.append(TRAFFIC, result.traffic)
        if number % self.options.checkpoint_every == 0 or number == self.options.rounds:
            self._save(number, result.state)

    def _save(self, number: int, state: State) -> None:
        checkpoint = self._checkpoint(number, state)
        self.writer.submit(lambda: self._write_checkpoint(checkpoint))

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.journal.fsync()
        self.folder.save_checkpoint(checkpoint)

    def _checkpoint(self, number: int, state: State) -> Checkpoint:
        arrays = self.prepared.arrays(state)
        tables = self.folder.tables
        identity = asdict(self.prepared.identity)
        return Checkpoint(number, arrays, self.journal.total, self.origin, tables.marks(), identity)

    def _finish(self, number: int, state: State, rows: list[EpsilonRow]) -> None:
        """Write the last records of a run that ends after round `number`."""
        self.writer.finish()
        if number == self.completed and self.charged_twice:
            # No round followed the checkpoint, so the table lacks the cost of repeated rounds.
            self.folder.tables.cut(EPSILON, number - 1)
            self._append_epsilons(rows)
            self._write_checkpoint(self._checkpoint(number, state))
        _account_for_aborts(self.folder)
        if warning := account_for_empty_rounds(self.folder):
            LOGGER.warning(warning)
        if self.prepared.absent:
            self.folder.status(left_out=sorted(self.prepared.absent))
        self.folder.save_model(self.prepared.parameters(state))

    def _evaluated(
        self,
        number: int,
        state: State,
        stats: ContributionStats | None = None,
        step: float | None = None,
    ) -> dict[str, Any]:
        """A row of metrics.csv: test metrics, and statistics of the contributions."""
        values = self.prepared.evaluate(state)
        finite = stats.units - stats.nonfinite if stats else 0
        return {
            "round": number,
            **values,
            "update_norm": step,
            "contribution_norm": stats.norm_sum / finite if stats and finite else None,
            "clipped": stats.clipped / finite if stats and finite else None,
            "contributions": stats.units if stats else None,
            "nonfinite": stats.nonfinite if stats else None,
        }

    def _changes(self) -> list[str]:
        """A line for each thing that changed since the checkpoint and may change later bits."""
        if self.saved is None:
            return []
        code = self.prepared.identity.code
        other = self.saved.identity.get("code") != code
        own = ["resumes with other source code of fedpriv or of a component"] if other else []
        return self.saved.origin.changes(self.origin) + own

    def _opening_status(self) -> None:
        exp = self.experiment
        prepared = self.prepared
        seeded = (
            "noise and sampling come from a seed, so this model is NOT private; "
            "randomness=system draws them from the operating system"
        )
        not_covered = [*ALWAYS_UNCOVERED, *exp.data.not_covered, *exp.allocator.not_covered]
        not_covered += [] if self.options.system else [seeded]
        self.folder.status(
            state="running",
            rounds=self.options.rounds,
            label=exp.algo.label,
            metric=prepared.task.metric,
            observer=exp.algo.headline_observer,
            delta=exp.accountant.delta,
            randomness=self.options.randomness,
            dp_valid=None,
            not_covered=not_covered,
            labels=self.labels,
            repeated_rounds=self.repeated,
            device=prepared.device,
            parameters=prepared.plan.federation.n_parameters,
            records=sum(len(silo.x) for silo in prepared.silo_data),
            versions=self.origin.versions,
            identity=asdict(prepared.identity),
            warnings=self._changes(),
            tracker=self.log.name,
            reason=None,
            traceback=None,
        )


def _labels(experiment: Experiment, prepared: PreparedRun) -> Labels:
    """The label of everything that a run writes."""
    queries = prepared.queries(1)
    released = [e for e in events_of(queries) if e.observer == RELEASED_MODEL]
    own = type(experiment.algo).evaluated is not Algorithm.evaluated
    return run_labels(
        main=prepared.task.metric,
        disjoint=experiment.data.disjoint_test and prepared.evaluation.test.user is None,
        certified=any(leaves([(event.certified, 1)]) is not None for event in released),
        kept=own and any(query.stateful for query in queries),
    )


def _with_labels(config_yaml: str, labels: Labels) -> str:
    """The configuration as a tracker shows it: with the label of each metric."""
    return config_yaml.rstrip("\n") + f"\nlabels: {json.dumps(labels[METRICS])}\n"


def events_of(queries: tuple[Query, ...]) -> list[Event]:
    """The privacy events of a whole round."""
    return [event for query in queries for event in query.events]


def _account_for_aborts(folder: RunFolder) -> None:
    """List the rounds without a sum in status.json. Raises AggregationAbortedError when no round
    had one."""
    rounds = folder.rows(TIMINGS)
    aborted = {row["round"]: row["aborted"] for row in rounds if row["aborted"]}
    folder.status(aborted_rounds=aborted)
    if rounds and len(aborted) == len(rounds):
        last = rounds[-1]
        raise AggregationAbortedError(
            f"no round had a sum; round {last['round']}: {last['aborted']}"
        )
