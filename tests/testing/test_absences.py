"""Kills, partitions, delays, restarts and jumps of the clock: every round whose cohort is there has
its sum, no sum is wrong, and no silo says anything uncharged. Who is back takes part again, without
a person."""

import random

import pytest
from absences import ROUNDS, Oracle, incident, rounds_of
from fault_schedules import ends_in_time

from fedpriv.testing.deaths import Death
from fedpriv.testing.fault_trials import FaultTrials
from scripts.fault_scenarios import SCENARIOS, STATEFUL, Scenario

SHARES = {"private": 0.3, "shuffle": 0.3, "admm": 0.1, "admm_left": 0.1, "exact": 2, "secagg": 2}
"""Trials of a scenario, where a trial is long or tells more."""
WORLDS = {name: SCENARIOS[name] for name in SCENARIOS if name != "oblivious"} | {
    "kept_optimizer": STATEFUL["kept_optimizer"],
    "admm_left": Scenario(
        "admm, 5 to 9 peers",
        "aggregation=admm allocator.n_silos=9 aggregation.least_peers=5 aggregation.preset=null "
        "aggregation.iterations=4 aggregation.beyond_safe=true algo=uldp_avg",
    ),
}
MORE = {"shuffle": ("algo.batch_size=2", "rounds=18")}
"""Settings beside a scenario's own; its records are enough for so many rounds."""


def trials(world, count, first=0):
    """Run so many schedules. Returns how many rounds had to have a sum."""
    owed = 0
    with FaultTrials(WORLDS[world].experiment(*MORE.get(world, ("rounds=18",)))) as bench:
        prepared = bench.prepared
        stateful = prepared.queries(1)[0].asked.stateful
        for number in range(first, first + count):
            rng = random.Random(f"{world} {number}")
            helpers, silos = prepared.aggregation.helpers, prepared.settings.silos
            incidents = [incident(rng, helpers, silos) for _ in range(rng.randint(1, 3))]
            happening = [one for *_, ones in incidents for one in ones]
            deaths = [one for one in happening if isinstance(one, Death)]
            faults = [one for one in happening if not isinstance(one, Death)]
            gone = {death.party for death in deaths if death.back is None}
            with ends_in_time():
                jump = random.Random(number).choice(ROUNDS)
                trial = bench.run(faults, rounds_of(bench, gone, jump), deaths)
            told = number, incidents, trial.aborts
            assert trial.crash is None, told
            assert not trial.uncharged, told
            oracle = Oracle(prepared, incidents)
            owed += oracle.require_sums(trial, stateful)
            last = max(trial.exchanges)
            if not gone or last in trial.present:  # else a sum needs who is gone
                assert trial.heard[last] >= set(silos) - gone, told
            assert bench.is_correct(trial), told
    return owed


@pytest.mark.filterwarnings("ignore:round .* continuing without")
@pytest.mark.parametrize("world", ["secagg", "secagg_state", "exact", "masked", "admm_masked"])
def test_whoever_is_away_no_round_of_a_cohort_is_lost(world):
    assert trials(world, 2, first=1007)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:round .* continuing without")
@pytest.mark.parametrize("world", WORLDS)
def test_in_none_of_many_schedules_is_a_round_of_a_cohort_lost(world):
    assert trials(world, round(57 * SHARES.get(world, 1)), first=1000)
