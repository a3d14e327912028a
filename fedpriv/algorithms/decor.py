"""DECOR: silos with models of their own average with their neighbours, under noise that two
neighbours share and that cancels in the mean.

Allouah, Koloskova, El Firdoussi, Jaggi, Guerraoui: The privacy power of correlated noise in
decentralized learning, ICML 2024 (arXiv 2405.01031), Algorithm 1. Symbols: x_i -> row i of the slot
"models", W -> `mixing`, eta -> global_lr, C -> clip, b -> batch_size, sigma_cdp -> noise_multiplier
* clip / batch_size, sigma_cor -> correlated * sigma_cdp, q -> colluders.

Silo i sends m_i, the mean of its batch's clipped gradients at its own model, plus its own noise,
plus v_ij for each neighbour j, with v_ji = -v_ij. Then x_i = sum over j of W_ij (x_j - eta m_j), as
if each silo sent its x_j - eta m_j, which the paper prints. The released model is the mean of all.

Here a message has a place for each silo, with zeros in all but the sender's. So any sum delivers
all messages, and who holds the state computes every silo's average. Nobody is taken to see less. A
run counts the bytes of these messages, not of messages between neighbours.

Privacy: as in `fedpriv.algorithms.gradient_method`, with the noise of
`fedpriv.certificates.pair_noise` (the paper's SecLDP). The released model has no better bound than
the messages: gradients after the first round are taken at models that single messages decide. Pairs
draw from the run's seed. No aggregation here agrees on secret seeds for it, so noise of the
operating system is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.algorithms.prox_sgd import MinibatchSgd
from fedpriv.certificates.pair_noise import PairNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.parties.party import silo_name
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.topology.graphs import Graph, mixing, ring
from fedpriv.training.contributions import Contributions

MODELS = "models"
MOST_WORK = 1e10
"""Most coalitions, times the cube of the number of silos."""


@dataclass(frozen=True)
class Decor(MinibatchSgd):
    """Decentralised SGD with noise that two neighbours share.

    global_lr: eta.
    chords: probability that two silos that are no neighbours on the ring are neighbours too, by a
        public coin; 1: all.
    correlated: deviation of a pair's noise over that of a silo's own (their geometric mean where
        batches differ); 0: own noise alone.
    colluders: silos that combine what they know, as observer "silo".
    """

    chords: float
    correlated: float
    colluders: int
    prox: str = field(default="none", init=False)
    prox_size: float = field(default=1.0, init=False)
    prox_group: int = field(default=1, init=False)

    label = "DECOR"
    claims = None
    shuffles = False  # shuffled contributions have no neighbours

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, least, most in (("chords", 0, 1), ("correlated", 0, 100), ("colluders", 1, 100)):
            value = getattr(self, key)
            require(least <= value <= most, f"algo.{key}", value, f"from {least} to {most}")

    # -- before the first round --------------------------------------------------------------------

    def check(self, plan: Plan) -> None:
        super().check(plan)
        require(not plan.streams.system, "randomness", "system", "seed, for the noise of pairs")
        whole = plan.mechanism.encoding(2, 1.0) is not None
        allowed = "gaussian: no proof here is of integer noise that two silos share"
        require(not whole, "mechanism", "discrete_gaussian", allowed)
        require(plan.sums, "algo", "decor", "another: the total of this aggregation is no sum")
        silos = plan.federation.n_silos
        work = math.comb(silos, min(self.colluders, silos)) * float(silos) ** 3
        allowed = f"fewer: every choice among {silos} silos is tried"
        require(work <= MOST_WORK, "algo.colluders", self.colluders, allowed)

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        least = min((self.size(name, n) for n in federation.silo_records), default=1)
        pairs = (federation.n_silos - 1) * self.correlated * mechanism.noise_bound(1, 1 / least)
        return super().message_bound(name, mechanism, n_summed, federation) + pairs

    def graph(self, plan: Plan) -> Graph:
        """The neighbours. Depends on no data."""
        return ring(plan.federation.n_silos, self.chords, plan.streams.seed)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        models = np.tile(params, (plan.federation.n_silos, 1))
        return super().init(params, plan).with_params(params, **{MODELS: models})

    # -- a round -----------------------------------------------------------------------------------

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        noise = PairNoise(graph=self.graph(plan), ratio=self.correlated, colluders=self.colluders)
        size = plan.federation.n_silos * plan.federation.n_parameters
        return tuple(
            replace(request, noise=noise, size=size) for request in super().requests(round, plan)
        )

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {MODELS: state.slots[MODELS]}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        own = replace(query, size=silo.plan.federation.n_parameters)
        job = super().local_update(silo, own, {"params": down[MODELS][silo.index]})
        before = silo.index * own.size
        place = before, query.size - before - own.size

        def placed(block: Contributions) -> Contributions:
            import torch

            return replace(block, vectors=torch.nn.functional.pad(block.vectors, place))

        noise = np.pad(job.noise + self.pair_noise(silo, own), place)
        return replace(job.map(placed), noise=noise)

    def pair_noise(self, silo: Silo, query: Query) -> np.ndarray:
        """The noise (size,) that a silo shares with its neighbours. The silo with the smaller
        number adds what both draw, the other subtracts it."""
        total = np.zeros(query.size)
        records = silo.plan.federation.silo_records
        for other in np.flatnonzero(self.graph(silo.plan)[silo.index]):
            first, second = sorted((silo.index, int(other)))
            pair = f"{silo_name(first)} {silo_name(second)}"
            rng = silo.streams.secret(query.stream("pair noise"), query.round, pair)
            sizes = self.size(query.name, records[first]) * self.size(query.name, records[second])
            sensitivity = self.correlated / math.sqrt(sizes)
            noise = query.mechanism.noise_share(
                query.size, 1, rng, sensitivity=sensitivity, encoding=query.encoding
            )
            total += noise if silo.index == first else -noise
        return total

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        models = state.slots[MODELS]
        messages = total.vector.reshape(models.shape)
        mixed = mixing(self.graph(plan)) @ (models - self.global_lr * messages)
        seen = query.round
        mean = messages.mean(axis=0)  # averages with neighbours do not move it
        return self.stepped(state, mean, round=seen, seen=seen, plan=plan, **{MODELS: mixed})
