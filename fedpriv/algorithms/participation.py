"""The silos that take part in a round. The choice is public and does not depend on data."""

from __future__ import annotations

import math

import numpy as np

from fedpriv.util.streams import Streams


def uniform(round: int, silos: int, cohort: int, streams: Streams) -> tuple[int, ...]:
    """Draw `cohort` of `silos` silos uniformly without replacement, independently of other rounds.
    Indices are ascending."""
    if cohort == silos:
        return tuple(range(silos))
    drawn = streams.generator("cohort", round).choice(silos, cohort, replace=False)
    return tuple(sorted(drawn.tolist()))


def balanced(round: int, silos: int, cohort: int, streams: Streams) -> tuple[int, ...]:
    """Choose the `cohort` silos with the fewest rounds so far, and break ties at random. Indices
    are ascending.

    After t rounds every silo has taken part in floor(t * cohort / silos) rounds or one more. In any
    single round all silos are equally likely.
    """
    # After `period` rounds all silos have taken part equally often.
    period = silos // math.gcd(silos, cohort)
    counts = np.zeros(silos)
    for earlier in range(round - (round - 1) % period, round + 1):
        order = np.lexsort((streams.generator("cohort", earlier).random(silos), counts))
        counts[order[:cohort]] += 1
    return tuple(sorted(order[:cohort].tolist()))


PARTICIPATION = {"uniform": uniform, "balanced": balanced}
