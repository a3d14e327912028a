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

import numpy as np

from fedpriv.audit.bounds import Bound, lower_bound
from fedpriv.audit.families import GaussianFamily
from fedpriv.claims import schema as s
from fedpriv.claims.rules import View, attackable
from fedpriv.util.streams import Streams

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
    if claim.choices:
        return None
    bounds = []
    for number, release in enumerate(claim.releases):
        if release is None or not _drawable(View(release, target)):
            continue
        times = min(release.times, _MOST_RELEASES)
        shorter = replace(release, times=times, participation=min(release.participation, times))
        view = View(shorter, target)
        rng = Streams(seed).generator("attack on a claim", party=str(number))
        absent, present = (_scores(view, there, trials, rng) for there in (0, 1))
        exact = view.share == 1 and release.noise.generator == s.INDEPENDENT
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


def _drawable(view: View) -> bool:
    release, noise, sampling = view.release, view.release.noise, view.release.sampling
    if release.sight(view.target.observer) == s.NOTHING or not attackable(view):
        return False
    known = noise.generator in (s.INDEPENDENT, s.REUSED, s.SHARED)
    drawn = sampling.rule != s.SHUFFLED or sampling.of <= _MOST_RELEASES * sampling.batch
    bounded = noise.mechanism == s.GAUSSIAN and release.clip < math.inf
    return bounded and view.deviation > 0 and known and drawn


def _scores(view: View, there: int, trials: int, rng: np.random.Generator) -> np.ndarray:
    """Scores (trials,) of runs with the unit, or without it (replaced by its opposite)."""
    block = max(1, _LARGEST_BLOCK // view.release.times)
    value = view.release.bound * (1 if there else -view.replaced)
    parts = []
    for first in range(0, trials, block):
        rows = min(block, trials - first)
        part = _participation(view, rows, rng)
        # Reused noise is one draw for all releases.
        draws = 1 if view.release.noise.generator == s.REUSED else view.release.times
        noise = rng.normal(0, view.deviation, (rows, draws))
        parts.append(_score(view, part * value + noise, noise))
    return np.concatenate(parts)


def _participation(view: View, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Whether the unit takes part, (rows, releases)."""
    release, sampling, share = view.release, view.release.sampling, view.share
    shape = (rows, release.times)
    if sampling.rule == s.SHUFFLED:
        steps = math.ceil(sampling.of / sampling.batch)
        place = rng.integers(steps, size=(rows, math.ceil(release.times / steps), 1))
        there = (np.arange(steps) == place).reshape(rows, -1)[:, : release.times]
        return np.asarray(there, float)
    if share == 1:
        return np.broadcast_to(np.arange(release.times) < release.participation, shape) * 1.0
    once = sampling.drawn == s.ONCE
    coins = rng.random((rows, 1 if once else release.times)) < share
    return np.asarray(np.broadcast_to(coins, shape), float)


def _score(view: View, seen: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """One score a run, from (rows, releases)."""
    release, share = view.release, view.share
    generator = release.noise.generator
    if generator == s.SHARED and view.messages and release.noise.shares > 1:
        return np.asarray((seen - noise).sum(axis=1))  # the other message is the noise alone
    if generator == s.REUSED and seen.shape[1] > release.participation:
        return np.asarray(seen[:, 0] - seen[:, -1])
    if share == 1:
        return np.asarray(seen.sum(axis=1))
    scale = 1
    if release.sampling.drawn == s.ONCE:
        scale, seen = release.times, seen.sum(axis=1, keepdims=True)
    low = -release.bound * view.replaced
    ratios = [
        np.logaddexp(
            math.log1p(-share),
            math.log(share) + (value * seen - scale * value**2 / 2) / view.deviation**2,
        )
        for value in (release.bound, low)
    ]
    return np.asarray((ratios[0] - ratios[1]).sum(axis=1))
