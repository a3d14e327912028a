"""What happens to parties for a while, and which rounds must have a sum all the same."""

from fedpriv.runtime.set_ups import AGAIN
from fedpriv.testing.deaths import Death
from fedpriv.testing.faults import delay, drop

YEARS = 10**17
"""Nanoseconds of three years."""
LAST = 9
"""The last exchange in which anything happens."""
ROUNDS = range(1, LAST + AGAIN + 2)


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


def rounds_of(bench, gone, jump):
    """Rounds until all has happened, and everybody is back who can be.

    jump: the round before which the coordinator's clock jumps years ahead, and back after a set-up.
    """
    for number in ROUNDS:
        standing = bench.prepared.standing
        if number == jump:
            ahead = int.from_bytes(standing.session_name[:8], "big") + YEARS
            standing.session_name = ahead.to_bytes(8, "big") + standing.session_name[8:]
        yield number
        if (
            len(bench.prepared.session.network.sent) > LAST + 1
            and standing.ready
            and standing.absent <= gone
        ):
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
                # A set-up takes in everybody who is there.
                assert there <= present, (round, exchanges, there - present, self.away)
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
