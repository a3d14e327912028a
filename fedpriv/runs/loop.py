"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL, leaves
from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline
from fedpriv.errors import AggregationAbortedError, FedprivError, require
from fedpriv.runs.background_writer import BackgroundWriter, SharedWriters
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.folder import CONFIG, RunFolder, read_status
from fedpriv.runs.journal import Journal, repeated
from fedpriv.runs.labels import Labels, run_labels
from fedpriv.runs.progress import Progress, summary
from fedpriv.runs.tables import EPSILON, METRICS, TIMINGS, TRAFFIC
from fedpriv.trackers.base import numbers, tracked
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.util.durable_files import replace_file
from fedpriv.util.logs import LOGGER, logged
from fedpriv.util.stopwatch import Stopwatch

if TYPE_CHECKING:
    from fedpriv.accountants.events import Event
    from fedpriv.rounds.query import Query
    from fedpriv.rounds.state import State
    from fedpriv.runtime import PreparedRun, RoundResult
    from fedpriv.settings.experiment import Experiment, RunOptions
    from fedpriv.trackers.base import Log

PHASES = ("plan", "accounting", "local_training", "aggregation", "global_update", "evaluation")

CHECKPOINT_SECONDS = 1.0
"""From one checkpoint of a seeded run that has the process to itself to the next. One that cannot
be repeated has each as soon as it can be had, since rounds after the last are charged again."""

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
    """Run an experiment into folder `path`, or go on from its last checkpoint.

    config_yaml: the experiment's resolved configuration, which a checkpoint is tied to.
    origin: that of this configuration, if it is known. shared: whose threads write checkpoints;
        None: one of the run's own.
    quiet: show neither progress nor results.

    Whatever can be wrong with the settings or the data is raised before the folder is
    touched; after that, a failure is recorded in status.json and raised again.
    """
    folder = RunFolder(path)
    try:
        run, rows, ending = _trained(
            experiment,
            config_yaml,
            folder,
            resume,
            origin=origin or Origin.of(config_yaml),
            shared_writers=shared_writers,
            quiet=quiet or experiment.options.quiet,
        )
    except OSError as error:
        then = f"; resume={path} goes on once that is mended" if (path / CONFIG).exists() else ""
        raise FedprivError(f"{error.filename or path}: {error.strerror or error}{then}") from error
    if not quiet and not experiment.options.quiet:
        summary(path, experiment, rows, ending=ending, repeated=sum(run.charged_again.values()))


def _trained(
    experiment: Experiment,
    config_yaml: str,
    folder: RunFolder,
    resume: bool,
    *,
    origin: Origin,
    shared_writers: SharedWriters | None,
    quiet: bool,
) -> tuple[_Run, list[EpsilonRow], str | None]:
    """What `train` does, without a word at the end: the run, its last epsilon rows, and why it
    ended early."""
    from fedpriv.runtime import prepare

    with contextlib.ExitStack() as stack:
        saved = None
        begun = None
        if resume:
            saved, begun = folder.open_for_resume(origin, synced=experiment.options.system)
            stack.enter_context(begun)
            behind_it = saved.round if saved else 0
            rounds = experiment.options.rounds
            require(
                rounds >= behind_it,
                "rounds",
                rounds,
                f"at least {behind_it}, which {folder.path} has behind it",
            )
        prepared = stack.enter_context(prepare(experiment, saved.arrays if saved else None))
        if begun is None:
            begun = stack.enter_context(folder.begin(config_yaml))
        else:
            replace_file(
                folder.path / CONFIG, config_yaml.encode()
            )  # rounds, for one, may be other ones now
        stack.enter_context(logged(folder.path))
        LOGGER.info(
            "%s on %s, from round %d",
            experiment.algo.label,
            prepared.device,
            saved.round if saved else 0,
        )
        try:
            pause = 0.0 if experiment.options.system else CHECKPOINT_SECONDS
            with BackgroundWriter(shared_writers, every=pause) as writer:
                known = str(read_status(folder.path).get("tracker", ""))
                done = saved.round if saved else 0
                labels = _labels(experiment, prepared)
                shown = _with_labels(config_yaml, labels)
                with tracked(
                    experiment.tracker, folder.path, shown, known=known, after=done
                ) as log:
                    run = _Run(
                        experiment,
                        prepared,
                        folder,
                        origin,
                        begun,
                        writer,
                        log,
                        saved,
                        quiet,
                        labels,
                    )
                    rows, ending = run.loop()
            folder.status(state="done", reason=ending, dp_valid=run.is_private(rows))
            LOGGER.info("done%s", f": {ending}" if ending else "")
        except KeyboardInterrupt:
            LOGGER.warning("interrupted")
            folder.ended("interrupted", f"resume={folder.path} goes on")
            raise
        except Exception as error:
            LOGGER.error("failed: %s", error, exc_info=True)
            folder.ended("failed", str(error) or type(error).__name__, traceback.format_exc())
            raise
    return run, rows, ending


@dataclass
class _Run:
    """One run on its way: what it was started with, where its records go, and what an earlier
    process left. behind: writes its checkpoints.

    log: shows its numbers elsewhere.
    saved: the checkpoint that it goes on from.
    labels: of everything that it writes.
    """

    experiment: Experiment
    prepared: PreparedRun
    folder: RunFolder
    origin: Origin
    begun: Journal
    writer: BackgroundWriter
    log: Log
    saved: Checkpoint | None
    quiet: bool
    labels: Labels

    @property
    def options(self) -> RunOptions:
        return self.experiment.options

    @property
    def done(self) -> int:
        """Rounds that the checkpoint has behind it."""
        return self.saved.round if self.saved else 0

    @property
    def repeated(self) -> dict[int, int]:
        """How often each round was begun by an earlier process besides the time that this run
        records."""
        return repeated(self.begun.attempts, self.done)

    @property
    def charged_again(self) -> dict[int, int]:
        """Those of `repeated` that have shown something new: seeded, a round begun again is the
        same bits."""
        return self.repeated if self.options.system else {}

    def is_private(self, rows: list[EpsilonRow]) -> bool:
        """Whether the released model has a certificate at all: real noise on bounded contributions,
        a finite epsilon, and no invented users where it speaks of users.

        rows: those of the last round.
        """
        clips = all(channel.mechanism.clips for channel in self.prepared.plan.channels.values())
        released = [row for row in rows if row.observer == RELEASED_MODEL]
        finite = any(math.isfinite(row.certified) for row in released)
        invented = self.experiment.allocator.invents_users
        real = not invented or all(row.unit != "user" for row in released)
        return self.options.system and clips and finite and real

    def loop(self) -> tuple[list[EpsilonRow], str | None]:
        """Rounds until the last one, or until the next would break the budget. Returns the last
        epsilon rows, and why the run ended early if it did."""
        options = self.options
        budget = self.experiment.accountant.budget
        prepared = self.prepared
        ledger = self._start()
        state = prepared.state
        number = self.done
        ending = None
        rows = ledger.rows(number)
        with Progress(options.rounds, number, prepared.task.metric, quiet=self.quiet) as progress:
            if number < options.rounds and (
                estimate := prepared.estimate(number + 1, options.rounds - number)
            ):
                progress.expect(estimate)
            while number < options.rounds:
                watch = Stopwatch()
                with watch.phase("plan"):
                    queries = prepared.queries(number + 1)
                # With a budget any round may turn out to be the last.
                shown = self._shown(number + 1) or budget is not None
                with watch.phase("accounting"):
                    after = ledger.copy()
                    after.record(events_of(queries))
                    rows_after = after.rows(number + 1) if shown else rows
                if budget is not None and self._headline(rows_after) > budget:
                    ending = f"round {number + 1} would exceed accountant.budget={budget:g}"
                    self._save(number, state)
                    break
                number = number + 1
                ledger = after
                rows = rows_after
                before = state
                with watch.phase("accounting"):
                    self.begun.append(number, synced=self.options.system)
                result = self._round(number, queries, state, ledger=ledger, watch=watch)
                state = result.state
                if result.aborted:
                    progress.say(f"round {number} released nothing: {result.aborted}")
                step = float(np.linalg.norm(state.params - before.params))
                row: dict[str, Any] = {}
                if shown:
                    with watch.phase("evaluation"):
                        row = self._evaluated(number, state, result.stats, step)
                    self.folder.append(METRICS, [row])
                    self.folder.append(EPSILON, [_columns(row) for row in rows])
                    self.log.add(number, numbers(row, rows, self.experiment.algo.headline_observer))
                self._record(number, result, watch)
                progress.update(number, row, self._headline(rows) if shown else None)
        self._finish(number, state, rows)
        return rows, ending

    def _headline(self, rows: list[EpsilonRow]) -> float:
        return headline(rows, self.experiment.algo.headline_observer)

    def _shown(self, number: int) -> bool:
        return number % self.options.evaluate_every == 0 or number == self.options.rounds

    def _start(self) -> Ledger:
        """The ledger of everything begun so far; opens the run's records or cuts them back to the
        checkpoint."""
        prepared = self.prepared
        folder = self.folder
        whole = folder.rewind(self.saved)
        shown = [] if whole else folder.evaluated
        ledger = Ledger(self.experiment.accountant)
        for past, times in self.charged_again.items():
            ledger.record(events_of(prepared.queries(past)), times)
        for past in range(1, self.done + 1):
            ledger.record(events_of(prepared.queries(past)))
            if past in shown:  # the table was damaged
                folder.append(EPSILON, [_columns(row) for row in ledger.rows(past)])
        self._opening_status()
        if self.saved is None:
            folder.append(METRICS, [self._evaluated(0, prepared.state)])
            folder.append(TRAFFIC, prepared.setup)
            self._keep(
                self._checkpoint(0, prepared.state)
            )  # before a round begins: there is no way back
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
        """Run a round. However it fails, epsilon.csv has its cost: its messages may have been
        seen.
        """
        try:
            return self.prepared.run_round(queries, state, watch)
        except BaseException:
            self.folder.append(EPSILON, [_columns(row) for row in ledger.rows(number)])
            raise

    def _record(self, number: int, result: RoundResult, watch: Stopwatch) -> None:
        """A round's times and traffic, and a checkpoint if it is time for one."""
        seconds = {phase: watch.seconds.get(phase, 0.0) for phase in PHASES}
        self.folder.append(TIMINGS, [{"round": number, **seconds, "aborted": result.aborted}])
        self.folder.append(TRAFFIC, result.traffic)
        if number % self.options.checkpoint_every == 0 or number == self.options.rounds:
            self._save(number, result.state)

    def _save(self, number: int, state: State) -> None:
        checkpoint = self._checkpoint(number, state)
        self.writer.submit(lambda: self._keep(checkpoint))

    def _keep(self, checkpoint: Checkpoint) -> None:
        self.begun.fsync()
        self.folder.save_checkpoint(checkpoint)

    def _checkpoint(self, number: int, state: State) -> Checkpoint:
        arrays = self.prepared.arrays(state)
        tables = self.folder.tables
        return Checkpoint(number, arrays, self.begun.total, self.origin, tables.marks())

    def _finish(self, number: int, state: State, rows: list[EpsilonRow]) -> None:
        """The last records of a run that ends after round `number`."""
        self.writer.finish()
        if (
            number == self.done and self.charged_again
        ):  # no round has come to put their cost into the table
            self.folder.tables.cut(EPSILON, number - 1)
            self.folder.append(EPSILON, [_columns(row) for row in rows])
            self._keep(self._checkpoint(number, state))
        _account_for_aborts(self.folder)
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
        """A metrics row: test metrics, and how long and how often clipped the contributions
        were.
        """
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

    def _opening_status(self) -> None:
        exp = self.experiment
        prepared = self.prepared
        seeded = (
            "seeded noise and sampling: whoever knows the seed can subtract them; "
            "randomness=system draws real ones"
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
            warnings=self.saved.origin.changes(self.origin) if self.saved else [],
            tracker=self.log.name,
            reason=None,
            traceback=None,
        )


def _labels(experiment: Experiment, prepared: PreparedRun) -> Labels:
    """The label of everything that a run writes."""
    released = [e for e in events_of(prepared.queries(1)) if e.observer == RELEASED_MODEL]
    return run_labels(
        main=prepared.task.metric,
        disjoint=experiment.data.disjoint_test and prepared.evaluation.test.user is None,
        certified=any(leaves([(event.certified, 1)]) is not None for event in released),
    )


def _with_labels(config_yaml: str, labels: Labels) -> str:
    """The configuration as a tracker shows it: with the label of each metric."""
    return config_yaml.rstrip("\n") + f"\nlabels: {json.dumps(labels[METRICS])}\n"


def events_of(queries: tuple[Query, ...]) -> list[Event]:
    """What a whole round shows."""
    return [event for query in queries for event in query.events]


def _account_for_aborts(folder: RunFolder) -> None:
    """Name the rounds without a sum in status.json. Raises AggregationAbortedError when no round
    had one."""
    rounds = folder.rows(TIMINGS)
    aborted = {row["round"]: row["aborted"] for row in rounds if row["aborted"]}
    folder.status(aborted_rounds=aborted)
    if rounds and len(aborted) == len(rounds):
        last = rounds[-1]
        raise AggregationAbortedError(
            f"no round had a sum; round {last['round']}: {last['aborted']}"
        )


def _columns(row: EpsilonRow) -> dict[str, Any]:
    return vars(row) | {"assumptions": "; ".join(row.assumptions)}
