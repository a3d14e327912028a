"""A silo as a participant: it trains what it is asked to, bounds and noises it, and takes part in
the sum.

Bounding and noising are done here, where contributions are consumed, and not by the algorithm: a
contribution reaches the aggregation only within the mechanism's bound, and with the noise share
that the query declares.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import Aggregation, Respond
from fedpriv.algorithms.base import Algorithm, LocalUpdate
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.party import Mail, Memory, Party, PartySpec, WorkingParticipant
from fedpriv.parties.post import Expected, Post, Serial, claims
from fedpriv.rounds.contributors import Silos
from fedpriv.rounds.local_job import Silo
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import (
    SUMMED,
    Broadcast,
    Contributions,
    PendingState,
    Query,
    SetUp,
    SiloReport,
    SiloState,
    Total,
    Update,
)
from fedpriv.rounds.state import State
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.training.description import Execution
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.work import DeferredWork, Work

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task


@dataclass(frozen=True)
class SiloSpec(PartySpec):
    """One silo with its own records.

    device, execution: where and how it trains;
    silos: the names of all of them;
    teller: the helper that says who is in a sum, if there is one.
    """

    index: int
    data: SiloData
    model: nn.Module
    task: Task
    algo: Algorithm
    aggregation: Aggregation
    plan: Plan
    device: str
    silos: tuple[str, ...]
    teller: tuple[str, ...]
    execution: Execution = Execution()

    def open(self, memory: Memory) -> SiloParticipant:
        return SiloParticipant(self, memory)


class SiloParticipant(WorkingParticipant):
    """A silo where it lives. Its task is a query or the set-up."""

    def __init__(self, spec: SiloSpec, memory: Memory) -> None:
        data = spec.data.to(spec.device)
        model = spec.model.to(spec.device)
        self.silo = Silo(spec.index, data, model, spec.task, spec.plan, dict(memory))
        self.algo = spec.algo
        self.execution = spec.execution
        self.protocol = spec.aggregation.silo(
            self.silo.name, spec.silos, spec.algo.contributors.weighting
        )
        self.teller = spec.teller
        self.silos = spec.silos
        self.state: State | None = None  # held by a helper
        self.before: tuple[Serial, SiloState] | None = None
        self.watch = Stopwatch()

    def checkpoint(self) -> dict[str, np.ndarray]:
        return dict(self.silo.state)

    def take_part(self, task: Query | SetUp) -> Party:
        return self.working(self._set_up(task) if isinstance(task, SetUp) else self._query(task))

    def _set_up(self, task: SetUp) -> Party:
        self.state = None if task.state is None else State.from_arrays(task.state)
        self._go_back(task)
        # Here, where the silo's turn has come: those of all silos at once are a table of silos
        # times units.
        counts = self.algo.contributors.counts(
            self.silo.index, self.silo.data, self.silo.plan.federation
        )
        return (yield from self.protocol.setup(task, counts))

    def _go_back(self, task: SetUp) -> None:
        """Forget what it remembers of a query without a sum: it may have been told of one that
        nobody else has."""
        if self.before is not None and self.before[0] == task.aborted:
            self.silo = replace(self.silo, state=self.before[1])
        self.before = None

    def _query(self, query: Query) -> Party:
        self.watch = Stopwatch()
        work = _Work(self, query)
        post = query.post(self.silo.name, self.protocol.signer)
        told = _SumMembership(post, Expected(SUMMED, query.summed_schema(self.silos), self.teller))
        total = yield from told.overhearing(
            self.protocol.query(query, self._responding(work, query))
        )
        if work.pending is not None:
            work.finish()
            summed = query.covered(total).silos if total is not None else (yield from told.summed())
            state = self.algo.silo_state(self.silo, work.pending, self.silo.name in summed)
            self.before = query.serial, self.silo.state
            self.silo = replace(self.silo, state=state)
        return SiloReport(total, work.stats, work.seconds, self._updated(query, total))

    def _responding(self, work: _Work, query: Query) -> Respond:
        """What answers a broadcast; a silo that holds the state makes the broadcast itself."""
        if self.state is None:
            return work.respond
        own = Broadcast(self.algo.broadcast(self.state, query), query.sampled)
        return lambda _: work.respond(own)

    def _updated(self, query: Query, total: Total | None) -> bytes | None:
        """The digest of the state that this silo holds, after the query's global update."""
        if self.state is None:
            return None
        if total is not None:
            self.state = self.algo.global_update(self.state, query, total, self.silo.plan)
        return self.state.digest()


class _Work:
    """What one silo computes for one query."""

    def __init__(self, participant: SiloParticipant, query: Query) -> None:
        self.participant = participant
        self.query = query
        self.stats = ContributionStats()
        self.pending: PendingState | None = None
        self.blocks: Iterator[Contributions] = iter(())
        self.ahead: DeferredWork[Any] | None = None

    def respond(self, broadcast: Broadcast) -> Update:
        """The update to what was sent down; its blocks are computed when they are asked for."""
        participant = self.participant
        query = self.query
        if broadcast.sampled is not query.sampled:
            query = replace(query, sampled=broadcast.sampled)
        local = participant.algo.local_update(participant.silo, query, broadcast.vectors)
        if query.enforced:
            _require_separate(local, participant.algo)
        self.pending = local.pending
        if not query.enforced:
            self.stats = local.stats
        self.ahead = ahead(local, participant.silo, query, participant.execution)
        raw = contributions(local, participant.silo, self.ahead)
        self.blocks = participant.watch.timed("local_training", bounded(raw, query, self.stats))
        return Update(self.blocks, *self._noise(local, query), self.ahead)

    def finish(self) -> None:
        """Compute whatever no message needed, for the sake of what the silo remembers."""
        for _ in self.blocks:
            pass

    @property
    def seconds(self) -> float:
        """Of local training, this silo's part where it was done together with others'."""
        together = 0.0 if self.ahead is None else self.ahead.seconds
        return self.participant.watch.seconds.get("local_training", 0.0) + together

    def _noise(self, local: LocalUpdate, query: Query) -> tuple[np.ndarray, bytes | None]:
        """The noise share, and what its removable parts hang on."""
        if not query.enforced:
            return np.zeros(query.size) if local.noise is None else local.noise, None
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


def _require_separate(local: LocalUpdate, algo: Algorithm) -> None:
    """Raise ValueError for training on all of a silo's records where users or records are
    bounded: a silo's update moves by twice the bound without one of them."""
    pooled = local.training is not None and local.training.pooled
    if pooled and not isinstance(algo.contributors, Silos):
        raise ValueError(
            f"{type(algo).__name__} trains on a silo's records together, and declares "
            f"{type(algo.contributors).__name__}: declare Silos"
        )


def ahead(
    local: LocalUpdate, silo: Silo, query: Query, execution: Execution = Execution()
) -> DeferredWork[Any] | None:
    """The work that a local update's contributions come from: the training that it describes, or
    work of its own."""
    if local.training is None:
        return local.ahead
    from fedpriv.training.users import silo_training

    work = partial(
        silo_training,
        local.training,
        model=silo.model,
        data=silo.data,
        task=silo.task,
        streams=silo.streams,
        round=query.round,
        party=silo.name,
        prefix=query.name if query.place else "",
        execution=execution,
    )
    return DeferredWork(work)


def contributions(
    local: LocalUpdate, silo: Silo, training: DeferredWork[Any] | None
) -> Iterator[Contributions]:
    """The raw contributions of a local update, those it computes itself or those of the training it
    describes."""
    if local.blocks is not None:
        yield from local.blocks
    if local.training is None:
        return
    assert training is not None
    units = np.array([silo.index]) if local.training.pooled else silo.data.users
    for block in [training.result()] if training.given else training.taken().blocks():  # type: ignore[attr-defined]
        yield Contributions(units[block.positions], local.vectors(block))


def bounded(
    blocks: Iterator[Contributions], query: Query, stats: ContributionStats
) -> Iterator[Contributions]:
    """The contributions within the mechanism's bound, in float64; as they are where the query does
    not enforce it. Users outside of the query's sample are left out.

    A unit whose contribution holds NaN or infinity contributes nothing, so that it cannot destroy
    the sum; `stats.nonfinite` records it. Dropping it depends on this unit alone, so the
    sensitivity is unchanged. Raises ValueError for a unit that comes twice: it would move the sum
    by twice the bound.
    """
    known: set[int] = set()
    for block in blocks:
        if not query.enforced:
            yield block
            continue
        before = len(known)
        known.update(block.units.tolist())
        if len(known) < before + len(block.vectors):
            raise ValueError(f"query {query.name}: a unit contributes twice at one silo")
        if query.sampled is not None:
            block = _sampled(block, query.sampled)
            if not len(block.units):
                continue
        vectors, norms = query.mechanism.bound(block.vectors)
        lengths = (
            norms.cpu().numpy()
        )  # all that is asked of a device: it need not wait for each question
        finite = np.isfinite(lengths)
        units = block.units[finite]
        if not finite.all():
            vectors = vectors[finite]
        stats.units += len(lengths)
        stats.nonfinite += len(lengths) - len(units)
        stats.norm_sum += float(lengths[finite].sum())
        stats.clipped += int((lengths[finite] > query.mechanism.clip).sum())
        yield Contributions(units, vectors)


def _sampled(block: Contributions, sampled: np.ndarray) -> Contributions:
    """The contributions of sampled users."""
    here = sampled[block.units]
    return block if here.all() else Contributions(block.units[here], block.vectors[here])


@dataclass
class _SumMembership:
    """What tells a silo who is in the sum, which may come before its protocol has ended."""

    post: Post
    expected: Expected
    silos: tuple[str, ...] | None = None

    def overhearing(self, party: Party) -> Party:
        """The same party, which never sees it."""
        given: Any = None
        while True:
            try:
                said = party.send(given)
            except StopIteration as end:
                return end.value
            given = yield said
            if not isinstance(said, Work):
                given = self._without(given)

    def summed(self) -> Generator[Mail, Mail, tuple[str, ...]]:
        """The silos of the sum. Raises AggregationAbortedError when nobody says: what it remembers
        would no longer fit the others'."""
        if self.silos is None:
            self._learn((yield from self.post.receive(self.expected)))
        if self.silos is None:
            raise AggregationAbortedError(f"{self.post.name} has not been told who is in the sum")
        return self.silos

    def _without(self, mail: Mail) -> Mail:
        """What the party is to see; a letter of this phase from another round it leaves aside
        itself."""
        ours = {name: said for name, said in mail.items() if claims(said, SUMMED)}
        heard = self.post.accept(ours, self.expected)
        self._learn(heard)
        return {name: said for name, said in mail.items() if name not in heard}

    def _learn(self, heard: Mail) -> None:
        for summed in heard.values():
            self.silos = summed.silos
