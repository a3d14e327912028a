"""A prepared run, and its rounds of queries."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.crypto.roster import Roster
from fedpriv.engines.base import Session
from fedpriv.errors import (
    AggregationAbortedError,
    FedprivError,
    FedprivWarning,
    MisfitError,
    SilenceError,
)
from fedpriv.parties.messages import digest_of
from fedpriv.parties.post import blaming
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import (
    Broadcast,
    Query,
    QueryTask,
    SiloReport,
    SiloState,
    Total,
)
from fedpriv.rounds.state import State
from fedpriv.runtime.evaluation import Evaluation
from fedpriv.runtime.identity import RunIdentity
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.runtime.set_ups import SetUps
from fedpriv.runtime.standing import Standing
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.stopwatch import Stopwatch

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.data.table.encoding import Encoding


class DivergedError(FedprivError):
    """The global model is no longer finite."""


@dataclass(frozen=True)
class RoundResult:
    """The result of a round.

    state: state after the round.
    stats: diagnostics of the contributions of all silos and queries; None: no silo tells them.
    traffic: lines of traffic.csv.
    aborted: why a query had no sum; `state` is then the one before that query. None: all had one.
    empty: why the first query without a finite contribution had none. None: all had one, up to a
        query without a sum.
    """

    state: State
    stats: ContributionStats | None
    traffic: list[dict[str, Any]]
    aborted: str | None = None
    empty: str | None = None


@dataclass(frozen=True)
class RunFacts:
    """What a run tells of itself.

    roster: verification keys of all parties.
    device: device of training and evaluation.
    identity: digests of what it computes with.
    trainer: what trains users, and why: a line.
    notes: how the records were read, in lines for the person who runs it.
    encoding: how rows of a table became features; None: records are arrays.
    setup: lines of traffic.csv for the set-up before the first round.
    """

    roster: Roster
    device: str
    identity: RunIdentity
    trainer: str
    notes: tuple[str, ...] = ()
    encoding: Encoding | None = None
    setup: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class PreparedRun(SetUps, AbstractContextManager["PreparedRun"]):
    """A run with its data loaded and its parties ready. Leaving the context ends the parties.

    settings: the coordinator's copy of the run's settings. Parties in this process share it.
    session: the running parties.
    state: state before the first round, or after the last round of the checkpoint.
    evaluation: network, records and metrics of evaluations.
    facts: what it tells of itself.
    standing: what its exchanges so far have left.
    """

    settings: RunSettings
    session: Session
    state: State
    evaluation: Evaluation
    facts: RunFacts
    standing: Standing = field(default_factory=Standing)

    @property
    def algo(self) -> Algorithm:
        return self.settings.algo

    @property
    def aggregation(self) -> Aggregation:
        return self.settings.aggregation

    @property
    def plan(self) -> Plan:
        return self.settings.plan

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.evaluation.model

    @property
    def silo_data(self) -> list[SiloData]:
        """The training records of each silo."""
        return self.evaluation.silos

    def rehearse(self, query: Query) -> None:
        """Have the parties of this process answer this query in place of their own, as often as
        they are asked: for audits and checks. Parties in other processes take no notice."""
        self.settings.rehearsed[query.serial] = query

    def __exit__(self, *failure: object) -> None:
        self.session.close()

    def first_set_up(self) -> None:
        """The set-up before the first round. One lost or altered message does not end the run; a
        second failure does."""
        try:
            self.set_up(0, self.facts.setup)
        except AggregationAbortedError as abort:
            warnings.warn(f"repeating the set-up: {abort}", FedprivWarning, stacklevel=3)
            self.set_up(0, self.facts.setup)

    def queries(self, round: int, silos: tuple[str, ...] | None = None) -> tuple[Query, ...]:
        """The queries of a round. Depends on no data.

        silos: names of the silos that take part; None: those that do now.
        """
        return self.algo.queries(round, self.settings.present_plan(silos or self.silos))

    def run_round(
        self, queries: tuple[Query, ...], state: State, watch: Stopwatch | None = None
    ) -> RoundResult:
        """Run the broadcasts, local updates, exchanges and global updates of a round.

        A query releases nothing and ends the round if it has no sum, or if its sum covers fewer
        silos than the noise shares are sized for. Raises DivergedError if the new parameters are
        not finite.
        """
        watch = watch or Stopwatch()
        stats: ContributionStats | None = None
        lines: list[dict[str, Any]] = []
        empty: str | None = None
        for query in queries:
            try:
                total, reports = self.exchange(query, state, watch=watch, lines=lines)
            except AggregationAbortedError as abort:
                return RoundResult(state, stats, lines, str(abort), empty)
            told = [report.stats for report in reports if report.stats is not None]
            own = sum(told, ContributionStats())
            if told:
                stats = own + (stats or ContributionStats())
                empty = empty or own.empty
            with watch.phase("global_update"):
                state = self.algo.next_state(state, query, total, self.plan)
                if not self.silos_hold(state):
                    raise RuntimeError(f"round {query.round}: the parties hold different states")
            if not self._finite(state):
                raise DivergedError(
                    f"round {query.round}: the global model is not finite; lower algo.local_lr "
                    "or algo.global_lr"
                )
        return RoundResult(state, stats, lines, empty=empty)

    def _finite(self, state: State) -> bool:
        """Whether the state is finite, and the released model too, which has 32 bits."""
        with np.errstate(over="ignore"):
            models = [a.astype(np.float32) for a in (state.params, self.algo.output(state))]
        return all(np.isfinite(array).all() for array in (*models, *state.arrays().values()))

    def exchange(
        self, query: Query, state: State, *, watch: Stopwatch, lines: list[dict[str, Any]]
    ) -> tuple[Total, list[SiloReport]]:
        """Run one query: broadcast, local updates and sum. Return the total and the silos' reports,
        and add the traffic to `lines`. Raises AggregationAbortedError if there is no sum over
        `n_summed` silos."""
        with watch.phase("aggregation"):
            self.enrol(query.round, lines, state)
            broadcast = Broadcast(self.algo.sent(state, query), query.sampled)
            query = self.addressed(query)
            traffic = Traffic()
            sample = Broadcast({}, query.sampled) if self.peers else None
            told = QueryTask(*query.serial, query.exchange.repeats)
            tasks = dict.fromkeys(self.aggregation.helpers, replace(told, broadcast=broadcast))
            asked = replace(told, broadcast=sample)
            present = frozenset(self.silos)
            tasks |= {name: asked for name in query.silos if name in present}
            self.standing.agreed_digest = None  # some silos may have the sum and have moved on
            self.standing.aborted = query.serial
            self.standing.failures += 1
            self.standing.failures_since += 1
            try:
                learned = self.session.run(tasks, traffic)
                self._check(query, learned)
                total = self.agreed(query, learned)
                memories = self._memories(query, total, learned)
            except AggregationAbortedError as abort:
                # Stateful silos undo the query in a set-up. Parties whose keys do not match would
                # also abort every later query.
                self.standing.ready = (
                    self.standing.ready
                    and not query.asked.stateful
                    and not isinstance(abort, MisfitError)
                )
                raise
            finally:
                lines += traffic.rows(query.round, query.name)
                self._note_losses(query.round)
            self.standing.silo_states |= memories
            reports = [report for report in learned.values() if isinstance(report, SiloReport)]
            watch.add("local_training", self.session.elapsed(report.seconds for report in reports))
        self.standing.aborted = None
        self.standing.failures = 0
        self.standing.failures_since = 0
        if any(learned[name] is None for name in present & learned.keys()):
            self.standing.ready = False  # a silo has missed the set-up
        if len({report.state for report in reports}) == 1:
            self.standing.agreed_digest = reports[0].state
        return total, reports

    def addressed(self, query: Query) -> Query:
        """The query with the session and the schemas that its messages must match."""
        charged = query.n_summed
        repeats = self.standing.failures if self.aggregation.never_repeats else 0
        query = self.settings.addressed(query, self.silos, self.standing.session_name, repeats)
        if query.mechanism.clips and charged > len(query.invited):
            raise AggregationAbortedError(
                "silos were lost after the round was charged; the next is charged without them"
            )
        return query

    def _check(self, query: Query, learned: dict[str, Any]) -> None:
        """Raise MisfitError for a result that does not match its schema."""
        silos = frozenset(self.silos)
        schemas = {silo: query.learned_schema(silos, silo=silo) for silo in (True, False)}
        for name, known in learned.items():
            with blaming(name):
                schemas[name in silos].check(known)

    def _memories(
        self, query: Query, total: Total, learned: dict[str, Any]
    ) -> dict[str, SiloState]:
        """What silos have stored in a stateful query. Raises AggregationAbortedError if a silo in
        the sum was lost before: the others would go on from a sum that it knows nothing of."""
        if not query.asked.stateful:
            return {}
        memories = self.session.checkpoints([name for name in self.silos if learned.get(name)])
        lost = sorted(set(total.silos) - set(memories))
        if lost:
            raise SilenceError(
                f"{', '.join(lost)} was lost before it stored what it keeps of the sum: the query "
                "is undone",
                lost,
            )
        return dict(memories)

    def agreed(self, query: Query, learned: dict[str, Any]) -> Total:
        """The total. All parties that learn it must have the same one. Raises
        AggregationAbortedError if such a party was lost, or if parties disagree: one that tells
        another total or state than most is at fault."""
        totals = {}
        for name in self.plan.threat_model.learners or query.silos:
            known = learned.get(name)
            total = known.total if isinstance(known, SiloReport) else known
            if total is None:
                raise AggregationAbortedError(f"the {name} was lost and with it the sum")
            totals[name] = total
        alike = {name: digest_of([total.silos, total.vector + 0]) for name, total in totals.items()}
        states = {n: one.state for n, one in learned.items() if isinstance(one, SiloReport)}
        for what, told in (("total", alike), ("state", states)):
            others = {n: f"{n} has told another {what} than most" for n in minority(told)}
            self.standing.faults |= others
        if self.standing.faults:
            raise MisfitError("; ".join(self.standing.faults.values()))
        if len(set(alike.values())) > 1:
            raise MisfitError("the parties have learned different totals")
        return query.covered(next(iter(totals.values())))

    def arrays(self, state: State) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint; `prepare` reads them."""
        return state.arrays() | self.standing.arrays()

    def evaluate(self, state: State) -> dict[str, float]:
        """The metrics of the model in `state`; see `Evaluation`."""
        return self.evaluation.row(self.algo.evaluated(state, self.standing.silo_states))

    def parameters(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """A model (d,) as the network's named float32 arrays."""
        pieces = {}
        start = 0
        for name, parameter in self.model.named_parameters():
            stop = start + parameter.numel()
            pieces[name] = flat[start:stop].astype(np.float32).reshape(tuple(parameter.shape))
            start = stop
        return pieces


def minority(told: Mapping[str, Any]) -> list[str]:
    """Who says something else than more than half of all; empty: nobody, or no half says the
    same."""
    said, count = Counter(told.values()).most_common(1)[0] if told else (None, 0)
    return [name for name, one in told.items() if one != said] if 2 * count > len(told) else []
