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
from typing import TYPE_CHECKING

from fedpriv.accountants.events import ADD_REMOVE, REPLACE, SERVER
from fedpriv.claims import schema as s
from fedpriv.errors import ConfigError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


_LARGEST_GROUP = 1000
"""Contributors of a unit up to which samples of a group are accounted."""


_SMALLEST_SAMPLED = 0.01
"""Noise below which samples count as everything: the curves leave the grids, and a release costs
thousands either way."""


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
            for field, text in obstacles(release, target)
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


def obstacles(release: s.NoisyRelease, target: s.Statement) -> list[tuple[str, str]]:
    """Why nothing finite is proved for one release: fields and texts."""
    found = []
    noise, sampling = release.noise, release.sampling
    sight = release.sight(target.observer)
    if release.clip == math.inf:
        found.append(("clip", "nothing bounds a contribution"))
    if noise.mechanism == s.NO_NOISE:
        found.append(("noise.mechanism", "no noise hides a contribution"))
    elif noise.generator != s.INDEPENDENT:
        found.append(("noise.generator", f"noise is {noise.generator}: it can be computed or "
                      "cancelled"))  # fmt: skip
    elif hidden_deviation(release, target.observer) == 0:
        found.append(
            ("noise.added_by", f"the {target.observer} meets none of the noise ({noise.added_by})")
        )
    if s.DATA_DEPENDENT in (release.weights, release.denominator):
        field = "weights" if release.weights == s.DATA_DEPENDENT else "denominator"
        found.append((field, "it is computed from protected data, and may show them"))
    changing = _changing_counts(release, target)
    if changing:
        found.append((changing, f"counts change under {target.adjacency} of a {target.unit}"))
    removed = target.adjacency == ADD_REMOVE
    if removed and sampling.rule == s.SHUFFLED:
        found.append(("sampling.rule", "the number and sizes of batches change under add/remove"))
    capped = sampling.rule == s.WITHOUT_REPLACEMENT and release.participation < release.times
    if removed and capped:
        found.append(("participation", "whom a removed contributor leaves its places to takes part "
                      "in fewer later batches"))  # fmt: skip
    speaks = noise.added_by in (s.BY_CLIENTS, s.BY_HOLDER) or sight == s.MESSAGES
    if removed and target.unit == s.CLIENT and speaks:
        found.append(("noise.added_by", "a removed client sends no message and no noise, which "
                      "shows under add/remove"))  # fmt: skip
    return found


def _changing_counts(release: s.NoisyRelease, target: s.Statement) -> str:
    """The field that neighbours differ in because it is made of counts; empty if none is."""
    if target.adjacency == s.ZERO_OUT:
        return ""
    # Who replaces a user or a client may have another number of records.
    if target.adjacency == REPLACE and target.unit == s.RECORD:
        return ""
    return next((f for f in ("weights", "denominator") if getattr(release, f) == s.COUNTS), "")


def hidden_deviation(release: s.NoisyRelease, observer: str) -> float:
    """Deviation of the independent noise that hides a contribution from `observer`."""
    noise = release.noise
    messages = release.sight(observer) == s.MESSAGES
    if noise.added_by == s.BY_HOLDER:
        return noise.deviation
    if noise.added_by == s.BY_CLIENTS:
        shares = 1 if messages else noise.shares - (observer == s.CLIENT)
        scale = math.sqrt(shares) if noise.mechanism == s.GAUSSIAN else min(shares, 1)
        return noise.deviation * scale
    unseen = not messages and not (noise.added_by == s.BY_SERVER and observer == SERVER)
    return noise.deviation if unseen else 0.0


def stays(release: s.NoisyRelease, unit: str) -> bool:
    """Whether a contributor is still there without the unit, with another vector."""
    return s.UNITS.index(release.contributor) > s.UNITS.index(unit)


def cost(
    release: s.NoisyRelease, target: s.Statement, spread: s.UnitSpread, *, amplify: bool
) -> ReleaseCost:
    """The cost of a release without obstacles.

    amplify: whether sampling may count.
    """
    sampling = release.sampling
    fixed_batch = sampling.rule == s.WITHOUT_REPLACEMENT
    # Who replaces a removed contributor in a batch of fixed size has a vector too.
    twice = target.adjacency == REPLACE or stays(release, target.unit)
    twice |= fixed_batch and target.adjacency == ADD_REMOVE
    moved = release.bound * (2 if twice else 1)
    deviation = hidden_deviation(release, target.observer)
    amplified = sampling if amplify and _amplifies(release, target, spread) else None
    if amplified and fixed_batch:
        moved = 2 * release.bound
    count = release.participation
    if sampling.rule == s.SHUFFLED:
        count = math.ceil(release.times / (sampling.of // sampling.batch))  # once in every pass
    whole = deviation / (moved * spread.contributors)
    mechanism = release.noise.mechanism
    return ReleaseCost(whole, count, mechanism, amplified, deviation / moved, spread.contributors)


def _amplifies(release: s.NoisyRelease, target: s.Statement, spread: s.UnitSpread) -> bool:
    sampling = release.sampling
    hidden = target.observer in sampling.hidden_from and release.sight(target.observer) == s.SUM
    if not hidden or release.participation < release.times:
        return False
    if sampling.drawn == s.TOGETHER:  # both releases show the unit at once
        return False
    if hidden_deviation(release, target.observer) < _SMALLEST_SAMPLED * release.bound:
        return False
    # A client knows whether it or a record of its own was chosen, which tells it about the others.
    # Only data with one holder are surely not its own; another scope can be several clients.
    alien = release.noise.added_by == s.BY_HOLDER and release.scope != s.EVERYWHERE
    among = release.contributor == s.CLIENT or not alien
    itself = target.observer == s.CLIENT and among
    alone = spread.contributors == 1
    if sampling.rule == s.POISSON:
        # Who takes part must not show in a count, nor in how much noise there is.
        counted = s.COUNTS in (release.weights, release.denominator)
        counted |= release.noise.added_by == s.BY_CLIENTS and release.contributor == s.CLIENT
        several = release.noise.mechanism == s.GAUSSIAN and sampling.drawn == s.EACH_TIME
        fits = alone or (several and spread.contributors <= _LARGEST_GROUP)
        return (
            target.adjacency != REPLACE and not counted and not stays(release, target.unit) and fits
        )
    if sampling.rule == s.WITHOUT_REPLACEMENT:
        # Contributors of different sizes show in a count who they are.
        counted = s.COUNTS in (release.weights, release.denominator)
        return target.adjacency != ADD_REMOVE and alone and not (counted or itself)
    return False


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
    from fedpriv.accountants.combined import RdpAndPld

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
    import dp_accounting as dp

    from fedpriv.accountants.group import group_event

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
    from fedpriv.accountants.pld import gaussian_epsilon

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
    from fedpriv.accountants.zcdp import zcdp_epsilon

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
