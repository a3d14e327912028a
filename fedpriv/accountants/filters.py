"""What charges cost together if each is chosen after the results of the earlier ones.

Who plans the next run has seen the last one, so its events may depend on what was released. A
privacy loss distribution composed over runs holds for events that are fixed beforehand. A filter
holds for chosen ones (Whitehouse, Ramdas, Rogers, Wu 2023; Feldman and Zrnic 2021; Lecuyer 2021):
it accepts a charge if the total afterwards is within the budget. The total here is the sum of the
events' curves, not of their epsilons, converted once. There are two conversions, each at half of
delta, and the smaller epsilon counts.

**Gaussian.** If all events so far are unsampled Gaussians of mean gaps m_i, the total is that of
one Gaussian of gap sqrt(sum m_i^2). It is a filter (Smith and Thakurta 2022), and exact.

**Renyi, a mixture of orders.** Let P and Q be the transcripts of neighbours, L their log-likelihood
ratio, and s_a the sum of the events' Renyi divergences at order a, which the transcript determines.
For fixed weights w_a that add up to 1,

    M = sum_a w_a exp((a - 1) (L - s_a))

has E_P[M] <= 1: an event adds to s_a at least what it adds to ln E_P[exp((a - 1) L)] / (a - 1),
given the past. The charges are accepted only if, for the s_a that came about and for every l,

    max(0, 1 - exp(epsilon - l)) <= (delta / 2) M(l),

so P(S) - e^epsilon Q(S) <= E_P[max(0, 1 - exp(epsilon - L))] <= delta / 2. For one order this is
the usual conversion (Balle et al. 2020). Orders and weights are fixed before the first charge: a
quarter of the weight lies on all orders alike, and the rest on the three below the one that suits a
Gaussian at `near`, which suit sampled ones.

**Both.** Let G be the transcripts within budget by the first conversion, and H the others. On each,
P(S) <= e^epsilon Q(S) + delta / 2; they are disjoint, so delta covers both.

The proof is of a budget that is fixed before the first result. Its neighbours differ in one unit,
which is absent in one of them while public sizes stay; an event of replaced units holds for these
too. So charges of several adjacencies or observers have one sum, and those of several units have
none. A unit is in one silo in all runs, and in one batch of each run.

>>> from dp_accounting import GaussianDpEvent
>>> from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, Event
>>> event = Event(RELEASED_MODEL, "user", ADD_REMOVE, GaussianDpEvent(5.0), None)
>>> charge = Charge.read(Charge(RELEASED_MODEL, (event,)).text)
>>> [round(Budget(3.0, 1e-5).spent({charge: count}), 2) for count in (1, 12)]
[0.76, 2.99]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import Composition, Event, leaves
from fedpriv.accountants.group import gaussian, require_proof, sampled_gaussian
from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.renyi import convert, rdp_curve
from fedpriv.accountants.split_users import split_divergences
from fedpriv.errors import require

ORDERS = (
    *(1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0),
    *(16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 64.0, 80.0, 96.0, 128.0, 192.0, 256.0),
    *(384.0, 512.0, 1024.0),
)
_ROUNDED = 1e-9
"""By which a converted epsilon is rounded up: the search for the worst loss ends earlier."""

Costs = Mapping[str, np.ndarray]
"""By scope ("": all of them): the squared mean gap, inf unless all events are unsampled Gaussians,
and the Renyi divergences at `ORDERS`."""

NOTHING = np.zeros(1 + len(ORDERS))


@dataclass(frozen=True)
class Budget:
    """The most that all charges may cost together.

    epsilon: at `delta`.
    delta: of all charges.
    near: the epsilon at which the filter is tightest, fixed before the first charge; 0: `epsilon`.
    """

    epsilon: float
    delta: float
    near: float = 0.0

    def __post_init__(self) -> None:
        require(0 < self.epsilon < math.inf, "epsilon", self.epsilon, "a positive epsilon")
        require(0 < self.delta < 1, "delta", self.delta, "must lie strictly between 0 and 1")

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}"

    def spent(self, charges: Mapping[Charge, int]) -> float:
        """Epsilon of all charges, at the budget's delta. Each may be chosen after earlier results.

        charges: each with the number of times it was made.

        Raises ConfigError for an event that has no Renyi curve, and for several units.
        """
        units = dict.fromkeys(_unit(charge.events) for charge in charges if charge.events)
        allowed = "answers that protect one unit, as a budget does"
        require(len(units) <= 1, "units", ", ".join(units), allowed)
        runs: dict[str, dict[str, np.ndarray]] = {"": {}}
        for charge, count in charges.items():
            sums = runs.setdefault(charge.run, {})
            for scope, cost in _costs(charge.events).items():
                sums[scope] = sums.get(scope, NOTHING) + count * cost
        everywhere = sum((sums.pop("", NOTHING) for sums in runs.values()), NOTHING)
        silos = runs.pop("")
        for batches in runs.values():  # which of them a unit is in differs from run to run
            everywhere = everywhere + np.maximum.reduce([NOTHING, *batches.values()])
        return max(self._epsilon(everywhere + own) for own in (NOTHING, *silos.values()))

    def _epsilon(self, total: np.ndarray) -> float:
        """Epsilon of a sum of costs."""
        if not total.any():
            return 0.0
        by_gap = gaussian_epsilon(math.sqrt(total[0]), self.delta / 2)
        return min(by_gap, _mixture_epsilon(total[1:], self._weights, self.delta / 2))

    @cached_property
    def _weights(self) -> np.ndarray:
        best = _suitable(self.near or self.epsilon, self.delta)
        weights = np.full(len(ORDERS), 0.25 / len(ORDERS))
        weights[best - 3 : best] += 0.25
        return weights


@lru_cache(maxsize=256)
def _suitable(epsilon: float, delta: float) -> int:
    """Place of the order that gives the smallest epsilon for a Gaussian that costs `epsilon`."""
    from scipy.optimize import brentq

    def gap(log_rho: float) -> float:
        return convert(ORDERS, math.exp(log_rho) * np.array(ORDERS), delta) - epsilon

    if gap(-30.0) >= 0:  # less than any order can tell
        return len(ORDERS) - 1
    rho = math.exp(brentq(gap, -30.0, math.log(epsilon)))
    by_order = [convert((order,), np.array([rho * order]), delta) for order in ORDERS]
    return max(3, int(np.argmin(by_order)))


def _mixture_epsilon(sums: np.ndarray, weights: np.ndarray, delta: float) -> float:
    """The smallest epsilon with max(0, 1 - exp(epsilon - l)) <= delta M(l) for every l.

    It is the largest value of l + ln(1 - delta M(l)), a concave function, where delta M(l) < 1.
    """
    known = np.isfinite(sums)
    if not known.any():
        return math.inf
    slopes = np.array(ORDERS)[known] - 1
    logs = math.log(delta) + np.log(weights[known]) - slopes * sums[known]

    def part(loss: float) -> tuple[float, float]:
        """delta M at a loss, at most 1, and its derivative."""
        terms = np.exp(np.minimum(logs + slopes * loss, 0.0))
        return min(1.0, float(terms.sum())), float(slopes @ terms)

    if part(0.0)[0] == 1:
        return 0.0
    low, high = 0.0, float(np.min(-logs / slopes))  # one order alone is 1 there
    while high - low > _ROUNDED * max(1.0, high):
        middle = (low + high) / 2
        value, slope = part(middle)
        low, high = (middle, high) if slope < 1 - value else (low, middle)
    # Beyond `low` the function rises by no more than its slope, at most 1.
    return max(0.0, low + math.log1p(-part(low)[0])) + (high - low)


def _unit(events: tuple[Event, ...]) -> str:
    """The unit of a charge: a user if there are events of users."""
    units = [event.unit for event in events]
    return "user" if "user" in units else units[0]


@lru_cache(maxsize=4096)
def _costs(events: tuple[Event, ...]) -> Costs:
    """What events add to the sums of their unit. Of several adjacencies the first with a
    certificate counts, and of groups of users the costliest."""
    users = [event for event in events if event.unit == _unit(events)]
    found: dict[str, dict[str, np.ndarray]] = {}
    abouts = dict.fromkeys((event.unit, event.adjacency, event.group_size) for event in users)
    for unit, adjacency, size in abouts:
        own = [
            event
            for event in users
            if (event.unit, event.adjacency, event.group_size) == (unit, adjacency, size)
        ]
        worst = found.setdefault(adjacency, {})
        for group in dict.fromkeys(event.group for event in own if event.group) or [""]:
            met = [event for event in own if event.group in ("", group)]
            for scope, cost in _scope_costs(met, adjacency, size).items():
                worst[scope] = np.maximum(worst.get(scope, 0.0), cost)
    certified = [costs for costs in found.values() if _finite(costs.values())]
    return next(iter([*certified, *found.values()]), {})


def _finite(costs: Iterable[np.ndarray]) -> bool:
    return all(np.isfinite(cost).any() for cost in costs)


def _scope_costs(events: list[Event], adjacency: str, size: int) -> dict[str, np.ndarray]:
    """Costs by scope of events that concern one group of users."""
    parts: dict[str, list[Event]] = {}
    for event in events:
        parts.setdefault(event.scope, []).append(event)
    scopes = {name: [(event.certified, 1) for event in own] for name, own in parts.items()}
    costs = {name: _cost(part, adjacency, size) for name, part in scopes.items()}
    everywhere = scopes.pop("", [])
    if size > 1 and len(scopes) > 1 and not all(map(gaussian, (*scopes.values(), everywhere))):
        one_noise = any(event.one_noise for event in events)
        split = split_divergences(
            [*scopes.values()], size, ORDERS, everywhere=everywhere, one_noise=one_noise
        )
        shared = costs.pop("", NOTHING)
        alone = [shared + cost for cost in costs.values()]
        return {"": np.maximum.reduce([*alone, np.append(math.inf, split.max(axis=0))])}
    return costs


def _cost(composition: Composition, adjacency: str, size: int) -> np.ndarray:
    """Squared mean gap and Renyi divergences of events for one record, or a group of `size`."""
    found = leaves(composition)
    if found is None:
        return np.full(1 + len(ORDERS), math.inf)
    if gaussian(composition):
        noises = {event: sampled_gaussian(event, size)[1] for event in found}
        squared = sum(count * (size / noises[event]) ** 2 for event, count in found.items())
        return np.append(squared, squared / 2 * np.array(ORDERS))
    if size == 1:
        return np.append(math.inf, rdp_curve(composition, adjacency, ORDERS))
    require_proof(composition, adjacency, size)
    group = split_divergences((), size, ORDERS, everywhere=composition)
    return np.append(math.inf, group.max(axis=0))
