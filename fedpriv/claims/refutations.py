"""The epsilon that an attack on the described releases reaches: a lower bound, with a proof.

The neighbours are those that a worst case allows: all other contributions are zero, and the
contribution of the unit lies on the bound, in one direction. What the observer sees then has a
known distribution, and the bound is its exact epsilon:

- unsampled Gaussian releases: the closed form (Balle and Wang, ICML 2018, Theorem 8);
- a sampled release: the optimistic discretisation of its privacy loss distribution, which rounds
  every loss down;
- noise that can be computed or cancelled: infinity.

Releases that the bound does not use are ignored, as an attacker may do. A unit inside a larger
contributor has no such bound, since its influence depends on the local training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dp_accounting.pld import privacy_loss_distribution as pld

from fedpriv.accountants.pld import FFT_ROUNDING, gaussian_epsilon
from fedpriv.claims import schema as s
from fedpriv.claims.rules import View, attackable, cancelled

_SMALLEST_DELTA = 1e-12
"""dp_accounting truncates tails of 1e-15."""
_LARGEST_LOSS = 300.0
"""dp_accounting computes exp(-loss); larger losses use a closed form or none."""
_MOST_RELEASES = 10**5
"""The rounding of more losses, each down, leaves no useful bound."""
_WIDTH, _MOST_POINTS = 17.0, 2**22
"""Of a composed distribution: its deviations, and the points that take a second to transform."""


@dataclass(frozen=True)
class Refutation:
    """What an attack reaches.

    epsilon: lower bound; 0 without an attack.
    how: the attack, in words.
    """

    epsilon: float
    how: str


NO_ATTACK = Refutation(0.0, "")


def attack_bound(claim: s.PrivacyClaim, target: s.Statement) -> Refutation:
    """The best lower bound for `target`. Releases with open questions are ignored.

    None if a choice was made on protected data: it may have changed the described values, such as a
    clipping bound.
    """
    best = NO_ATTACK
    if claim.choices or any(question.path == "choices" for question in claim.questions):
        return best
    gaps: dict[str, float] = {}
    for release in claim.releases:
        if release is None or release.sight(target.observer) == s.NOTHING:
            continue
        view = View(release, target)
        if not attackable(view):
            continue
        found = _noiseless(claim, view) or _sampled(view)
        if found and found.epsilon > best.epsilon:
            best = found
        gap = _gap(view)
        gaps[release.scope] = math.hypot(gaps.get(release.scope, 0.0), gap)
    everywhere = gaps.pop(s.EVERYWHERE, 0.0)
    gap = max((math.hypot(everywhere, gap) for gap in gaps.values()), default=everywhere)
    epsilon = gaussian_epsilon(gap, target.delta) if math.isfinite(gap) else math.inf
    if epsilon > best.epsilon:
        text = f"the unit's contributions all point one way: {gap:.4g} deviations in all"
        return Refutation(epsilon, text)
    return best


def _noiseless(claim: s.PrivacyClaim, view: View) -> Refutation | None:
    """An attack that meets no noise. It sees the unit whenever that takes part, so that no epsilon
    is possible if this happens more often than delta."""
    sampling, share = view.release.sampling, view.share
    # Another release may have one sample for all times.
    tries = view.release.participation if sampling.drawn == s.EACH_TIME else 1
    ever = -math.expm1(tries * math.log1p(-share)) if share < 1 else float(tries > 0)
    how = cancelled(view, claim) if ever > view.target.delta else ""
    return Refutation(math.inf, how) if how else None


def _gap(view: View) -> float:
    """How far the unit moves the unsampled Gaussian releases, in deviations."""
    release, noise, sampling = view.release, view.release.noise, view.release.sampling
    if noise.mechanism != s.GAUSSIAN or release.clip == math.inf or view.share < 1:
        return 0.0
    deviation = view.unknown_deviation
    if deviation == 0:
        return math.inf
    count = float(release.participation if noise.generator != s.REUSED else 1)
    if sampling.rule == s.SHUFFLED:
        # The sum of all batches of a pass has the unit once, and the noise of every batch.
        # A pass may leave out those who do not fill a batch.
        if view.removed or sampling.of % sampling.batch:
            return 0.0
        steps = sampling.of // sampling.batch
        count = min(release.participation, release.times // steps) / steps
    return math.sqrt(count) * release.bound * (1 + view.replaced) / deviation


def _sampled(view: View) -> Refutation | None:
    """The exact curve of a release that samples, of Gaussian or of one Laplace release."""
    release, noise, sampling = view.release, view.release.noise, view.release.sampling
    deviation, delta = view.unknown_deviation, view.target.delta
    if noise.generator != s.INDEPENDENT or 0 in (deviation, release.participation):
        return None
    share = view.share
    if noise.mechanism == s.LAPLACE and share == 1 and sampling.rule != s.SHUFFLED:
        largest = release.bound * (1 + view.replaced) / deviation
        epsilon = largest + 2 * math.log1p(-delta)
        return Refutation(max(0.0, epsilon), "the exact curve of one Laplace release")
    if noise.mechanism != s.GAUSSIAN or share == 1 or view.capped:
        return None
    ratio, count = deviation / release.bound, release.times
    bounds = []
    if sampling.drawn != s.EACH_TIME:
        bounds.append(optimistic_epsilon(share, ratio / math.sqrt(count), 1, delta))
    if sampling.drawn != s.ONCE:
        bounds.append(optimistic_epsilon(share, ratio, count, delta))
    how = "the unit is sampled, and its contributions all point one way"
    return Refutation(min(bounds), how)


@lru_cache(maxsize=256)
def optimistic_epsilon(rate: float, ratio: float, count: int, delta: float) -> float:
    """A lower bound of the epsilon of `count` Poisson-sampled Gaussian releases under add/remove.

    0 where one loss, or the number of releases, is too large for the grid.
    """
    delta += count * FFT_ROUNDING  # the bound must not come from the rounding
    many = not 0 < count <= _MOST_RELEASES or delta >= 1
    if many or ratio <= 0 or 1 / ratio**2 > _LARGEST_LOSS or delta < _SMALLEST_DELTA:
        return 0.0
    scale = rate * math.sqrt(math.expm1(min(1 / ratio**2, 50.0)))  # deviation of one loss
    span = 0.5 / ratio**2 + 10 / ratio
    interval = min(max(scale / 50 / math.sqrt(count), span / 2**17), 0.01)
    width = min(count * span, _WIDTH * scale * math.sqrt(count))
    interval = max(interval, width / _MOST_POINTS)
    if interval > 1:
        return 0.0
    once = pld.from_gaussian_mechanism(
        ratio,
        pessimistic_estimate=False,
        value_discretization_interval=interval,
        sampling_prob=rate,
        use_connect_dots=False,
    )
    return float(once.self_compose(count).get_epsilon_for_delta(delta))
