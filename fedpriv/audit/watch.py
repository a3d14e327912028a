"""What each observer sees of rounds that really run.

The releases are those of `PreparedRun.exchange`: real parties, messages, bounds, noise shares and
sums. Data and model are read once; every trial has parties, keys, a set-up and noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.audit.canary import Canaries
from fedpriv.data.silo import split_by_silo
from fedpriv.engines.base import Network
from fedpriv.engines.inprocess import InProcessSession
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Observer, Plan
from fedpriv.rounds.query import Contributions, Query, SetUp, Total, Update
from fedpriv.rounds.state import State
from fedpriv.runtime import prepare, silo_states
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams, SystemGenerator

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Respond
    from fedpriv.parties.party import Party
    from fedpriv.parties.signer import Signer
    from fedpriv.parties.traffic import Letter

Seen = dict[str, np.ndarray]
"""By observer: the vectors (k, size) it has of one query; one a silo where it sees messages."""


Revise = Callable[[Plan], Plan]


def noised_like(run: Plan) -> Revise:
    """A canary's plan with the run's mechanisms: noise that is calibrated to what is known of the
    model must be the run's, not the canary's."""

    def revised(plan: Plan) -> Plan:
        channels = {
            n: replace(c, mechanism=run.channels[n].mechanism) for n, c in plan.channels.items()
        }
        return replace(plan, channels=channels)

    return revised


def silent(revise: Revise) -> Revise:
    """`revise`, and the noise taken away."""

    def revised(plan: Plan) -> Plan:
        whole = revise(plan)
        channels = {
            name: replace(c, mechanism=_silenced(c.mechanism)) for name, c in whole.channels.items()
        }
        return replace(whole, channels=channels)

    return revised


def without_noise(query: Query) -> Query:
    """The query with its noise taken away, and the same users sampled."""
    return replace(query, mechanism=_silenced(query.mechanism))


def _silenced(mechanism: Mechanism) -> Mechanism:
    return mechanism.with_noise(0.0) if mechanism.noise_multiplier else mechanism


def unsampled(query: Query) -> Query:
    """The query with everybody sampled."""
    return replace(query, sampled=None, user_rate=1.0)


class Tap:
    """A silo's protocol, with what only the silo itself knows: its noise share, or its whole
    message.

    weights: of its units, (n_units,).
    """

    def __init__(self, protocol: Any, weights: np.ndarray) -> None:
        self.protocol = protocol
        self.weights = weights
        self.noise = self.own = np.zeros(0)
        self.secret: bytes | None = None

    @property
    def signer(self) -> Signer:
        signer: Signer = self.protocol.signer
        return signer

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        return (yield from self.protocol.setup(task, counts))

    def query(self, query: Query, respond: Respond) -> Party:
        def heard(broadcast: Any) -> Update:
            update = respond(broadcast)
            self.noise = update.noise
            self.own = update.noise.copy()
            self.secret = update.secret
            return replace(update, blocks=self._counted(update.blocks))

        return (yield from self.protocol.query(query, heard))

    def _counted(self, blocks: Iterator[Contributions]) -> Iterator[Contributions]:
        for block in blocks:
            self.own += self.weights[block.units] @ block.vectors.double().cpu().numpy()
            yield block

    def known(self, query: Query, silos: int) -> np.ndarray:
        """What the silo can take out of a sum over so many. Noise inside local training is part of
        its message."""
        removable = query.removable
        if removable is not None and self.secret is not None:
            kept = removable.kept(silos)
            stays: np.ndarray = self.noise - removable.surplus(
                [removable.chain(self.secret)[kept]], kept
            )
            return stays
        return self.noise if query.enforced else self.own


class _Wire(Network):
    """A network that keeps what each party was last sent, by receiver and sender."""

    def __init__(self, kept: dict[tuple[str, str], Any]) -> None:
        self.kept = kept

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.kept |= {
            (letter.receiver, letter.sender): letter.message.content for letter in letters
        }
        return letters


@dataclass(frozen=True)
class TrialStreams(Streams):
    """Streams of which observers know all but those that privacy rests on: these come from `trial`,
    or from the operating system."""

    trial: int = 0

    @property
    def _hidden(self) -> Streams:
        return Streams(self.trial, self.system)

    def unit_keys(self, purpose: str, round: int, party: str, units: np.ndarray) -> np.ndarray:
        return Streams(self.seed).unit_keys(purpose, round, party, units)

    def unit_coins(
        self, purpose: str, round: int, party: str, units: np.ndarray
    ) -> Callable[[int], np.ndarray]:
        return self._hidden.unit_coins(purpose, round, party, units)

    def secret(
        self, purpose: str, round: int, party: str = ""
    ) -> np.random.Generator | SystemGenerator:
        return self._hidden.secret(purpose, round, party)


@dataclass
class Watched(AbstractContextManager["Watched"]):
    """A run whose messages and noise shares are looked at, started afresh for every trial.

    revise: what is changed in its plan.
    colluders: silos that share what they know.
    """

    canaries: Canaries
    revise: Revise
    colluders: tuple[str, ...]
    taps: dict[str, Tap] = field(default_factory=dict)
    wire: dict[tuple[str, str], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prepared = prepare(self.canaries.experiment, revise=self.revise)
        assert isinstance(self.prepared.session, InProcessSession)  # `Canaries.experiment` says so
        self.session = self.prepared.session
        self.session.network = lambda: _Wire(self.wire)
        self.state = State(np.zeros_like(self.prepared.state.params), self.prepared.state.slots)

    def __exit__(self, *failure: object) -> None:
        self.session.close()

    def restart(self, present: np.ndarray, trial: int) -> State:
        """A fresh run with the canaries of `present` (k,) bool; returns the state before its first
        round, in which all parameters are zero."""
        plan = self.prepared.plan
        known = plan.streams
        streams = TrialStreams(known.seed, known.system, trial)
        self.prepared.plan = plan = replace(plan, streams=streams)
        silo_data = split_by_silo(*self.canaries.world(present), "cpu")
        for name, data in zip(self.prepared.silos, silo_data):
            spec: Any = self.session.specs[name]
            self.session.specs[name] = replace(spec, data=data, plan=plan)
        return self.resume(self.state.arrays())

    def resume(self, checkpoint: Mapping[str, np.ndarray]) -> State:
        """Every party made anew, as after a crash, and the set-up repeated: what goes on is what a
        checkpoint holds."""
        self.prepared.silo_states = memories = silo_states(checkpoint)
        self.session.reopen({name: memories.get(name, {}) for name in self.session.specs})
        self.prepared.set_up(0, [])
        participants: Any = self.session.participants
        silos = self.prepared.silos
        weights = self._weights()
        self.taps = {
            name: Tap(participants[name].protocol, own) for name, own in zip(silos, weights)
        }
        for name, tap in self.taps.items():
            participants[name].protocol = tap
        return State.from_arrays(checkpoint)

    def _weights(self) -> np.ndarray:
        """Each silo's units', (n_silos, n_units); 1 where they depend on counts, of which the audit
        need not know."""
        algo = self.prepared.algo
        federation = self.prepared.plan.federation
        table = np.zeros((federation.n_silos, algo.contributors.number(federation)), dtype=np.int64)
        weighting = algo.contributors.weighting
        return np.ones(table.shape) if weighting.needs_counts else weighting.weights(table)

    def exchange(self, query: Query, state: State) -> tuple[Total, Seen]:
        """One query with its sum, and what each observer sees."""
        self.wire.clear()
        total, _ = self.prepared.exchange(query, state, watch=Stopwatch(), lines=[])
        if query.stateful:
            self.prepared.silo_states |= self.session.checkpoints(self.prepared.silos)
        observers = self.prepared.plan.threat_model.observers
        return total, {observer.name: self._seen(observer, query, total) for observer in observers}

    def _seen(self, observer: Observer, query: Query, total: Total) -> np.ndarray:
        if observer.sees_messages:
            if (
                observer.name not in self.prepared.aggregation.helpers
            ):  # peers find out what each other's vectors are
                return np.stack([self.taps[name].own for name in total.silos])
            sent = [self.wire[observer.name, name] for name in total.silos]
            return np.stack(
                [
                    message if query.encoding is None else query.encoding.clear(message)
                    for message in sent
                ]
            )
        rest = total.vector.copy()
        if observer.own_shares:
            for name in self.colluders:
                rest -= (
                    self.taps[name].known(query, len(total.silos)) if name in total.silos else 0.0
                )
        return rest[None]
