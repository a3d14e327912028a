"""Kills, partitions, delays and restarts: every round whose cohort is there has its sum, no sum is
wrong, and no silo says anything uncharged. Who is back takes part again, without a person."""

import random

import pytest
from fault_schedules import ends_in_time

from fedpriv.runtime.set_ups import AGAIN
from fedpriv.testing.deaths import Death
from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import delay, drop
from scripts.fault_scenarios import SCENARIOS, STATEFUL, Scenario

LAST = 9
"""The last exchange in which anything happens."""
ROUNDS = range(1, LAST + AGAIN + 2)
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


def incident(rng, helpers, silos):
    """(party, exchanges in which it is not there, what happens)."""
    what = rng.choice(["kill", "kill", "partition", "delay"])
    party = rng.choice(helpers) if helpers and rng.random() < 0.15 else rng.choice(silos)
    first = rng.randint(0, LAST - 1)
    span = range(first, rng.randint(first + 1, LAST + 1))
    if what == "kill":
        back = rng.choice([first + 1, span.stop, span.stop, None if party in silos else span.stop])
        death = Death(party, first, rng.randint(0, 6), back)
        return party, range(first, 10**6 if back is None else back), [death]
    if what == "delay":
        late = rng.randint(1, 4)
        return party, span, [delay(late, exchange=number, sender=party) for number in span]
    ways = ({"sender": party}, {"receiver": party})
    return party, span, [drop(exchange=number, **way) for number in span for way in ways]


def rounds_of(bench, gone):
    """Rounds until all has happened, and everybody is back who can be."""
    for number in ROUNDS:
        yield number
        standing = bench.prepared.standing
        if bench.prepared.session.exchange > LAST and standing.ready and standing.absent <= gone:
            return


class Oracle:
    """What has to have a sum, by what happens to whom.

    away: (party, exchanges in which it is not there, or not in time).
    """

    def __init__(self, prepared, incidents):
        self.settings = prepared.settings
        self.helpers = prepared.aggregation.helpers
        self.whole = bool(self.settings.sized_for(prepared.silos[:-1]) != prepared.settings.silos)
        self.counted = prepared.settings.algo.contributors.weighting.needs_counts
        self.least = prepared.aggregation.fewest or self.settings.cohort
        self.away = [(party, span) for party, span, _ in incidents]

    def there(self, names, exchanges):
        return frozenset(
            name
            for name in names
            if not any(
                party == name and number in span
                for party, span in self.away
                for number in exchanges
            )
        )

    def require_sums(self, trial, stateful):
        """Every round whose cohort is there, from its first set-up to its sum, has a sum."""
        silos = frozenset(self.settings.silos)
        sums = {success.round for success in trial.successes}
        heard, owed = frozenset(), 0
        for round, exchanges in trial.exchanges.items():
            helped = self.there(self.helpers, exchanges) == set(self.helpers)
            there = self.there(silos, exchanges)
            if not helped:
                heard = frozenset()
            present = trial.present.get(round, silos)
            known = not self.counted or heard | there == silos
            if len(exchanges) > 1 or round not in trial.present:
                assert there <= present  # a set-up takes in everybody who is there
            enough = len(present & there) >= self.least and known
            if round and round in trial.present:
                asked = self.there(present, exchanges[-1:])
                needs_all = self.whole or stateful
                enough = enough and (asked == present or not needs_all)
            if helped and enough:
                owed += 1
                assert round in sums or round == 0, (round, trial.aborts.get(round))
                heard |= present
        return owed


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
                trial = bench.run(faults, rounds_of(bench, gone), deaths)
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
