"""Plans for tests that need a round and no algorithm."""

from __future__ import annotations

import math

from fedpriv.algorithms.base import Federation, Plan
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.streams import Streams

SYSTEM = Streams(0, system=True)


def plan_for(aggregation, silos, round=1, streams=SYSTEM, users=1):
    """A round over so many silos and users, without events, for contributions of norm 20 at most or, where the
    aggregation asks for no bound, of any size."""
    covered = aggregation.min_cohort(silos)
    code = aggregation.code(covered, math.inf, Federation(users, silos, 1), Gaussian(20.0, 1.0))
    return Plan(round, tuple(range(silos)), None, (), covered, code, streams)
