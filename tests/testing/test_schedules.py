"""Runs under random drops, delays and repetitions, in set-ups too: no wrong sum, no hang, no
undeclared exception."""

import importlib.util

import pytest
from fault_schedules import bench, check, schedules
from hypothesis import HealthCheck, given, settings

from fedpriv.testing.faults import drop, duplicate
from scripts.fault_scenarios import SCENARIOS

SLOW = {"oblivious": 0.02, "admm": 0.1, "shuffle": 0.2}
"""Where a life is long, a share of the schedules."""
FAST = {world: max(1, round(20 * SLOW.get(world, 1))) for world in SCENARIOS}
"""Schedules in every run of the tests; twenty thousand in the slow ones."""
MANY = {world: round(2200 * SLOW.get(world, 1)) for world in SCENARIOS}
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def run_schedules(world, count, engine=None):
    with bench(world, engine) as parties:

        @settings(max_examples=count, **PATIENT)
        @given(schedules)
        def every(schedule):
            check(parties, schedule)

        every()


@pytest.mark.parametrize(
    ("world", "count"),
    [
        *FAST.items(),
        *(pytest.param(*many, marks=pytest.mark.slow) for many in MANY.items()),
    ],
)
def test_no_schedule_leads_to_a_wrong_sum(world, count):
    run_schedules(world, count)


def test_a_party_that_waits_for_one_thing_after_another_in_silence_ends():
    """Nobody is told who is in the sum, and a repeated letter keeps the server from ending in the
    same step."""
    nobody = {"exchange": None, "step": 2, "sender": None, "receiver": None}
    again = {"exchange": None, "step": None, "sender": None, "receiver": "server"}
    with bench("plain_state") as parties:
        check(parties, [(drop, (), nobody), (duplicate, (), again)])


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
@pytest.mark.parametrize("world", ["secagg", "masked_state"])
def test_no_schedule_leads_to_a_wrong_sum_over_ray(world):
    run_schedules(world, 15, engine="ray")
