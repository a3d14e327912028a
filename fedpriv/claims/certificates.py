"""The epsilon that the described releases prove, as an upper bound.

`fedpriv.claims.rules` says which proofs there are of a release. Here their charges become events of
an accountant, and compose.
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
from fedpriv.claims.curves import drawn_epsilon
from fedpriv.claims.rules import AMPLIFIED, DRAWN, EVERYTHING, lacks, proofs
from fedpriv.claims.view import View
from fedpriv.errors import ConfigError

SMALLEST_SAMPLED = 0.01
"""Noise below which samples count as everything: the curves leave the grids, and a release costs
thousands either way."""
INCOMPLETE = s.Question("complete", "observers see more than the listed releases")


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

    mechanism: one of `MECHANISMS`.
    charge: of the rule that is used, such as `AMPLIFIED`.
    ratio: deviation, or scale, over how far one contributor moves the sum.
    contributors: contributors of one unit.
    together: how far all of them move it, over how far one does.
    count: releases that one of them can move.
    sampling: who takes part.
    """

    mechanism: str
    charge: str
    ratio: float
    contributors: int
    together: float
    count: int
    sampling: s.ReleaseSampling

    @property
    def noise(self) -> float:
        """Deviation, or scale, over how far the whole unit moves the sum."""
        return self.ratio / self.together

    @property
    def once(self) -> bool:
        """Whether it relies on one sample for all releases."""
        return self.charge != EVERYTHING and self.sampling.drawn == s.ONCE


def certify(claim: s.PrivacyClaim, target: s.Statement) -> Certificate:
    """The smallest epsilon that is proved for `target`; its own epsilon is not looked at."""
    reasons = list(claim.questions)
    if not reasons:
        reasons += [INCOMPLETE] * (not claim.complete)
        unpaid = "no release pays for this choice: "
        reasons += [s.Question("choices", unpaid + choice) for choice in claim.choices]
    spread = claim.spread.get(target.unit)
    if spread is None and not reasons:
        path = f"population.{target.unit}"
        reasons.append(s.Question(path, f"where the data of one {target.unit} can be"))
    if reasons or spread is None:
        return Certificate(math.inf, "", tuple(reasons))
    views = []
    for number, release in claim.seen_by(target.observer):
        view = View(claim, release, target)
        views.append(view)
        reasons += [s.Question(f"releases.{number}.{field}", text) for field, text in lacks(view)]
    if reasons:
        return Certificate(math.inf, "", tuple(reasons))
    ways = ([_cost(view, charge) for view in views] for charge in (AMPLIFIED, DRAWN, EVERYTHING))
    found = [_composed(views, costs, spread, target.delta) for costs in ways]
    return Certificate(*min(found))


def _cost(view: View, charge: str) -> ReleaseCost:
    """The cost of a release by a rule with this charge, or else as if everybody took part."""
    rows = {row.result: row for row in proofs(view)}
    if charge == AMPLIFIED and view.deviation < SMALLEST_SAMPLED * view.release.bound:
        charge = EVERYTHING
    row = rows.get(charge, rows[EVERYTHING])
    return ReleaseCost(
        view.release.noise.mechanism,
        row.result,
        view.deviation / (row.bounds * view.release.bound),
        view.contributors,
        view.together,
        view.release.participation,
        view.release.sampling,
    )


def _composed(
    views: Sequence[View], costs: Sequence[ReleaseCost], spread: s.UnitSpread, delta: float
) -> tuple[float, str]:
    """The largest epsilon over scopes, or of all together if a unit can be in several."""
    scopes: dict[str, list[ReleaseCost]] = {}
    for view, cost in zip(views, costs):
        scopes.setdefault(view.release.scope, []).append(cost)
    everywhere = scopes.pop(s.EVERYWHERE, [])
    parts = [[*everywhere, *inside] for inside in scopes.values()] or [everywhere]
    if spread.scopes > 1:
        parts = [list(costs)]
    return max(_total(tuple(part), delta) for part in parts)


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
    # Two releases of one sample show the unit at once.
    alone = sum(cost.once for cost in costs) <= 1
    used = [cost for cost in costs if cost.charge != EVERYTHING and (alone or not cost.once)]
    gap = math.hypot(*(math.sqrt(cost.count) / cost.noise for cost in costs if cost not in used))
    if not used:
        return gaussian_epsilon(gap, delta), "exact curve of Gaussian releases"
    if used[0].charge == DRAWN:
        epsilon = drawn_epsilon(gap, tuple(map(_sample, used)), delta, up=True)
        return epsilon, "exact curve of Gaussian releases, given the samples"
    names = {"pld": "privacy loss distribution", "rdp": "Renyi divergences"}
    found: list[tuple[float, str]] = []
    for adjacency in (ADD_REMOVE, REPLACE):
        events = [_event(cost, adjacency, amplify=cost in used) for cost in costs]
        try:
            numbers = RdpAndPld(delta).epsilons(events, adjacency)
        except ConfigError:  # a mixture of schemes without a common curve
            continue
        found += [(epsilon, names[name]) for name, epsilon in numbers.items()]
    if len(costs) == 1 and alone and costs[0].once and costs[0].sampling.rule != s.POISSON:
        found.append((_one_batch(costs[0], delta), "amplification of one sample for all releases"))
    return min(found)


def _sample(cost: ReleaseCost) -> tuple[float, int, float]:
    """Probability that the unit takes part, in how many releases, and how far it then moves each.
    Any of its contributors counts as all."""
    share = min(1.0, cost.contributors * cost.sampling.share)
    if cost.once:
        return share, 1, math.sqrt(cost.count) / cost.noise
    return share, cost.count, 1 / cost.noise


def _event(cost: ReleaseCost, adjacency: str, *, amplify: bool) -> tuple[DpEvent, int]:
    """The event of a cost and its count. `adjacency` is the accountant's: the noise is relative to
    how far the target moves the sum."""
    plain = dp.GaussianDpEvent(cost.noise)
    sampling = cost.sampling
    if amplify and sampling.rule == s.POISSON and adjacency == ADD_REMOVE:
        if cost.once:
            composed = dp.GaussianDpEvent(cost.noise / math.sqrt(cost.count))
            return dp.PoissonSampledDpEvent(sampling.rate, composed), 1
        one = dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(cost.ratio))
        return (group_event(one, cost.contributors) if cost.contributors > 1 else one), cost.count
    if amplify and sampling.rule != s.POISSON and not cost.once and adjacency == REPLACE:
        batch = dp.SampledWithoutReplacementDpEvent(sampling.of, sampling.batch, plain)
        return batch, cost.count
    return plain, cost.count


def _one_batch(cost: ReleaseCost, delta: float) -> float:
    """Epsilon of one batch without replacement that all releases use."""
    share = cost.sampling.share
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
    pure = [(_pure(cost), cost.count) for cost in costs]
    total = sum(count * epsilon for epsilon, count in pure)
    rho = sum(count * epsilon**2 / 2 for epsilon, count in pure)
    return min((total, "sum of pure guarantees"), (zcdp_epsilon(rho, delta), "zCDP"))


def _pure(cost: ReleaseCost) -> float:
    epsilon = 1 / cost.noise
    return _amplified(epsilon, cost.sampling.share) if cost.charge == AMPLIFIED else epsilon
