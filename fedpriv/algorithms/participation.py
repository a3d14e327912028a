"""Which silos take part in a round: drawn without looking at data, and known to everybody."""

from __future__ import annotations

import math

import numpy as np

from fedpriv.util.streams import Streams


def uniform(round: int, silos: int, cohort: int, streams: Streams) -> tuple[int, ...]:
    """`cohort` of `silos`, uniformly without replacement and independently of other rounds;
    ascending."""
    if cohort == silos:
        return tuple(range(silos))
    drawn = streams.generator("cohort", round).choice(silos, cohort, replace=False)
    return tuple(sorted(drawn.tolist()))


def balanced(round: int, silos: int, cohort: int, streams: Streams) -> tuple[int, ...]:
    """The `cohort` silos that have taken part least so far, ties at random; ascending.

    After any number t of rounds every silo has taken part floor(t * cohort / silos) or one more
    times, and in any one round each is as likely as the others.
    """
    period = silos // math.gcd(
        silos, cohort
    )  # after so many rounds all have taken part equally often
    counts = np.zeros(silos)
    for earlier in range(round - (round - 1) % period, round + 1):
        order = np.lexsort((streams.generator("cohort", earlier).random(silos), counts))
        counts[order[:cohort]] += 1
    return tuple(sorted(order[:cohort].tolist()))


PARTICIPATION = {"uniform": uniform, "balanced": balanced}
