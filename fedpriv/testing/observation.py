"""The observations of each observer in real rounds.

The releases are those of `PreparedRun.exchange`: real parties, messages, bounds, noise shares and
sums. Data and model are loaded once. Every trial has its own parties, keys, set-up and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from fedpriv.aggregation.base import Respond
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Records
from fedpriv.data.silo import split_by_silo
from fedpriv.engines.base import Network
from fedpriv.engines.inprocess import InProcess, InProcessSession
from fedpriv.errors import AggregationAbortedError
from fedpriv.mechanisms.base import Mechanism
from fedpriv.parties.party import Party
from fedpriv.parties.traffic import Letter
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Observer, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State
from fedpriv.runtime import prepare, silo_states
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.experiments import with_mechanisms
from fedpriv.training.contributions import Contributions
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams, SystemGenerator

Observations = dict[str, np.ndarray]
"""By observer: its vectors (k, size) of one query; one for each silo if it receives messages."""

PlanChange = Callable[[Plan], Plan]


def without_plan_noise(change: PlanChange) -> PlanChange:
    """`change`, followed by the removal of all noise."""
    return lambda plan: with_mechanisms(change(plan), lambda _, mechanism: _noiseless(mechanism))


def without_noise(query: Query) -> Query:
    """The query without noise, with the same sample of users."""
    return replace(query, mechanism=_noiseless(query.mechanism))


def _noiseless(mechanism: Mechanism) -> Mechanism:
    return mechanism.with_noise(0.0) if mechanism.noise_multiplier else mechanism


class ProtocolTap:
    """Records what only a silo knows, its noise share and its message, whenever its protocol is
    asked a query.

    asked: the protocol's answer to a query.
    weights: (n_units,) weights of its units.
    """

    def __init__(self, asked: Any, weights: np.ndarray) -> None:
        self.asked = asked
        self.weights = weights
        self.noise = self.message = np.zeros(0)
        self.secret: bytes | None = None

    def query(self, query: Query, respond: Respond) -> Party:
        def recorded(broadcast: Any) -> LocalJob:
            job = respond(broadcast)
            job.draw()
            self.noise = job.noise
            self.message = job.noise.copy() if len(job.noise) else np.zeros(query.size)
            self.secret = job.secret
            told = job.map(self._added)
            return told if job.row is None else replace(told, row=partial(self._mixed, job.row))

        return (yield from self.asked(query, recorded))

    def _added(self, block: Contributions) -> Contributions:
        vectors = block.vectors.double().cpu().numpy()
        self.message += self.weights[block.units] @ vectors
        return block

    def _mixed(self, row: Callable[[np.ndarray], np.ndarray], own: np.ndarray) -> np.ndarray:
        """The row, which the message contains in place of the silo's own sum."""
        mixed = row(own)
        self.message = self.noise + mixed
        return mixed

    def known(self, query: Query, silos: int) -> np.ndarray:
        """What the silo can subtract from a sum over `silos` silos.

        Noise inside local training cannot be separated from the message, so the silo subtracts
        its whole message.
        """
        removable = query.removable
        if removable is not None and self.secret is not None:
            kept = removable.kept(silos)
            links = [removable.chain(self.secret)[kept]]
            return np.asarray(self.noise - removable.surplus(links, kept))
        return self.noise if query.asked.enforced else self.message


class _RecordingNetwork(Network):
    """A network that records the last message by receiver and sender.

    last: (receiver, sender) -> content.
    """

    faithful = True  # it only looks

    def __init__(self, last: dict[tuple[str, str], Any]) -> None:
        self.last = last

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.last |= {
            (letter.receiver, letter.sender): letter.message.content for letter in letters
        }
        return letters


@dataclass(frozen=True)
class TrialStreams(Streams):
    """Streams of one trial: observers know all of them but the secret ones.

    trial: seed of the secret streams, unless they come from the operating system.
    """

    trial: int = 0

    @property
    def _hidden(self) -> Streams:
        return Streams(self.trial, self.system)

    def unit_bases(self, purpose: str, round: int, parties: Sequence[str]) -> np.ndarray:
        return Streams(self.seed).unit_bases(purpose, round, parties)

    def unit_coins(
        self, purpose: str, round: int, party: str, units: np.ndarray
    ) -> Callable[[int], np.ndarray]:
        return self._hidden.unit_coins(purpose, round, party, units)

    def secret(
        self, purpose: str, round: int, party: str = ""
    ) -> np.random.Generator | SystemGenerator:
        return self._hidden.secret(purpose, round, party)


@dataclass
class ObservedRun(AbstractContextManager[Any]):
    """A run whose messages and noise shares are recorded, restarted for every trial.

    experiment: the experiment; it runs in this process.
    change: change of the run's plan.
    colluders: names of the silos that share what they know.
    taps: recorders of the silos' protocols, by silo.
    last_messages: last message by (receiver, sender).
    """

    experiment: Experiment
    change: PlanChange
    colluders: tuple[str, ...]
    taps: dict[str, ProtocolTap] = field(default_factory=dict)
    last_messages: dict[tuple[str, str], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        here = replace(self.experiment, engine=InProcess())
        self.prepared = prepare(here, revise=self.change)
        assert isinstance(self.prepared.session, InProcessSession)
        self.session = self.prepared.session
        self.session.network = lambda: _RecordingNetwork(self.last_messages)
        self.state = self.prepared.state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.session.close()

    def restart(self, trial: int, data: tuple[Records, Allocation] | None = None) -> State:
        """Start a fresh run, and return the state before its first round.

        trial: seed of its secret streams.
        data: its records and their allocation; None: those that it has.
        """
        plan = self.prepared.plan
        streams = TrialStreams(plan.streams.seed, plan.streams.system, trial)
        settings = replace(self.prepared.settings, plan=replace(plan, streams=streams))
        self.prepared.settings = settings
        silo_data = [] if data is None else split_by_silo(*data, "cpu")
        records = dict(zip(self.prepared.silos, silo_data))
        for name, known in self.session.specs.items():
            spec: Any = replace(known, settings=settings)  # type: ignore[type-var]
            self.session.specs[name] = (
                replace(spec, data=records[name]) if name in records else spec
            )
        return self.resume(self.state.arrays())

    def resume(self, checkpoint: Mapping[str, np.ndarray]) -> State:
        """Create every party anew from the checkpoint, as after a crash, and repeat the set-up."""
        self.prepared.standing.silo_states = memories = silo_states(checkpoint)
        self.session.reopen({name: memories.get(name, {}) for name in self.session.specs})
        self.prepared.set_up(0, [])
        participants: Any = self.session.participants
        for name, weights in zip(self.prepared.silos, self._weights()):
            protocol = participants[name].protocol
            self.taps[name] = ProtocolTap(protocol.query, weights)
            protocol.query = self.taps[name].query
        return State.from_arrays(checkpoint)

    def _weights(self) -> np.ndarray:
        """Weights of each silo's units, (n_silos, n_units); 1 if they depend on counts, which the
        audit does not need."""
        algo = self.prepared.algo
        federation = self.prepared.plan.federation
        table = np.zeros((federation.n_silos, algo.contributors.number(federation)), dtype=np.int64)
        weighting = algo.contributors.weighting
        return np.ones(table.shape) if weighting.needs_counts else weighting.weights(table)

    def exchange(self, query: Query, state: State) -> tuple[Total, Observations]:
        """Run one query; its sum, and the observations of each observer."""
        self.last_messages.clear()
        self.prepared.rehearse(query)
        total, _ = self.prepared.exchange(query, state, watch=Stopwatch(), lines=[])
        if query.asked.stateful:
            self.prepared.standing.silo_states |= self.session.checkpoints(self.prepared.silos)
        observers = self.prepared.plan.threat_model.observers
        return total, {
            observer.name: self._observation(observer, query, total) for observer in observers
        }

    def _observation(self, observer: Observer, query: Query, total: Total) -> np.ndarray:
        if not observer.sees_messages:
            known = [
                self.taps[name].known(query, len(total.silos)) if name in total.silos else 0.0
                for name in (self.colluders if observer.own_shares else ())
            ]
            rest = total.vector.copy()
            for share in known:
                rest -= share
            return rest[None]
        if observer.name not in self.prepared.aggregation.helpers:
            # Peers find out each other's vectors.
            return np.stack([self.taps[name].message for name in total.silos])
        clear = query.encoding.clear if query.encoding else np.asarray
        return np.stack([clear(self.last_messages[observer.name, name]) for name in total.silos])


@dataclass(frozen=True)
class Difference:
    """What the observers of one query see beyond a run without canaries and noise.

    query: the query.
    silos: names of the silos in its sum.
    vectors: by observer, (k, size).
    state: after the query.
    """

    query: Query
    silos: tuple[str, ...]
    vectors: Observations
    state: State

    def ratios(
        self, x: np.ndarray, users: np.ndarray, sampling: tuple[float, float] | None
    ) -> np.ndarray:
        """Log-likelihood ratios, or multiples of them, from projections x (k,) on canaries.

        users: (k,) the canaries' users.
        sampling: rate and noise multiplier if the observer does not see the sample. One canary's
            projections then have means 0 and 1.
        """
        if sampling is not None:
            rate, noise = sampling
            present = np.log(rate) + (x - 0.5) / noise**2
            return np.asarray(np.logaddexp(np.log1p(-rate), present))
        return x if self.query.sampled is None else np.where(self.query.sampled[users], x, 0.0)


def observed_round(
    run: ObservedRun,
    quiet: ObservedRun | Mapping[tuple[int, int], Observations],
    number: int,
    state: State,
) -> Iterator[Difference]:
    """Run a round; the differences of its queries that have a sum, one after the other.

    quiet: a run without canaries and noise, or its observations by the queries' serial numbers.
    """
    for query in run.prepared.queries(number):
        try:
            total, seen = run.exchange(query, state)
            expected = (
                quiet.exchange(without_noise(query), state)[1]
                if isinstance(quiet, ObservedRun)
                else quiet[query.serial]
            )
        except AggregationAbortedError:
            continue
        vectors = {name: seen[name] - expected[name] for name in seen}
        state = run.prepared.algo.next_state(state, query, total, run.prepared.plan)
        yield Difference(query, total.silos, vectors, state)
