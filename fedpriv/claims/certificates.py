"""The epsilon that the described releases prove, as an upper bound.

A release moves by at most the bound of a contributor, times the contributors of one unit; twice
that under replace, or if the contributor stays and only its vector changes. Sampling counts only
for observers that do not learn who was chosen, and only where a theorem covers it:

- Poisson sampling under add/remove or zero-out (mixtures of Gaussians, `fedpriv.accountants.pld`);
- fixed-size batches under replace or zero-out (Wang, Balle, Kasiviswanathan, AISTATS 2019);
- one sample for all releases: the amplified curve of the composition (Balle, Barthe, Gaboardi,
  NeurIPS 2018, Theorems 8 and 11; Zhu, Dong, Wang, AISTATS 2022, Theorem 11).

Elsewhere a sampled release counts as an unsampled one, since sampling never costs privacy. Whatever
a theorem does not cover is infinite, with the field that is responsible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import dp_accounting as dp
from dp_accounting import DpEvent

from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.accountants.group import group_event
from fedpriv.accountants.pld import RdpAndPld, gaussian_epsilon
from fedpriv.accountants.zcdp import zcdp_epsilon
from fedpriv.claims import schema as s
from fedpriv.claims.rules import View, amplifies, obstacles
from fedpriv.errors import ConfigError


@dataclass(frozen=True)
class Certificate:
    """What is proved for one unit, adjacency and observer.

    epsilon: upper bound; inf without a proof.
    rests_on: the bound that proves it; empty without a proof.
    reasons: fields, each with what it prevents; empty for a finite epsilon.
    """

    epsilon: float
    rests_on: str
    reasons: tuple[s.Question, ...] = ()


@dataclass(frozen=True)
class ReleaseCost:
    """What one release entry costs.

    noise: deviation, or scale, over how far one unit moves the sum.
    count: releases that one unit can move.
    mechanism: one of `MECHANISMS`.
    sampling: a scheme that amplifies, under this target; None for none.
    single: noise over how far one of the unit's contributors moves the sum.
    contributors: contributors of one unit.
    """

    noise: float
    count: int
    mechanism: str
    sampling: s.ReleaseSampling | None
    single: float
    contributors: int


def certify(claim: s.PrivacyClaim, target: s.Statement) -> Certificate:
    """The smallest epsilon that is proved for `target`; its own epsilon is not looked at."""
    reasons = list(claim.questions)
    if not reasons:
        reasons += _whole_claim(claim)
    spread = claim.spread.get(target.unit)
    if spread is None and not reasons:
        path = f"population.{target.unit}"
        reasons.append(s.Question(path, f"where the data of one {target.unit} can be"))
    if reasons or spread is None:
        return Certificate(math.inf, "", tuple(reasons))
    scopes: dict[str, list[s.NoisyRelease]] = {}
    for number, release in enumerate(claim.releases):
        assert release is not None  # without open questions
        if release.sight(target.observer) == s.NOTHING:
            continue
        found = [
            s.Question(f"releases.{number}.{field}", text)
            for field, text in obstacles(View(release, target))
        ]
        reasons += found
        if not found:
            scopes.setdefault(release.scope, []).append(release)
    if reasons:
        return Certificate(math.inf, "", tuple(reasons))
    # A theorem about samples may need a larger distance, so that both ways are tried.
    ways = (
        {
            scope: [cost(release, target, spread, amplify=amplify) for release in releases]
            for scope, releases in scopes.items()
        }
        for amplify in (True, False)
    )
    return min(
        (_composed(way, spread, target.delta) for way in ways), key=lambda found: found.epsilon
    )


def _whole_claim(claim: s.PrivacyClaim) -> list[s.Question]:
    found = []
    if not claim.complete:
        found.append(s.Question("complete", "observers see more than the listed releases"))
    for choice in claim.choices:
        found.append(s.Question("choices", f"no release pays for this choice: {choice}"))
    return found


def cost(
    release: s.NoisyRelease, target: s.Statement, spread: s.UnitSpread, *, amplify: bool
) -> ReleaseCost:
    """The cost of a release without obstacles.

    amplify: whether sampling may count.
    """
    sampling = release.sampling
    fixed_batch = sampling.rule == s.WITHOUT_REPLACEMENT
    # Who replaces a removed contributor in a batch of fixed size has a vector too.
    view = View(release, target)
    twice = view.replaced or view.stays or (fixed_batch and view.removed)
    moved = release.bound * (2 if twice else 1)
    deviation = view.deviation
    amplified = sampling if amplify and amplifies(view, spread) else None
    if amplified and fixed_batch:
        moved = 2 * release.bound
    count = release.participation
    if sampling.rule == s.SHUFFLED:
        count = math.ceil(release.times / (sampling.of // sampling.batch))  # once in every pass
    whole = deviation / (moved * spread.contributors)
    mechanism = release.noise.mechanism
    return ReleaseCost(whole, count, mechanism, amplified, deviation / moved, spread.contributors)


def _composed(
    scopes: dict[str, list[ReleaseCost]], spread: s.UnitSpread, delta: float
) -> Certificate:
    """The largest epsilon over scopes, or of all together if a unit can be in several."""
    everywhere = scopes.pop(s.EVERYWHERE, [])
    parts = [[*everywhere, *costs] for costs in scopes.values()] or [everywhere]
    if spread.scopes > 1 and scopes:
        parts = [[*everywhere, *(cost for costs in scopes.values() for cost in costs)]]
    found = [_total(tuple(costs), delta) for costs in parts]
    epsilon, rests_on = max(found)
    return Certificate(epsilon, rests_on)


@lru_cache(maxsize=4096)
def _total(costs: tuple[ReleaseCost, ...], delta: float) -> tuple[float, str]:
    """Epsilon and the name of its bound for releases that all compose."""
    if not costs:
        return 0.0, "no observer sees a release"
    normal = tuple(cost for cost in costs if cost.mechanism == s.GAUSSIAN)
    others = [cost for cost in costs if cost.mechanism == s.LAPLACE]
    if not others:
        return _gaussians(normal, delta)
    if not normal:
        return _laplace(others, delta)
    one, name = _gaussians(normal, delta / 2)
    two, other = _laplace(others, delta / 2)
    return one + two, f"{name}; {other}; half of delta each"


def _gaussians(costs: Sequence[ReleaseCost], delta: float) -> tuple[float, str]:
    once = [cost for cost in costs if cost.sampling and cost.sampling.drawn == s.ONCE]
    names = {"pld": "privacy loss distribution", "rdp": "Renyi divergences"}
    found: list[tuple[float, str]] = []
    if len(once) == len(costs) == 1 and (number := _one_batch(once[0], delta)) is not None:
        found.append((number, "amplification of one sample for all releases"))
    for adjacency in (ADD_REMOVE, REPLACE):
        events = [
            _event(cost, adjacency, amplify=cost not in once or len(once) == 1) for cost in costs
        ]
        try:
            numbers = RdpAndPld(delta).epsilons(events, adjacency)
        except ConfigError:  # a mixture of schemes without a common curve
            continue
        found += [(epsilon, names[name]) for name, epsilon in numbers.items()]
    if all(cost.sampling is None for cost in costs):
        return min(found)[0], "exact curve of Gaussian releases"
    return min(found)


def _event(cost: ReleaseCost, adjacency: str, *, amplify: bool) -> tuple[DpEvent, int]:
    """The event of a cost and its count. `adjacency` is the accountant's: the noise is relative to
    how far the target moves the sum."""
    plain = dp.GaussianDpEvent(cost.noise)
    sampling = cost.sampling
    if sampling is None or not amplify:
        return plain, cost.count
    if sampling.rule == s.POISSON and adjacency == ADD_REMOVE:
        if sampling.drawn == s.ONCE:
            composed = dp.GaussianDpEvent(cost.noise / math.sqrt(cost.count))
            return dp.PoissonSampledDpEvent(sampling.rate, composed), 1
        one = dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(cost.single))
        return (group_event(one, cost.contributors) if cost.contributors > 1 else one), cost.count
    fixed = sampling.rule == s.WITHOUT_REPLACEMENT and sampling.drawn == s.EACH_TIME
    if fixed and adjacency == REPLACE:
        batch = dp.SampledWithoutReplacementDpEvent(sampling.of, sampling.batch, plain)
        return batch, cost.count
    return plain, cost.count


def _one_batch(cost: ReleaseCost, delta: float) -> float | None:
    """Epsilon of one batch without replacement that all releases use; None for other schemes."""
    sampling = cost.sampling
    if sampling is None or sampling.rule != s.WITHOUT_REPLACEMENT:
        return None
    share = sampling.batch / sampling.of
    if delta >= share:
        return 0.0
    return _amplified(gaussian_epsilon(math.sqrt(cost.count) / cost.noise, delta / share), share)


def _amplified(epsilon: float, rate: float) -> float:
    """ln(1 + rate (e^epsilon - 1)), without overflow."""
    if epsilon > 500:
        return epsilon + math.log(rate)
    return math.log1p(rate * math.expm1(epsilon))


def _laplace(costs: Sequence[ReleaseCost], delta: float) -> tuple[float, str]:
    """Pure guarantees: their sum, or the sum of epsilon^2 / 2 as zCDP (Bun and Steinke 2016)."""
    once = [cost for cost in costs if cost.sampling and cost.sampling.drawn == s.ONCE]
    pure = [(_pure(cost, amplify=cost not in once), cost.count) for cost in costs]
    total = sum(count * epsilon for epsilon, count in pure)
    rho = sum(count * epsilon**2 / 2 for epsilon, count in pure)
    return min((total, "sum of pure guarantees"), (zcdp_epsilon(rho, delta), "zCDP"))


def _pure(cost: ReleaseCost, *, amplify: bool) -> float:
    epsilon = 1 / cost.noise
    sampling = cost.sampling
    if sampling is None or not amplify:
        return epsilon
    rate = sampling.rate if sampling.rule == s.POISSON else sampling.batch / sampling.of
    return _amplified(epsilon, rate)
