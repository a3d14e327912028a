"""Calibration: the smallest noise, or the largest number of rounds, that keeps epsilon within a
target.

Epsilon decreases with noise and increases with rounds, so both are searches over a monotone
function. Every result has been accounted and is within the target. The search tolerance only
decides how close to optimal it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedpriv.errors import ConfigError, require

_MIN_NOISE = 1e-3
_MAX_NOISE = 1e6
MAX_ROUNDS = 10**7


def smallest_noise(
    spent: Callable[[float], float],
    epsilon: float,
    *,
    near: float | None = None,
    tolerance: float = 1e-3,
    close: float = 0.0,
) -> float:
    """The smallest noise multiplier with an epsilon of at most `epsilon`.

    spent: epsilon of a noise multiplier.
    epsilon: target.
    near: a guess, which saves calls.
    tolerance: the result is within a factor 1 + `tolerance` of the smallest, or
    close: its epsilon is at least 1 - `close` times the target.

    Raises ConfigError if no noise multiplier up to 1e6 reaches the target.
    """
    require(epsilon > 0, "epsilon", epsilon, "must be above 0")
    within, beyond = _bracket(spent, epsilon, near=near, safest=_MAX_NOISE, boldest=_MIN_NOISE)
    if within is None:
        raise ConfigError(
            "epsilon", epsilon, f"no noise multiplier up to {_MAX_NOISE:g} reaches it"
        )
    if beyond is None:
        return within
    return _narrow(
        spent,
        epsilon,
        within=within,
        beyond=beyond,
        near=lambda a, b: a / b < 1 + tolerance,
        close=close,
    )


def most_rounds(
    spent: Callable[[int], float],
    epsilon: float,
    *,
    near: int | None = None,
    limit: int = MAX_ROUNDS,
) -> int:
    """The largest number of rounds with an epsilon of at most `epsilon`; 0 if one round exceeds it.

    spent: epsilon of a number of rounds.
    epsilon: target.
    near: a guess, which saves calls.
    limit: largest result.
    """
    require(epsilon > 0, "epsilon", epsilon, "must be above 0")

    def whole(rounds: float) -> float:
        return spent(round(rounds))

    within, beyond = _bracket(whole, epsilon, near=near, safest=1.0, boldest=float(limit))
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
    safest: float,
    boldest: float,
) -> tuple[float | None, float | None]:
    """Two points, the first within and the second beyond `target`, a factor of 8 apart, or of 1.1
    around a guess `near`. None for a point that does not exist up to its limit, `safest` or
    `boldest`."""
    factor, at = (1.1, near) if near else (8.0, 1.0)
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
    close: float = 0.0,
    whole: bool = False,
) -> float:
    """Move `within` towards `beyond` until they are `near`, on a logarithmic scale, or until its
    epsilon is `close` to the target.

    `spent` is almost a power law, so most steps try the point at which a power law through both
    ends reaches the target. The other steps bisect: every other one, or with `close` every third.
    """
    spent_within = spent(within)
    spent_beyond = spent(beyond)
    step = 0
    while not near(within, beyond) and spent_within < target * (1 - close):
        share = 0.5
        by_law = step % 3 < 2 if close else step % 2 == 0
        if by_law and 0 < spent_within < target and math.isfinite(spent_beyond):
            aim = target * (1 - close / 2)
            share = math.log(aim / spent_within) / math.log(spent_beyond / spent_within)
        step += 1
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
