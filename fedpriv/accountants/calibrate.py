"""The smallest noise, or the most rounds, that keep epsilon within a target.

Epsilon falls with noise and grows with rounds, so both are searches over a monotone function. Every
answer was itself accounted and found within the target; what the search leaves open is only how
much better a neighbour would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedpriv.errors import ConfigError, require

_LEAST_NOISE = 1e-3
_MOST_NOISE = 1e6
MOST_ROUNDS = 10**7


def smallest_noise(
    spent: Callable[[float], float],
    epsilon: float,
    *,
    near: float | None = None,
    tolerance: float = 1e-3,
) -> float:
    """The smallest noise multiplier whose epsilon `spent(noise_multiplier)` stays within `epsilon`.

    Within a factor 1 + `tolerance` of the smallest.

    near: a guess, to save calls. Raises ConfigError when no noise multiplier up to 1e6 reaches it.
    """
    require(epsilon > 0, "epsilon", epsilon, "must be above 0")
    within, beyond = _bracket(
        spent, epsilon, near=near, start=1.0, safest=_MOST_NOISE, boldest=_LEAST_NOISE
    )
    if within is None:
        raise ConfigError(
            "epsilon", epsilon, f"no noise multiplier up to {_MOST_NOISE:g} reaches it"
        )
    if beyond is None:
        return within
    return _narrow(
        spent, epsilon, within=within, beyond=beyond, near=lambda a, b: a / b < 1 + tolerance
    )


def most_rounds(
    spent: Callable[[int], float],
    epsilon: float,
    *,
    near: int | None = None,
    limit: int = MOST_ROUNDS,
) -> int:
    """The most rounds whose epsilon `spent(rounds)` stays within `epsilon`, at most `limit`; 0 when
    one is too many.

    near: a guess, to save calls.
    """
    require(epsilon > 0, "epsilon", epsilon, "must be above 0")

    def whole(rounds: float) -> float:
        return spent(round(rounds))

    within, beyond = _bracket(
        whole, epsilon, near=near, start=1.0, safest=1.0, boldest=float(limit)
    )
    if within is None or beyond is None:
        return 0 if within is None else limit
    found = _narrow(
        whole, epsilon, within=within, beyond=beyond, near=lambda a, b: b - a <= 1, whole=True
    )
    return round(found)


def _bracket(
    spent: Callable[[float], float],
    target: float,
    *,
    near: float | None,
    start: float,
    safest: float,
    boldest: float,
) -> tuple[float | None, float | None]:
    """Two points within and beyond `target`, a factor 8 apart, or 1.1 around a guess `near`; None
    for one that does not exist up to its limit."""
    factor, at = (1.1, near) if near else (8.0, start)
    within = None
    beyond = None
    while within is None or beyond is None:
        if spent(at) <= target:
            within = at
            limit = boldest
        else:
            beyond = at
            limit = safest
        if at == limit:
            break
        at = min(at * factor, limit) if limit > at else max(at / factor, limit)
        factor = min(factor**2, 8.0)
    return within, beyond


def _narrow(
    spent: Callable[[float], float],
    target: float,
    *,
    within: float,
    beyond: float,
    near: Callable[[float, float], bool],
    whole: bool = False,
) -> float:
    """Move `within` towards `beyond` until they are `near`; `spent` is nearly a power of its
    argument.

    Bisection on a logarithmic scale, with every other guess where a power law through both ends
    meets the target.
    """
    spent_within = spent(within)
    spent_beyond = spent(beyond)
    by_law = True
    while not near(within, beyond):
        share = 0.5
        if by_law and 0 < spent_within < target and math.isfinite(spent_beyond):
            share = math.log(target / spent_within) / math.log(spent_beyond / spent_within)
        by_law = not by_law
        at = within * (beyond / within) ** min(max(share, 0.01), 0.99)
        if whole:
            at = min(max(round(at), min(within, beyond) + 1), max(within, beyond) - 1)
        now = spent(at)
        if now <= target:
            within = at
            spent_within = now
        else:
            beyond = at
            spent_beyond = now
    return within
