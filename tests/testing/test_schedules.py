"""Runs under random drops, delays and repetitions, in set-ups too: no wrong sum, no hang, no undeclared exception."""

import importlib.util

import pytest
from fault_schedules import bench, check, schedules
from hypothesis import HealthCheck, given, settings

from fedpriv.testing.fault_worlds import WORLDS

SLOW = {"oblivious": 0.02, "admm": 0.1, "shuffle": 0.2}
"""Where a life is long, a share of the schedules."""
FAST = {world: round(30 * SLOW.get(world, 1)) for world in WORLDS}
"""Schedules in every run of the tests; twenty thousand in the slow ones."""
MANY = {world: round(2200 * SLOW.get(world, 1)) for world in WORLDS}
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def run_schedules(world, count, engine=None):
    with bench(world, engine) as parties:

        @settings(max_examples=count, **PATIENT)
        @given(schedules)
        def every(schedule):
            check(parties, schedule)

        every()


@pytest.mark.parametrize("world", FAST)
def test_no_schedule_leads_to_a_wrong_sum(world):
    run_schedules(world, FAST[world])


@pytest.mark.slow
@pytest.mark.parametrize("world", MANY)
def test_none_of_many_schedules_leads_to_a_wrong_sum(world):
    run_schedules(world, MANY[world])


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
@pytest.mark.parametrize("world", ["secagg", "masked_state"])
def test_no_schedule_leads_to_a_wrong_sum_over_ray(world):
    run_schedules(world, 15, engine="ray")
