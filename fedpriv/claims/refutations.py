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

from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.claims import schema as s
from fedpriv.claims.certificates import hidden_deviation, stays

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
        if not attackable(release, target):
            continue
        found = _noiseless(claim, release, target) or _sampled(release, target)
        if found and found.epsilon > best.epsilon:
            best = found
        gap = _gap(release, target)
        gaps[release.scope] = math.hypot(gaps.get(release.scope, 0.0), gap)
    from fedpriv.accountants.pld import gaussian_epsilon

    everywhere = gaps.pop(s.EVERYWHERE, 0.0)
    gap = max((math.hypot(everywhere, gap) for gap in gaps.values()), default=everywhere)
    epsilon = gaussian_epsilon(gap, target.delta) if math.isfinite(gap) else math.inf
    if epsilon > best.epsilon:
        text = f"the unit's contributions all point one way: {gap:.4g} deviations in all"
        return Refutation(epsilon, text)
    return best


def attackable(release: s.NoisyRelease, target: s.Statement) -> bool:
    """Whether neighbours differ by exactly one contribution on the bound."""
    if stays(release, target.unit) or s.DATA_DEPENDENT in (release.weights, release.denominator):
        return False
    counted = s.COUNTS in (release.weights, release.denominator)
    removed = target.adjacency == ADD_REMOVE
    # With a client that does not take part, its noise is missing too: another pair of curves.
    own = release.noise.added_by in (s.BY_CLIENTS, s.BY_HOLDER)
    fewer = own and removed and target.unit == s.CLIENT
    sampled = release.sampling.rule == s.POISSON and release.contributor == s.CLIENT
    fewer |= own and sampled and release.noise.added_by == s.BY_CLIENTS
    return not (counted and removed) and not fewer


def _moved(release: s.NoisyRelease, target: s.Statement) -> float:
    return release.bound * (2 if target.adjacency == REPLACE else 1)


def takes_part(sampling: s.ReleaseSampling) -> float:
    """Probability that a contributor takes part in one release."""
    if sampling.rule == s.POISSON:
        return sampling.rate
    return sampling.batch / sampling.of if sampling.rule == s.WITHOUT_REPLACEMENT else 1.0


def _noiseless(
    claim: s.PrivacyClaim, release: s.NoisyRelease, target: s.Statement
) -> Refutation | None:
    """An attack that meets no noise. It sees the unit whenever that takes part, so that no epsilon
    is possible if this happens more often than delta."""
    share = takes_part(release.sampling)
    # Another release may have one sample for all times.
    tries = release.participation if release.sampling.drawn == s.EACH_TIME else 1
    if -math.expm1(tries * math.log1p(-share) if share < 1 else -math.inf) <= target.delta:
        return None
    noise = release.noise
    messages = release.sight(target.observer) == s.MESSAGES
    if noise.mechanism == s.NO_NOISE:
        return Refutation(math.inf, "the release has no noise")
    if release.clip == math.inf:
        return Refutation(math.inf, "one contribution can be larger than any noise")
    if noise.generator == s.PUBLIC:
        return Refutation(math.inf, "the observer computes the noise from its seed")
    if noise.generator == s.SHARED and _second_message(claim, release, target, messages):
        return Refutation(math.inf, "the difference of two messages has no noise")
    if noise.generator == s.SHARED and target.observer == s.CLIENT:
        return Refutation(math.inf, "a client knows the noise of the others: it is its own")
    twice = release.participation == release.times > 1 and release.sampling.rule == s.EVERYTHING
    if noise.generator == s.REUSED and twice:
        return Refutation(math.inf, "the difference of two releases has no noise")
    if _deviation(release, target.observer) == 0:
        return Refutation(math.inf, f"the {target.observer} sees contributions without noise")
    return None


def _second_message(
    claim: s.PrivacyClaim, release: s.NoisyRelease, target: s.Statement, messages: bool
) -> bool:
    """Whether the observer sees another message with the same noise."""
    if release.noise.added_by != s.BY_HOLDER:
        return messages and release.noise.shares > 1
    return any(
        other.scope != release.scope
        and other.noise.added_by == s.BY_HOLDER
        and other.noise.generator == s.SHARED
        and other.times == release.times
        and other.sight(target.observer) != s.NOTHING
        for other in claim.releases
        if other
    )


def _deviation(release: s.NoisyRelease, observer: str) -> float:
    """Deviation of the noise that the observer cannot compute; of equal shares if they are
    shared."""
    shared = release.noise.generator == s.SHARED and release.noise.added_by == s.BY_CLIENTS
    if shared and release.sight(observer) == s.SUM:
        return release.noise.deviation * release.noise.shares
    return hidden_deviation(release, observer)


def _gap(release: s.NoisyRelease, target: s.Statement) -> float:
    """How far the unit moves the unsampled Gaussian releases, in deviations."""
    noise, sampling = release.noise, release.sampling
    if noise.mechanism != s.GAUSSIAN or release.clip == math.inf or takes_part(sampling) < 1:
        return 0.0
    deviation = _deviation(release, target.observer)
    if deviation == 0:
        return math.inf
    count = float(release.participation if noise.generator != s.REUSED else 1)
    if sampling.rule == s.SHUFFLED:
        # The sum of all batches of a pass has the unit once, and the noise of every batch.
        # A pass may leave out those who do not fill a batch.
        if target.adjacency == ADD_REMOVE or sampling.of % sampling.batch:
            return 0.0
        steps = sampling.of // sampling.batch
        count = min(release.participation, release.times // steps) / steps
    return math.sqrt(count) * _moved(release, target) / deviation


def _sampled(release: s.NoisyRelease, target: s.Statement) -> Refutation | None:
    """The exact curve of a release that samples, of Gaussian or of one Laplace release."""
    noise, sampling = release.noise, release.sampling
    deviation = _deviation(release, target.observer)
    if noise.generator != s.INDEPENDENT or 0 in (deviation, release.participation):
        return None
    share = takes_part(sampling)
    if noise.mechanism == s.LAPLACE and share == 1 and sampling.rule != s.SHUFFLED:
        largest = _moved(release, target) / deviation
        epsilon = largest + 2 * math.log1p(-target.delta)
        return Refutation(max(0.0, epsilon), "the exact curve of one Laplace release")
    if noise.mechanism != s.GAUSSIAN or share == 1 or release.participation < release.times:
        return None
    ratio, count = deviation / release.bound, release.times
    bounds = []
    if sampling.drawn != s.EACH_TIME:
        bounds.append(optimistic_epsilon(share, ratio / math.sqrt(count), 1, target.delta))
    if sampling.drawn != s.ONCE:
        bounds.append(optimistic_epsilon(share, ratio, count, target.delta))
    how = "the unit is sampled, and its contributions all point one way"
    return Refutation(min(bounds), how)


@lru_cache(maxsize=256)
def optimistic_epsilon(rate: float, ratio: float, count: int, delta: float) -> float:
    """A lower bound of the epsilon of `count` Poisson-sampled Gaussian releases under add/remove.

    0 where one loss, or the number of releases, is too large for the grid.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    from fedpriv.accountants.pld import FFT_ROUNDING

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
