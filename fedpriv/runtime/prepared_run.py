"""A prepared run, and one round of it: its queries, one after the other."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import Aggregation, Estimate
from fedpriv.algorithms.base import Algorithm
from fedpriv.engines.base import Session
from fedpriv.errors import AggregationAbortedError, FedprivError, MisfitError, SilenceError
from fedpriv.parties.party import silo_name
from fedpriv.parties.post import Serial, blaming
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Broadcast, Query, SetUp, SiloReport, SiloState, Total
from fedpriv.rounds.state import State
from fedpriv.runtime.evaluation import Evaluation
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.util.stopwatch import Stopwatch

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task

SESSION_BYTES = 16
SILO = "silo/"
"""What a silo's arrays begin with in a checkpoint."""
FAILED = "failed"
"""Round and place of the last query in a checkpoint, if it had no sum, and how many in a row had
none."""


class DivergedError(FedprivError):
    """The global model is no longer finite."""


@dataclass(frozen=True)
class RoundResult:
    """What a round left behind: the new state, the tally of all silos and queries, and lines of
    traffic.csv.

    aborted: why a query had no sum; the state is then the one before that query.
    """

    state: State
    stats: ContributionStats
    traffic: list[dict[str, Any]]
    aborted: str | None = None


@dataclass
class PreparedRun(AbstractContextManager["PreparedRun"]):
    """A run with its data loaded and its parties ready. Leaving it ends the parties.

    state: before the first round, or after the last one of the checkpoint that it goes on from.
    setup: lines of traffic.csv for the set-up.
    silo_states: what silos gave out after the last round.
    ready: whether a set-up has ended since the last loss or misfit.
    session_name: stamps every message since that set-up.
    held: digest of the state that all silos are known to hold, where no helper does.
    aborted: round and place of the last query, if it had no sum.
    failures: how many in a row had none.
    absent: silos that no longer answer, and that the run goes on without.
    """

    algo: Algorithm
    aggregation: Aggregation
    plan: Plan
    session: Session
    state: State
    model: nn.Module
    task: Task
    silo_data: list[SiloData]
    evaluation: Evaluation
    device: str
    setup: list[dict[str, Any]] = field(default_factory=list)
    silo_states: dict[str, SiloState] = field(default_factory=dict)
    ready: bool = False
    session_name: bytes = b""
    held: bytes | None = None
    aborted: Serial | None = None
    failures: int = 0
    absent: frozenset[str] = frozenset()

    def __exit__(self, *failure: object) -> None:
        self.session.close()

    @property
    def silos(self) -> tuple[str, ...]:
        """Those that take part."""
        names = map(silo_name, range(self.plan.federation.n_silos))
        return tuple(name for name in names if name not in self.absent)

    @property
    def peers(self) -> bool:
        """Whether there is no helper, so that every silo holds the state."""
        return not self.aggregation.helpers

    def set_up(self, round: int, lines: list[dict[str, Any]], state: State | None = None) -> None:
        """`_set_up`; silos that are silent in two tries of it are left out for good, if the
        aggregation goes on without them. Raises AggregationAbortedError when somebody else is
        missing."""
        silent: set[str] = set()
        while True:  # each try that fails adds to `silent` or leaves somebody out
            try:
                return self._set_up(round, lines, state)
            except SilenceError as silence:
                left = len(set(self.silos) - silence.names)
                if (
                    not silence.names
                    or not silence.names <= set(self.silos)
                    or not self.aggregation.abort_policy.continues_with(left)
                ):
                    raise
                if twice := silence.names & silent:
                    self.absent |= twice
                    told = (
                        f"round {round}: goes on without {', '.join(sorted(twice))}, who are silent"
                    )
                    warnings.warn(told, RuntimeWarning, stacklevel=2)
                silent |= silence.names

    def _set_up(self, round: int, lines: list[dict[str, Any]], state: State | None) -> None:
        """Run the aggregation's set-up with everybody; adds its traffic to `lines`.

        state: what silos go on from where they hold it; None: this simulation's first.

        Lost parties are made anew, each from what it gave out last. Their keys are gone, and a
        set-up that ended early leaves some parties with old keys and others with new ones: until
        one has ended no query may begin. Raises AggregationAbortedError when somebody is missing.
        """
        self.ready = False
        self.held = None
        traffic = Traffic()
        federation = self.plan.federation
        self.session_name = os.urandom(SESSION_BYTES)
        state = state or self.state
        held = state.arrays() if self.peers else None
        task = SetUp(
            self.session_name,
            self.algo.contributors.number(federation),
            held,
            self.aborted,
            self.silos,
        )
        lost = self.session.lost - self.absent
        self.session.reopen({name: self.silo_states.get(name, {}) for name in lost})
        everybody = [*self.aggregation.helpers, *self.silos]
        try:
            self.session.run(dict.fromkeys(everybody, task), traffic)
        finally:
            lines += traffic.rows(round, "setup")
        if self.session.lost:
            raise SilenceError(
                f"the set-up has lost {', '.join(sorted(self.session.lost))}", self.session.lost
            )
        self.ready = True
        self.held = state.digest() if self.peers else None

    def queries(self, round: int) -> tuple[Query, ...]:
        """What will be asked in a round; looks at no data."""
        return self.algo.queries(round, self.plan)

    def estimate(self, round: int, rounds: int) -> Estimate | None:
        """What the exchanges of `rounds` rounds from `round` on will take, if the aggregation can
        tell."""
        return self.aggregation.estimate(self.queries(round)[0], self.plan.federation, rounds)

    def run_round(
        self, queries: tuple[Query, ...], state: State, watch: Stopwatch | None = None
    ) -> RoundResult:
        """Broadcasts, local updates, exchanges and global updates of a round.

        A query without a sum, or with one over fewer silos than the noise shares are sized for,
        releases nothing and ends the round. Raises DivergedError when the new parameters are not
        finite.
        """
        watch = watch or Stopwatch()
        stats = ContributionStats()
        lines: list[dict[str, Any]] = []
        for query in queries:
            try:
                total, reports = self.exchange(query, state, watch=watch, lines=lines)
            except AggregationAbortedError as abort:
                return RoundResult(state, stats, lines, str(abort))
            stats += sum((report.stats for report in reports), ContributionStats())
            with watch.phase("global_update"):
                state = self.algo.global_update(state, query, total, self.plan)
                if not self._silos_hold(state):
                    raise RuntimeError(f"round {query.round}: the parties hold different states")
            if not all(np.isfinite(array).all() for array in state.arrays().values()):
                raise DivergedError(
                    f"round {query.round}: the global model is not finite; lower algo.local_lr "
                    "or algo.global_lr"
                )
        return RoundResult(state, stats, lines)

    def exchange(
        self, query: Query, state: State, *, watch: Stopwatch, lines: list[dict[str, Any]]
    ) -> tuple[Total, list[SiloReport]]:
        """One query: broadcast, local updates and sum. Returns the total, and what silos report;
        adds its traffic to `lines`. Raises AggregationAbortedError when there is no sum over
        `n_summed` silos."""
        with watch.phase("aggregation"):
            if self.session.lost or not self.ready or not self._silos_hold(state):
                self.set_up(query.round, lines, state)
            broadcast = Broadcast(self.algo.broadcast(state, query), query.sampled)
            query = self._addressed(query, broadcast)
            traffic = Traffic()
            asked = query.peer_query() if self.peers else query.silo_query()
            tasks: dict[str, Any] = dict.fromkeys(self.aggregation.helpers, (query, broadcast))
            tasks |= {silo_name(silo): asked for silo in query.invited}
            self.held, self.aborted = (
                None,
                query.serial,
            )  # some silos may have had the sum and moved on
            self.failures += 1
            try:
                learned = self.session.run(tasks, traffic)
                self._check(query, learned)
                total = self._agreed(query, learned)
            except AggregationAbortedError as abort:
                # Silos go back in a set-up; and those whose keys do not fit would end later queries
                # in the same way.
                self.ready = (
                    self.ready and not query.stateful and not isinstance(abort, MisfitError)
                )
                raise
            finally:
                lines += traffic.rows(query.round, query.name)
            if query.stateful:
                self.silo_states |= self.session.checkpoints(self.silos)
            reports = [report for report in learned.values() if isinstance(report, SiloReport)]
            watch.add("local_training", self.session.elapsed(report.seconds for report in reports))
        self.aborted = None
        self.failures = 0
        if len({report.state for report in reports}) == 1:
            self.held = reports[0].state
        return total, reports

    def _addressed(self, query: Query, broadcast: Broadcast) -> Query:
        """The query with what its messages are checked by."""
        down = tuple((name, vector.shape) for name, vector in broadcast.vectors.items())
        n_units = self.algo.contributors.number(self.plan.federation)
        if (
            self.absent
        ):  # noise shares are then larger, so that the sum's noise stays what is charged
            invited = tuple(silo for silo in query.invited if silo_name(silo) not in self.absent)
            query = replace(query, invited=invited, n_summed=len(invited))
        again = self.failures if self.aggregation.abort_policy.never_repeats else 0
        return replace(query, session=self.session_name, down=down, n_units=n_units, again=again)

    def _check(self, query: Query, learned: dict[str, Any]) -> None:
        """Raise MisfitError for what no party can have learned."""
        silos = frozenset(self.silos)
        kinds = {silo: query.learned_schema(silos, silo=silo) for silo in (True, False)}
        for name, known in learned.items():
            with blaming(name):
                kinds[name in silos].check(known)

    def _agreed(self, query: Query, learned: dict[str, Any]) -> Total:
        """The total, which everybody who should has learned alike. Raises AggregationAbortedError
        when the sum was lost with somebody, and RuntimeError when parties disagree."""
        totals = []
        for name in self.plan.threat_model.learners or map(silo_name, query.invited):
            known = learned.get(name)
            total = known.total if isinstance(known, SiloReport) else known
            if total is None:
                raise AggregationAbortedError(f"the {name} was lost and with it the sum")
            totals.append(query.covered(total))
        first = totals[0]
        if any(
            t.silos != first.silos or not np.array_equal(t.vector, first.vector) for t in totals[1:]
        ):
            raise RuntimeError(f"round {query.round}: the parties have learned different totals")
        return first

    def _silos_hold(self, state: State) -> bool:
        """Whether every silo goes on from this state, or need not, since a helper holds it."""
        return not self.peers or self.held == state.digest()

    def arrays(self, state: State) -> dict[str, np.ndarray]:
        """What a checkpoint holds; `prepare` takes it back."""
        kept = self.silo_states.items()
        silos = {f"{SILO}{silo}/{key}": value for silo, own in kept for key, value in own.items()}
        failed = {FAILED: np.array([*self.aborted, self.failures])} if self.aborted else {}
        return state.arrays() | silos | failed

    def evaluate(self, state: State) -> dict[str, float]:
        """A row of metrics: see `Evaluation`."""
        return self.evaluation.row(self.algo.evaluated(state, self.silo_states))

    def parameters(self, state: State) -> dict[str, np.ndarray]:
        """The released model, cut into the network's named float32 tensors."""
        flat = self.algo.output(state)
        pieces = {}
        start = 0
        for name, parameter in self.model.named_parameters():
            stop = start + parameter.numel()
            pieces[name] = flat[start:stop].astype(np.float32).reshape(tuple(parameter.shape))
            start = stop
        return pieces
