"""Noise calibration for all releases of a run that depend on one record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from fedpriv.certificates.request import ObservedRelease, Release
from fedpriv.certificates.sampling import Sampling
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import composed_noise

if TYPE_CHECKING:
    from dp_accounting import DpEvent


ReleaseCounts = Counter[Release]
"""The releases that a record of one scope is in, and how often each occurs."""


def count_releases(
    views: Iterable[ObservedRelease], release: Callable[[ObservedRelease], Release]
) -> Iterable[ReleaseCounts]:
    """The releases of each scope.

    views: what one observer sees of one target in all rounds.
    release: the release of a view.
    """
    found: dict[str, ReleaseCounts] = {}
    for view in views:
        found.setdefault(view.scope, ReleaseCounts())[release(view)] += 1
    return found.values()


def certified_noise(
    releases: Iterable[ReleaseCounts],
    shares: Mapping[str, float],
    mechanisms: Mapping[str, Mechanism],
    *,
    sampling: Sampling,
    adjacency: str,
    epsilon: float,
    delta: float,
) -> dict[str, float]:
    """Noise multipliers, by the names of queries, for which the composition of each scope's
    releases is (epsilon, delta)-DP.

    releases: releases of each scope (`count_releases`).
    shares: part of the budget, in zCDP, for each query name. Names without a release leave their
        part to the others.
    mechanisms: mechanism of each query name.
    sampling: how a release samples its records.
    adjacency: how neighbouring data sets differ.
    """
    distinct = frozenset(frozenset(counts.items()) for counts in releases)
    used = {release.name for counts in distinct for release, _ in counts}
    whole = sum(shares[name] for name in used)
    ratio = dict.fromkeys(mechanisms, 1.0)
    for name in used:
        costs = (
            sum(k * r.moved**2 / r.hidden for r, k in counts if r.name == name)
            for counts in distinct
        )
        ratio[name] = math.sqrt(max(costs) * whole / shares[name])
    # At these ratios, the composition of all releases separates neighbours by one standard
    # deviation.
    noisy = tuple(
        (name, mechanism.with_noise(ratio[name])) for name, mechanism in mechanisms.items()
    )
    factor = _factor(distinct, noisy, sampling, adjacency, epsilon, delta)
    return {name: one * factor for name, one in ratio.items()}


@lru_cache(maxsize=64)
def _factor(
    distinct: frozenset[frozenset[tuple[Release, int]]],
    noisy: tuple[tuple[str, Mechanism], ...],
    sampling: Sampling,
    adjacency: str,
    epsilon: float,
    delta: float,
) -> float:
    """The common factor of all noise multipliers. Cached, because every plan of a run asks for it
    and sampled batches take seconds."""

    def runs(factor: float) -> list[list[tuple[DpEvent, int]]]:
        now = {
            name: mechanism.with_noise(mechanism.noise_multiplier * factor)
            for name, mechanism in noisy
        }
        return [
            [
                (release.event(now[release.name], sampling), count)
                for release, count in sorted(releases, key=repr)
            ]
            for releases in distinct
        ]

    return composed_noise(runs, adjacency, epsilon, delta)
