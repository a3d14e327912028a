"""Methods and an aggregation that use what the seams allow and no shipped component needs yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, SILO
from fedpriv.aggregation.base import (
    MESSAGE,
    Aggregation,
    HelperProtocol,
    SiloProtocol,
    invited_silos,
)
from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request, Target
from fedpriv.mechanisms.base import Mechanism
from fedpriv.parties.post import Expected
from fedpriv.parties.schema import Array
from fedpriv.rounds.contributors import Silos
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation, Observer, Plan, ThreatModel
from fedpriv.rounds.query import Broadcast, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.description import Recipe, Training

ANCHOR, DIFFERENCE = "anchor", "difference"


@dataclass(frozen=True)
class Anchored(Algorithm):
    """Two queries a round with mechanisms of their own: a step from the parameters, then one from
    where it leads.

    The first is a slot of the state and is sent down for the second.
    """

    clip: float = 0.5
    noise_multiplier: float = 3.0
    smaller: float = 0.1

    @property
    def label(self) -> str:
        return "ANCHORED"

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        return {ANCHOR: mechanism, DIFFERENCE: replace(mechanism, clip=self.smaller)}

    def message_bound(self, name, mechanism, n_summed, federation):
        return mechanism.clip + mechanism.noise_bound(n_summed, 2.0 * n_summed)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(params, {ANCHOR: np.zeros_like(params)})

    @property
    def contributors(self) -> Silos:
        return Silos(pooled=True)

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        return (Target("silo", ADD_REMOVE),)

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        noise = SumNoise(lambda n_summed: 2.0 * n_summed)
        return Request(noise, name=ANCHOR), Request(noise, name=DIFFERENCE)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        down = {"params": state.params}
        return down | ({ANCHOR: state.slots[ANCHOR]} if query.name == DIFFERENCE else {})

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        start = down["params"] + down.get(ANCHOR, 0.0)
        return silo.train(query, Training(Recipe(1, 64, 0.2), start, pooled=True))

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        step = total.vector / len(total.silos)
        if query.name == ANCHOR:
            return state.with_params(state.params, anchor=step)
        return state.with_params(state.params + state.slots[ANCHOR] + step)


@dataclass(frozen=True)
class Personal(FedAvg):
    """Every silo is judged by a model of its own: the average, moved a little by the silo's
    number.
    """

    def evaluated(self, state: State, silo_states: Mapping[str, SiloState]) -> np.ndarray:
        return np.stack([state.params * factor for factor in (1.0, 0.5, 0.0)])


@dataclass(frozen=True)
class Everyone(Aggregation):
    """No server: every silo sends its message to every other, and all of them learn the sum.

    wrong: the silo whose sum comes out different from the others'.
    """

    wrong: str | None = None

    @property
    def helpers(self) -> tuple[str, ...]:
        return ()

    def threat_model(self) -> ThreatModel:
        observers = (
            Observer(RELEASED_MODEL, sees_sample=False),
            Observer(SILO, sees_messages=True, own_shares=1),
        )
        return ThreatModel(observers, learners=(), assumptions=("peers follow the protocol",))

    def silo(self, name, silos, weighting):
        return Peer(name, silos, self.wrong == name)

    def helper(self, name, silos, weighting) -> HelperProtocol:
        raise AssertionError("there is none")


@dataclass
class Peer(SiloProtocol):
    name: str
    silos: tuple[str, ...]
    wrong: bool

    def setup(self, task, counts):
        self.index = int(np.flatnonzero(counts)[0])
        yield {}

    def query(self, query, respond):
        update = respond(Broadcast({"params": self.params} if hasattr(self, "params") else {}))
        vector = sum(
            (block.vectors.sum(0).cpu().numpy() for block in update.contributions), update.noise
        )
        others = [silo for silo in invited_silos(query) if silo != self.name]
        kind = Array(np.float64, vector.shape, finite=True)
        post = query.post(self.name, self.signer)
        mail = yield from post.exchange(
            MESSAGE, dict.fromkeys(others, vector), Expected(MESSAGE, kind, others)
        )
        post.require_all(others, mail)
        total = np.zeros_like(vector)
        for name in invited_silos(query):
            total += vector if name == self.name else mail[name]
        return Total(total + (1e-9 if self.wrong else 0), invited_silos(query))


@dataclass(frozen=True)
class FromNowhere(FedAvg):
    """Needs nothing to be sent down: trains from zero, so that no server is missed."""

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return super().local_update(silo, query, {"params": np.zeros(query.size)})
