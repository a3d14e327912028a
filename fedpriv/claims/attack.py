"""Attack a described release on made-up data: draw what the observer sees, and guess.

Other contributions are zero and the unit's lies on the bound in one direction, so that one number
of each message matters: its part in that direction. Every release is drawn as it is described, with
its samples and its noise. The score is the log likelihood ratio of what was seen, or the difference
of two messages where that has no noise. `fedpriv.audit.bounds` turns scores into a lower bound with
a confidence; it uses nothing of how the certificate was derived.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.claims import schema as s
from fedpriv.claims.certificates import hidden_deviation
from fedpriv.claims.refutations import attackable, takes_part

if TYPE_CHECKING:
    from fedpriv.audit.bounds import Bound

CONFIDENCE = 0.95
TRIALS = 20_000
_MOST_RELEASES = 10_000
"""Of one entry that are drawn; an attacker may ignore the others."""
_LARGEST_BLOCK = 2**22
"""Numbers in memory at once."""


def simulate(
    claim: s.PrivacyClaim, target: s.Statement, seed: int = 0, trials: int = TRIALS
) -> Bound | None:
    """The bound from as many trials without the unit as with it; None if no release of Gaussian
    noise can be drawn.

    The release with the largest effect is drawn; the others are ignored, as an attacker may do.
    """
    from fedpriv.audit.bounds import lower_bound
    from fedpriv.audit.families import GaussianFamily
    from fedpriv.util.streams import Streams

    if claim.choices:
        return None
    bounds = []
    for number, release in enumerate(claim.releases):
        if release is None or not _drawable(release, target):
            continue
        release = _first(release)
        rng = Streams(seed).generator("attack on a claim", party=str(number))
        absent, present = (
            _scores(release, target, there=there, trials=trials, rng=rng) for there in (0, 1)
        )
        exact = takes_part(release.sampling) == 1 and release.noise.generator == s.INDEPENDENT
        bounds.append(
            lower_bound(
                absent,
                present,
                delta=target.delta,
                confidence=CONFIDENCE,
                family=GaussianFamily() if exact else None,
            )
        )
    return max(bounds, key=lambda bound: bound.audited, default=None)


def _first(release: s.NoisyRelease) -> s.NoisyRelease:
    """An entry without its later releases."""
    times = min(release.times, _MOST_RELEASES)
    return replace(release, times=times, participation=min(release.participation, times))


def _drawable(release: s.NoisyRelease, target: s.Statement) -> bool:
    noise = release.noise
    if release.sight(target.observer) == s.NOTHING or not attackable(release, target):
        return False
    seen = hidden_deviation(release, target.observer) > 0
    known = noise.generator in (s.INDEPENDENT, s.REUSED, s.SHARED)
    sampling = release.sampling
    drawn = sampling.rule != s.SHUFFLED or sampling.of <= _MOST_RELEASES * sampling.batch
    bounded = noise.mechanism == s.GAUSSIAN and release.clip < math.inf
    return bounded and seen and known and drawn


def _scores(
    release: s.NoisyRelease,
    target: s.Statement,
    *,
    there: int,
    trials: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Scores (trials,) of runs with the unit, or without it (replaced by its opposite)."""
    times = release.times
    block = max(1, _LARGEST_BLOCK // times)
    parts = []
    for first in range(0, trials, block):
        rows = min(block, trials - first)
        part = _participation(release, rows, rng)
        value = release.bound if there else -release.bound * (target.adjacency == REPLACE)
        noise = _noise(release, target.observer, rows, rng)
        parts.append(_score(release, target, part * value + noise, noise))
    return np.concatenate(parts)


def _participation(release: s.NoisyRelease, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Whether the unit takes part, (rows, releases)."""
    sampling, shape = release.sampling, (rows, release.times)
    if sampling.rule == s.SHUFFLED:
        steps = math.ceil(sampling.of / sampling.batch)
        passes = math.ceil(release.times / steps)
        place = rng.integers(steps, size=(rows, passes, 1))
        there = (np.arange(steps) == place).reshape(rows, -1)[:, : release.times]
        return np.asarray(there, float)
    share = takes_part(sampling)
    if share == 1:
        there = np.zeros(shape)
        there[:, : release.participation] = 1.0
        return there
    once = sampling.drawn == s.ONCE
    coins = rng.random((rows, 1 if once else release.times)) < share
    return np.asarray(np.broadcast_to(coins, shape), float)


def _noise(
    release: s.NoisyRelease, observer: str, rows: int, rng: np.random.Generator
) -> np.ndarray:
    """Noise of the message, or sum, with the unit: (rows, releases)."""
    deviation = hidden_deviation(release, observer)
    if release.noise.generator == s.REUSED:
        return np.broadcast_to(rng.normal(0, deviation, (rows, 1)), (rows, release.times))
    return rng.normal(0, deviation, (rows, release.times))


def _score(
    release: s.NoisyRelease, target: s.Statement, seen: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """One score a run, from (rows, releases)."""
    generator = release.noise.generator
    messages = release.sight(target.observer) == s.MESSAGES
    if generator == s.SHARED and messages and release.noise.shares > 1:
        return np.asarray((seen - noise).sum(axis=1))  # the other message is the noise alone
    if generator == s.REUSED and seen.shape[1] > release.participation:
        return np.asarray(seen[:, 0] - seen[:, -1])
    deviation = hidden_deviation(release, target.observer)
    share = takes_part(release.sampling)
    low = -release.bound if target.adjacency == REPLACE else 0.0
    if share == 1:
        return np.asarray(seen.sum(axis=1))
    if release.sampling.drawn == s.ONCE:
        seen = seen.sum(axis=1, keepdims=True)
        scale = release.times
    else:
        scale = 1
    ratios = [
        np.logaddexp(
            math.log1p(-share),
            math.log(share) + (value * seen - scale * value**2 / 2) / deviation**2,
        )
        for value in (release.bound, low)
    ]
    return np.asarray((ratios[0] - ratios[1]).sum(axis=1))
