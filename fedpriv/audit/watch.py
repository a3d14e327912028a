"""What each observer sees of rounds that really run, and a score that tells the canary's two worlds apart.

The releases are those of `Simulation.exchange`: real parties, messages, bounds, noise shares and sums. What an observer
sees less what would be seen without the canary and without noise, projected on the canary's direction, is a Gaussian
whose mean is 0 or the canary's length; that is the likelihood ratio's statistic. Under sub-sampling that the observer
does not see, the ratio is that of the mixture. Scores of several rounds and queries add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER
from fedpriv.audit.canary import Canary
from fedpriv.config import Experiment
from fedpriv.deployment import Deployment, Observer
from fedpriv.engines.base import Network
from fedpriv.errors import AggregationAbortedError
from fedpriv.query import Contributions, Query, SetUp, Total, Update
from fedpriv.simulation import Simulation, prepare
from fedpriv.stopwatch import Stopwatch
from fedpriv.streams import Streams

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Respond
    from fedpriv.parties.party import Party
    from fedpriv.parties.signer import Signer
    from fedpriv.parties.traffic import Letter
    from fedpriv.state import State

Seen = dict[str, np.ndarray]
"""By observer: the vectors (k, size) it has of one query; one a silo where it sees messages."""


class Tap:
    """A silo's protocol, with what only the silo itself knows: its noise share, or its whole message."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.noise = self.own = np.zeros(0)
        self.secret: bytes | None = None

    @property
    def signer(self) -> Signer | None:
        signer: Signer | None = self.protocol.signer
        return signer

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        return (yield from self.protocol.setup(task, counts))

    def query(self, query: Query, respond: Respond) -> Party:
        def heard(broadcast: Any) -> Update:
            update = respond(broadcast)
            self.noise, self.own, self.secret = update.noise, update.noise.copy(), update.secret
            return replace(update, blocks=self._counted(update.blocks))

        return (yield from self.protocol.query(query, heard))

    def _counted(self, blocks: Iterator[Contributions]) -> Iterator[Contributions]:
        for block in blocks:
            self.own += block.vectors.sum(dim=0).double().cpu().numpy()
            yield block

    def known(self, query: Query, silos: int) -> np.ndarray:
        """What the silo can take out of a sum over so many. Noise inside local training is part of its message."""
        removable = query.removable
        if removable is not None and self.secret is not None:
            kept = removable.kept(silos)
            stays: np.ndarray = self.noise - removable.surplus([removable.chain(self.secret)[kept]], kept)
            return stays
        return self.noise if query.enforced else self.own


class _Wire(Network):
    """A network that keeps what silos send."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self.kept = kept

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.kept |= {letter.sender: letter.message.content for letter in letters if letter.receiver == SERVER}
        return letters


@dataclass
class Watched:
    """A prepared run whose messages and noise shares are looked at. colluders: silos that share what they know."""

    simulation: Simulation
    colluders: tuple[str, ...]

    def __post_init__(self) -> None:
        participants = self.simulation.session.participants  # type: ignore[attr-defined]
        self.taps = {name: Tap(participants[name].protocol) for name in self.simulation.silos}
        for name, tap in self.taps.items():
            participants[name].protocol = tap
        self.wire: dict[str, Any] = {}
        self.simulation.session.network = lambda: _Wire(self.wire)

    def exchange(self, query: Query, state: State) -> tuple[Total, Seen]:
        """One query with its sum, and what each observer sees."""
        self.wire.clear()
        total, _ = self.simulation.exchange(query, state, watch=Stopwatch(), lines=[])
        observers = self.simulation.deployment.trust.observers
        return total, {observer.name: self._seen(observer, query, total) for observer in observers}

    def _seen(self, observer: Observer, query: Query, total: Total) -> np.ndarray:
        if observer.sees_messages:
            sent = [self.wire[name] for name in total.silos]
            decode = getattr(query.encoding, "decode", lambda message: message)
            return np.stack([decode(message) for message in sent])
        rest = total.vector.copy()
        if observer.own_shares:
            for name in self.colluders:
                rest -= self.taps[name].known(query, len(total.silos)) if name in total.silos else 0.0
        return rest[None]


Revise = Callable[[Deployment], Deployment]


def silent(revise: Revise) -> Revise:
    """`revise`, and the noise taken away."""

    def revised(deployment: Deployment) -> Deployment:
        whole = revise(deployment)
        channels = {name: replace(c, mechanism=c.mechanism.with_noise(0.0)) for name, c in whole.channels.items()}
        return replace(whole, channels=channels)

    return revised


@contextmanager
def watched(exp: Experiment, revise: Revise, seed: int, colluders: tuple[str, ...]) -> Iterator[Watched]:
    """A fresh run of `exp`, all of whose streams come from `seed`."""

    def reseeded(deployment: Deployment) -> Deployment:
        return replace(revise(deployment), streams=Streams(seed, system=exp.streams.system))

    with prepare(exp, revise=reseeded) as simulation:
        yield Watched(simulation, colluders)


@dataclass(frozen=True)
class Attack:
    """A canary, and what an attacker knows of it beforehand.

    revise: makes the deployment that of the run. direction: by observer, what the canary adds to what it sees without
    noise, (k, size). quiet: what it sees without canary and noise; None where that depends on the state. sampling: by
    observer, (q, s): the canary enters with probability q, unseen, under noise of s times its length.
    """

    canary: Canary
    revise: Revise
    rounds: int
    colluders: tuple[str, ...]
    direction: Seen
    quiet: Seen | None
    sampling: dict[str, tuple[float, float]]

    @property
    def length(self) -> float:
        """The distance of the two worlds for whoever sees most of it."""
        return max(float(np.linalg.norm(vectors)) for vectors in self.direction.values())

    def scores(self, present: bool, seed: int) -> dict[str, float]:
        """By observer, after all rounds of a fresh run."""
        scores = dict.fromkeys(self.direction, 0.0)
        with ExitStack() as stack:
            run = stack.enter_context(watched(self.canary.worlds[present], self.revise, seed, self.colluders))
            twin = None
            if self.quiet is None:
                silence = watched(self.canary.worlds[0], silent(self.revise), seed, self.colluders)
                twin = stack.enter_context(silence)
            state, algo = run.simulation.state, run.simulation.algo
            for number in range(1, self.rounds + 1):
                for query in run.simulation.queries(number):
                    try:
                        total, seen = run.exchange(query, state)
                        quiet = twin.exchange(without_noise(query), state)[1] if twin else self.quiet
                    except AggregationAbortedError:
                        continue
                    assert quiet is not None
                    for name in scores:
                        scores[name] += self._ratio(name, seen[name] - quiet[name], query)
                    state = algo.global_update(state, query, total, run.simulation.deployment)
        return scores

    def _ratio(self, name: str, rest: np.ndarray, query: Query) -> float:
        direction = self.direction[name]
        square = float((direction**2).sum())
        if not square:
            return 0.0
        x = float((rest * direction).sum()) / square
        if name in self.sampling:
            rate, noise = self.sampling[name]
            return float(np.logaddexp(np.log1p(-rate), np.log(rate) + (x - 0.5) / noise**2))
        return x if query.sampled is None or query.sampled[self.canary.user] else 0.0


def without_noise(query: Query) -> Query:
    """The query with its noise taken away, and everybody sampled."""
    return replace(query, mechanism=query.mechanism.with_noise(0.0), sampled=None, user_rate=1.0)


ATTEMPTS = 5
"""Noiseless rounds that look for the canary where a part of the silos or records is drawn."""


def prepared_attack(exp: Experiment, canary: Canary, revise: Revise, colluding: int) -> Attack:
    """Look at both worlds without noise, to learn what the canary changes for whom."""
    names = tuple(f"silo{silo}" for silo in range(exp.allocator.n_silos) if silo != canary.silo)
    colluders = names[len(names) - min(colluding, len(names)) :]
    directions: list[Seen] = []
    for seed in range(ATTEMPTS):
        absent, present = (_first(world, revise, seed, colluders) for world in canary.worlds)
        directions.append({name: present[name] - absent[name] for name in absent})
    direction = max(directions, key=lambda seen: max(float(np.linalg.norm(vectors)) for vectors in seen.values()))
    still, moved = (_first(canary.worlds[0], revise, 0, colluders, shift) for shift in (0.0, 1.0))
    adapts = any(not np.allclose(still[name], moved[name], rtol=1e-6, atol=1e-9) for name in still)
    return Attack(canary, revise, exp.options.rounds, colluders, direction, None if adapts else still, {})


def _first(exp: Experiment, revise: Revise, seed: int, colluders: tuple[str, ...], shift: float = 0.0) -> Seen:
    """What is seen of the first query without noise, from initial parameters that are moved by `shift`."""
    with watched(exp, silent(revise), seed, colluders) as run:
        state = run.simulation.state
        query = run.simulation.queries(1)[0]
        return run.exchange(without_noise(query), state.with_params(state.params + shift))[1]
