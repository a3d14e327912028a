"""Noise that two neighbouring silos share: one adds it to its message, the other subtracts it.

Let silo i's own noise have deviation s_i, and that of neighbours i and j r sqrt(s_i s_j). All
messages of a round, in each coordinate, are the silos' vectors plus Gaussian noise of covariance

    S = diag(s_i^2) + r^2 L,  L the Laplacian of the graph with weights s_i s_j.

Who knows the noise of some silos and their pairs subtracts it, and knows what these silos sent; the
graph of the others is left. A unit of silo i moves message i alone. So its cost is exactly that of
one Gaussian of variance 1 / (S^-1)_ii, the variance of silo i's noise given that of all other
messages: s_i^2 without neighbours, and at most s^2 times the number of silos that a path joins, if
all have s, as if their sum alone were seen.

Batches of other silos do not change that, and a message that never arrives only hides more. It also
holds if messages of a round are asked for one after the other. The next gradients are functions of
messages that were counted before (adaptive composition). A unit with records in several silos moves
several messages. Its cost is at most that of as many records in the silo where they cost most, by
the triangle inequality of the norm of S^-1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from fedpriv.certificates.noise import Seen, SiloNoise
from fedpriv.certificates.request import ObservedRelease
from fedpriv.topology.graphs import Graph


@dataclass(frozen=True)
class PairNoise(SiloNoise):
    """Each silo noises the mean of its batch by itself, and two neighbours share noise that cancels
    in the sum of their messages. Every observer is taken to see all messages.

    graph: the neighbours.
    ratio: r.
    colluders: silos that combine what they know, at least.
    """

    graph: Graph = ()
    ratio: float = 0.0
    colluders: int = 1

    def deviations(self, view: ObservedRelease) -> tuple[float, ...]:
        """Of each silo's own noise, in units of the bound at multiplier 1."""
        return tuple(1 / view.request.batch_size(n) for n in view.plan.federation.silo_records)

    def seen(self, view: ObservedRelease) -> Seen:
        assert view.silo is not None
        release, sampling, _ = super().seen(view)
        known = view.observer.own_shares
        if known:
            known = max(known, self.colluders)
        hidden = hidden_by_pairs(self.graph, self.deviations(view), self.ratio, known)[view.silo]
        why = (
            f"who sees all messages, and knows the noise of {known} silos and their pairs, faces "
            f"{hidden:.4g} times the variance of a silo's own noise"
        )
        return replace(release, hidden=hidden), sampling, (why,)

    def of_sums(self, view: ObservedRelease) -> bool:
        return True  # noise of other silos counts


def covariance(near: np.ndarray, own: np.ndarray, ratio: float) -> np.ndarray:
    """S, (n, n) float64, of silos with deviations `own` (n,).

    near: (n, n), 1 for neighbours, else 0.
    """
    shared = ratio**2 * near * np.outer(own, own)
    return np.asarray(np.diag(own**2 + shared.sum(axis=1)) - shared)


@lru_cache(maxsize=256)
def hidden_by_pairs(
    graph: Graph, own: tuple[float, ...], ratio: float, known: int
) -> tuple[float, ...]:
    """For each silo the variance of the noise that hides its message from the worst `known` other
    silos, over that of its own noise.

    own: deviation of each silo's own noise, in any unit.
    ratio: r.
    """
    near, deviations = np.array(graph), np.array(own)
    least = np.full(len(own), np.inf)
    for left in map(list, combinations(range(len(own)), max(1, len(own) - known))):
        noise = covariance(near[np.ix_(left, left)], deviations[left], ratio)
        precision = np.diag(np.linalg.inv(noise))
        least[left] = np.minimum(least[left], 1 / (precision * deviations[left] ** 2))
    return tuple(least.tolist())
