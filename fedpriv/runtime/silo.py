"""A silo as a participant: it trains, bounds its contributions, adds its noise share, and takes
part in the sum.

The framework bounds contributions and adds noise here, not in the algorithm. Every contribution
that reaches the aggregation is within the mechanism's bound, and every message contains the noise
share that the query declares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.filters import Budget
from fedpriv.aggregation.base import Respond
from fedpriv.crypto.key_files import KeyFiles
from fedpriv.crypto.roster import Identity
from fedpriv.errors import ConfigError, RefusedError, SilenceError
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.models import Network
from fedpriv.parties.party import Memory, Party, PartySpec, WorkingParticipant
from fedpriv.parties.post import Expected, Serial, blaming
from fedpriv.parties.schema import Array, Maybe
from fedpriv.rounds.adapting import at_bound
from fedpriv.rounds.bounding import bounded
from fedpriv.rounds.local_job import Computation, LocalJob, Step, advance
from fedpriv.rounds.mixing import RAW, Past
from fedpriv.rounds.mixing import row as mixed_row
from fedpriv.rounds.one_row import one_row
from fedpriv.rounds.query import (
    SUMMED,
    Broadcast,
    PendingState,
    Query,
    QueryTask,
    SetUpTask,
    SiloReport,
    SiloState,
    Total,
)
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.runtime.helper import SumMembership
from fedpriv.runtime.run_settings import RunSettings, settings_digest
from fedpriv.runtime.silo_journal import SiloJournal
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.description import Execution
from fedpriv.util.read_only import read_only_values
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.work import Work

if TYPE_CHECKING:
    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task


@dataclass(frozen=True)
class SiloSpec(PartySpec):
    """The description of a silo.

    index: position among the silos.
    data: records of the silo.
    network: what it trains.
    task: loss and metrics.
    settings: the silo's copy of the run's settings.
    identity: its key and the roster that it believes, or where it finds them.
    device: device of local training.
    execution: how local training is computed.
    journal: where its journal is; None: in memory.
    budget: the site's own, of all its answers in the journal; None: that of the journal, and of the
        first run that has one.
    """

    index: int
    data: SiloData
    network: Network
    task: Task
    settings: RunSettings
    identity: Identity | KeyFiles
    device: str
    execution: Execution = Execution()
    journal: CountedFile | None = None
    budget: Budget | None = None

    def open(self, memory: Memory) -> SiloParticipant:
        return SiloParticipant(self, memory)


class SiloParticipant(WorkingParticipant):
    """A running silo. Its task is a `SetUpTask` or a `QueryTask`."""

    def __init__(self, spec: SiloSpec, memory: Memory) -> None:
        data = spec.data.to(spec.device)
        model = spec.network.module.to(spec.device)
        self.settings = spec.settings
        self.algo = spec.settings.algo
        self.silo = Silo(
            spec.index,
            data,
            model,
            spec.task,
            spec.settings.plan,
            state=read_only_values(
                {key: value for key, value in memory.items() if not key.startswith(RAW)}
            ),
            execution=spec.execution,
            contributors=self.algo.contributors,
        )
        self.identity = spec.identity.identity()
        self.protocol = spec.settings.aggregation.silo(
            self.silo.name, self.settings.silos, self.algo.contributors.weighting
        )
        self.announcer = spec.settings.aggregation.helpers[:1]
        self.present = self.settings.silos
        self.enrolled = False  # whether the last set-up has ended here
        self.journal = SiloJournal(
            self.silo.name,
            spec.journal,
            run=spec.settings.digest.hex(),
            asked=spec.settings.asked(lasting=spec.journal is not None),
            own=spec.budget,
        )
        # With other records, or in another order, batches and turns are others.
        own = (spec.data.x.cpu().numpy(), spec.data.y.cpu().numpy(), spec.data.starts)
        self.parts = b"" if spec.journal is None else settings_digest(spec.data.users, *own)
        self.state: State | None = None  # None: a helper holds it
        # Sums without noise that later messages repeat. No method sees them.
        self.raw: SiloState = {key: memory[key] for key in memory if key.startswith(RAW)}
        self.previous: tuple[Serial, SiloState, SiloState] | None = None

    def close(self) -> None:
        self.journal.close()

    def checkpoint(self) -> dict[str, np.ndarray]:
        """What the method stores, and in a simulation the raw sums. With noise from the operating
        system these are sealed here: they end with this process."""
        return dict(self.silo.state) | ({} if self.silo.streams.system else dict(self.raw))

    def take_part(self, task: SetUpTask | QueryTask) -> Party:
        if isinstance(task, SetUpTask):
            return self.working(self._set_up(task))
        if isinstance(task, QueryTask):
            return self.working(self._query(task))
        raise RefusedError(f"{self.silo.name} refuses a task of type {type(task).__name__}")

    def _set_up(self, task: SetUpTask) -> Party:
        """Returns whether this silo can take part in queries now."""
        self.settings.require_set_up(self.silo.name, task)
        self.journal.set_up(task.session, len(self.settings.silos), task.round)
        self.enrolled = False
        self.present = task.silos
        self.state = None if task.state is None else State.from_arrays(task.state)
        self._undo_aborted(task)
        self.protocol.signer = self.identity.signer(self.settings.digest, task.session)
        # Each silo computes its own counts here: a table of all silos times units would be large.
        counts = self.algo.contributors.counts(
            self.silo.index, self.silo.data, self.silo.plan.federation
        )
        try:
            yield from self.protocol.setup(task, counts)
        except SilenceError as silence:
            if silence.names.intersection(self.settings.silos):
                raise
            return False  # the others may have heard the helper
        self.enrolled = True
        return True

    def _undo_aborted(self, task: SetUpTask) -> None:
        """Restore the state before a query without a sum. This silo may have seen a sum that no
        other party has."""
        if self.previous is not None and self.previous[0] == task.aborted:
            self.silo = replace(self.silo, state=self.previous[1])
            self.raw = self.previous[2]
        self.previous = None

    def asked(self, task: QueryTask) -> Query:
        """The query, from this silo's own settings. Raises RefusedError for one that was answered
        before, that the run does not have, or that exceeds the budget."""
        serial = (task.round, task.place)
        query = self.settings.query(self.silo.name, task, self.present, self.journal.session)
        new = serial not in self.settings.rehearsed
        if new:
            self.journal.require_new(serial)
        charge = None
        if self.journal.charges:
            charge = self.settings.charge(serial, self.present, self.parts)
        if new and charge is not None:
            self._require_budget(serial, charge)
        self.journal.begin(serial, charge)
        return query if self.state is None else replace(query, sampled=self._sample(task))

    def _sample(self, task: QueryTask) -> np.ndarray | None:
        """The sample of users where no helper draws it. It is public there."""
        sampled = None if task.broadcast is None else task.broadcast.sampled
        with blaming("the coordinator"):
            Maybe(Array(np.bool_, (self.settings.n_units,))).check(sampled)
        return sampled

    def _require_budget(self, serial: Serial, charge: Charge) -> None:
        budget = self.journal.budget
        if budget is None:
            return
        refuses = f"{self.silo.name} refuses round {serial[0]}"
        spent = self.journal.spent + Counter([charge])
        try:
            epsilon = self.settings.epsilon(spent, self.journal.lasting)
        except ConfigError as error:  # an earlier run may have had another accountant
            raise RefusedError(f"{refuses}: {error}") from error
        if not epsilon <= budget.epsilon:
            raise RefusedError(
                f"{refuses}: with its earlier answers it would exceed its budget of {budget}"
            )

    def _query(self, task: QueryTask) -> Party:
        """Returns a SiloReport, or None where no set-up has ended since the silo started."""
        if not self.enrolled:
            return None
        query = self.asked(task)
        work = SiloWork(self, query)
        post = query.post(self.silo.name, self.protocol.signer)
        membership = SumMembership(
            post, Expected(SUMMED, query.summed_schema(self.settings.silos), self.announcer)
        )
        total = yield from membership.overhearing(
            self.protocol.query(query, self._responding(work, query))
        )
        if work.pending is not None or work.mixes:
            work.finish()
            summed = (
                query.covered(total).silos
                if total is not None
                else (yield from membership.summed())
            )
            self.previous = query.serial, self.silo.state, self.raw
            inside = self.silo.name in summed
            if work.pending is not None:
                state = self.algo.silo_state(self.silo, work.pending, inside)
                self.silo = replace(self.silo, state=read_only_values(state))
            if inside and work.mixes:
                if work.past is None:
                    raise RuntimeError("the aggregation has not used LocalJob.row")
                self.raw = {**self.raw, **work.past.arrays(RAW + query.name)}
        return SiloReport(total, work.stats, work.seconds, self.updated(query, total))

    def _responding(self, work: SiloWork, query: Query) -> Respond:
        """The function that answers a broadcast. A silo that holds the state creates the broadcast
        itself."""
        if self.state is None:
            return work.respond
        own = Broadcast(self.algo.sent(self.state, query), query.sampled)
        return lambda _: work.respond(own)

    def updated(self, query: Query, total: Total | None) -> bytes | None:
        """Apply the query's global update to this silo's state, and return the digest; None if a
        helper holds the state."""
        if self.state is None:
            return None
        if total is not None:
            self.state = self.algo.next_state(self.state, query, total, self.silo.plan)
        return self.state.digest()


class SiloWork:
    """The computation of one silo for one query."""

    def __init__(self, participant: SiloParticipant, query: Query) -> None:
        self.participant = participant
        self.query = query
        self.stats = ContributionStats()
        self.pending: PendingState | None = None
        self.past: Past | None = None  # raw sums, with that of this round, once it is complete
        self.mixes = False
        self.steps: Iterator[Step] = iter(())
        self.watch = Stopwatch()

    def respond(self, broadcast: Broadcast) -> LocalJob:
        """The job for a broadcast, with bounded contributions and the noise share."""
        participant = self.participant
        query = self.query
        if broadcast.sampled is not query.sampled:
            query = replace(query, sampled=broadcast.sampled)
        query, down = at_bound(query, broadcast.vectors)
        job = participant.algo.local_update(participant.silo, query, down)
        self.pending = job.pending
        self.mixes = query.mechanism.mixing is not None
        self.stats = job.stats
        federation = participant.silo.plan.federation
        bounds = participant.algo.contributors.bounds(federation, query.round)
        steps = self._timed(bounded(job.steps, query, self.stats, bounds))
        row = one_row(
            job,
            participant.silo,
            query,
            stats=self.stats,
            bounds=bounds,
            draw=lambda: self.noise(job, query)[0],
            spent=lambda seconds: self.watch.add("local_training", seconds),
        )
        if row is not None:
            # No silo state waits for it, so `finish` has nothing to keep.
            return LocalJob(steps, one_row=row)
        self.steps = steps
        noise, secret = self.noise(job, query)
        # This object keeps the steps and not the job, whose noise would wait in memory.
        return LocalJob(self.steps, noise, secret, row=self._row if self.mixes else None)

    def _row(self, own: np.ndarray) -> np.ndarray:
        """What the message contains before the noise, of this round's weighted sum."""
        past = Past.read(self.participant.raw, RAW + self.query.name)
        mixed, self.past = mixed_row(self.query, past, own)
        return mixed

    def finish(self) -> None:
        """Compute the remaining contributions, since the silo's next state may depend on them."""
        for _ in LocalJob(self.steps).contributions:
            pass

    @property
    def seconds(self) -> float:
        """Running time of local training, with this silo's part of shared batches."""
        return self.watch.seconds.get("local_training", 0.0)

    def _timed(self, steps: Iterator[Step]) -> Computation:
        result = None
        while True:
            with self.watch.phase("local_training"):
                step = advance(steps, result)
            if step is None:
                return
            result = yield step
            if isinstance(step, Work):
                self.watch.add("local_training", step.seconds)

    def noise(self, job: LocalJob, query: Query) -> tuple[np.ndarray, bytes | None]:
        """The noise share, and the seed of its removable noise."""
        if not query.asked.enforced:
            return job.noise if len(job.noise) else np.zeros(query.size), None
        silo = self.participant.silo
        removable = query.removable
        rng = silo.streams.secret(query.stream("noise"), query.round, silo.name)
        if removable is None:
            share = query.mechanism.noise_share(
                query.size,
                query.n_summed,
                rng,
                sensitivity=query.sensitivity,
                encoding=query.encoding,
            )
            return share, None
        from fedpriv.mechanisms.removable_noise import SECRET_BYTES

        secret = silo.streams.secret(query.stream("removable noise"), query.round, silo.name).bytes(
            SECRET_BYTES
        )
        return removable.share(rng, secret), secret
