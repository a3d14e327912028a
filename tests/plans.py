"""Plans for tests that need a round and no algorithm."""

from __future__ import annotations

import math

from fedpriv.algorithms.base import Plan
from fedpriv.streams import Streams


SYSTEM = Streams(0, system=True)


def plan_for(aggregation, silos, round=1, streams=SYSTEM):
    """A round over so many silos, without events, for messages of any size."""
    covered = aggregation.min_cohort(silos)
    return Plan(round, tuple(range(silos)), None, (), covered, aggregation.code(covered, math.inf), streams)
