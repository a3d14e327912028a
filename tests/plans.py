"""Plans for tests that need a round and no algorithm."""

from __future__ import annotations

import math

from fedpriv.algorithms.base import Federation, Plan
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.streams import Streams

SYSTEM = Streams(0, system=True)


def plan_for(aggregation, silos, round=1, streams=SYSTEM):
    """A round over so many silos, without events, for messages of any size."""
    covered = aggregation.min_cohort(silos)
    code = aggregation.code(covered, math.inf, Federation(1, silos, 1), NoMechanism())
    return Plan(round, tuple(range(silos)), None, (), covered, code, streams)
