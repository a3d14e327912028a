"""The rounds of a run: charged, run and recorded one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline, headlines
from fedpriv.ledgers.data_ledger import BeyondBudgetError
from fedpriv.rounds.query import Query, events_of
from fedpriv.runs.charging import LedgerCharge
from fedpriv.runs.progress import OnRound, Progress
from fedpriv.runs.records import RunRecords
from fedpriv.runtime import PreparedRun, RoundResult, StoppedError
from fedpriv.settings.experiment import Experiment
from fedpriv.trackers.base import Log, numbers
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.stopwatch import Stopwatch

MOST_WITHOUT_SUM = 16
"""Rounds in a row without a sum after which a run stops: each is charged, and teaches nothing."""


@dataclass
class TrainingLoop:
    """A run in progress.

    experiment: its settings and components.
    prepared: its parties, with data and initial state.
    records: what it writes to its folder.
    log: its tracker.
    quiet: show no progress.
    on_round: see `Progress`.
    charge: what a ledger pays for; None: there is none.
    aborts: why the last rounds in a row had no sum, in this process.
    number: completed rounds.
    state: after them, for the next one.
    ending: why the run ends early; empty: it does not.
    model: parameters (d,) to release in place of those of the last round; None: these.
    note: whose these are, in a line.
    tested: epsilon rows of test persons, whose scores have chosen them.
    scores: name of each score of the released model: its value in words.
    rows: epsilon rows of the rounds begun, or of all planned ones where scores have ended the run.
    """

    experiment: Experiment
    prepared: PreparedRun
    records: RunRecords
    log: Log
    quiet: bool
    on_round: OnRound | None
    charge: LedgerCharge | None
    aborts: list[str] = field(default_factory=list)
    ending: str = ""
    model: np.ndarray | None = None
    note: str = ""
    tested: list[EpsilonRow] = field(default_factory=list)
    scores: dict[str, str] = field(default_factory=dict)
    rows: list[EpsilonRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number = self.records.completed
        self.state = self.prepared.state

    def run(self) -> Iterator[TrainingLoop]:
        """Run rounds until the last one, or until the next would exceed the budget. Yields itself
        before each round and after the last, for who may `stop` it."""
        rounds = self.experiment.options.rounds
        self.ledger = self._past()
        self.rows = self.ledger.rows(self.number)
        metric = self.prepared.evaluation.task.metric
        with Progress(
            rounds, self.number, metric, quiet=self.quiet, on_round=self.on_round
        ) as progress:
            self._introduce(progress)
            yield self
            while not self.ending and self.number < rounds:
                self._next_round(progress)
                yield self
        if self.ending:
            self._end_early()
        self.records.finish(self.number, self.state, self.rows, self.model)

    def stop(self, why: str) -> None:
        """End the run here, by private scores: its epsilon is that of all planned rounds, since
        none of fewer covers when it ended."""
        until = self.experiment.options.rounds
        for later in range(self.number + 1, min(until, self._last or until) + 1):
            self.ledger.record(events_of(self.prepared.queries(later)))
        self.ending, self.rows = why, self.ledger.rows(until)

    @property
    def _last(self) -> int | None:
        return self.experiment.algo.last_round(self.prepared.plan.federation)

    def _introduce(self, progress: Progress) -> None:
        """Say how records were read, what the target means and what rounds will take."""
        prepared = self.prepared
        for note in prepared.facts.notes:
            progress.say(f"data: {note}")
        if self.records.target:
            progress.say(self.records.target.text)
        if self.number < self.experiment.options.rounds:
            query = prepared.queries(self.number + 1)[0]
            for line in prepared.aggregation.estimate(query, prepared.plan.federation):
                progress.say(line)

    def _next_round(self, progress: Progress) -> None:
        """Run a round, unless the run has to end before it."""
        number = self.number + 1
        if self.number == self._last:
            self.ending = f"round {number} has no records left: one pass is over"
            return
        watch = Stopwatch()
        setup: list[dict[str, Any]] = []
        with watch.phase("aggregation"):
            self._gather(setup)
        with watch.phase("plan"):
            queries = self.prepared.queries(number)
        shown = self._is_shown(number)
        with watch.phase("accounting"):
            after = self.ledger.copy()
            after.record(events_of(queries))
            rows = after.rows(number) if shown or self._limited else self.rows
            exceeded = self._exceeded(rows) or self._unpaid(queries)
        if exceeded:
            self.ending = f"round {number} would exceed {exceeded}"
            return
        self.ledger, self.rows = after, rows
        with watch.phase("accounting"):
            self.records.begin_round(number)
        result = self._round(number, queries, watch)
        self.aborts = [*self.aborts, result.aborted] if result.aborted else []
        if result.aborted:
            progress.say(f"round {number} released nothing: {result.aborted}")
        if result.empty:
            progress.say(f"round {number} learned nothing: {result.empty}")
        before, self.number, self.state = self.state, number, result.state
        row = {}
        if shown:
            with watch.phase("evaluation"):
                step = float(np.linalg.norm(self.state.params - before.params))
                row = self._show(result.stats, step)
        self.records.end_round(number, replace(result, traffic=[*setup, *result.traffic]), watch)
        progress.update(number, row, self._headline(self.rows) if shown else None)

    def _end_early(self) -> None:
        """Write what lacks of the last round, which the tables may not show."""
        stopped = any(row.round > self.number for row in self.rows)
        self.rows = self.rows if stopped else self.ledger.rows(self.number)
        self.records.save(self.number, self.state)
        if self.number and self.number not in self.records.folder.evaluated:
            self._show()
        elif stopped:
            self.records.epsilons(self.rows)

    def _unpaid(self, queries: Sequence[Query]) -> str:
        """Charge a round to the ledger. Returns which budget it would exceed; empty: none."""
        try:
            if self.charge is not None:
                self.charge.begin(queries)
        except BeyondBudgetError as refusal:
            return f"{refusal.population.budget} of {refusal.population.name} in the ledger"
        return ""

    def _gather(self, lines: list[dict[str, Any]]) -> None:
        """Have the next round's silos ready before it is charged. If that fails, or if too many
        rounds had no sum, the run stops before it."""
        try:
            if len(self.aborts) >= MOST_WITHOUT_SUM:
                many = f"{len(self.aborts)} rounds in a row had no sum"
                raise StoppedError(f"{many}: {self.aborts[-1]}")
            self.prepared.gather(self.number + 1, lines, self.state)
        except StoppedError as stop:
            self.records.losses.note()
            self.records.save(self.number, self.state)
            path = self.records.folder.whole
            raise StoppedError(f"{stop}; mend it, then continue with resume={path}") from stop

    def _past(self) -> Ledger:
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
        self, stats: ContributionStats | None = None, step: float | None = None
    ) -> dict[str, Any]:
        """Evaluate the last round; write its metrics and epsilons. Returns the row of its
        metrics."""
        row = self.records.evaluate(self.number, self.state, stats, step)
        self.records.epsilons(self.rows)
        self.log.add(self.number, numbers(row, self.rows, self.experiment.algo.headline_observer))
        return row

    def _headline(self, rows: list[EpsilonRow]) -> float:
        return headline(rows, self.experiment.algo.headline_observer)

    @property
    def _limited(self) -> bool:
        """Whether a limit of epsilon may end the run. The noise of a target is enough for every
        planned round, but not for repeated ones, nor for silos that know a larger share of it since
        others were lost."""
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

    def _round(self, number: int, queries: tuple[Query, ...], watch: Stopwatch) -> RoundResult:
        """Run a round. If it fails, record who was lost, and its cost in epsilon.csv: its messages
        may have been seen."""
        try:
            return self.prepared.run_round(queries, self.state, watch)
        except BaseException:
            self.records.losses.note()
            self.records.epsilons(self.ledger.rows(number))
            raise
