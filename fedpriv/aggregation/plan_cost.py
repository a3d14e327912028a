"""What a plan costs: the events of its rounds, and their epsilons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import Event
from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline
from fedpriv.algorithms.base import Algorithm
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Plan
from fedpriv.util.installed import installed


def rounds_alike(algo: Algorithm, mechanisms: Iterable[Mechanism]) -> bool:
    """Whether the queries of all rounds may have the same events: a method of the framework says
    so, and no message repeats earlier ones. The word of others is not taken: it is the base class's
    where they say nothing, and two rounds that are alike tell nothing of those between them."""
    alike = installed(algo) and algo.rounds_alike
    return alike and all(mechanism.mixing is None for mechanism in mechanisms)


@dataclass(frozen=True)
class PlanCost:
    """The cost of a method's rounds.

    algo: the method.
    plan: its public plan.
    """

    algo: Algorithm
    plan: Plan

    @property
    def rounds_alike(self) -> bool:
        """See the function."""
        mechanisms = (one.mechanism for one in self.plan.query_parameters.values())
        return rounds_alike(self.algo, mechanisms)

    def events(self, number: int) -> Iterable[Event]:
        """The privacy events of round `number`."""
        return (e for query in self.algo.queries(number, self.plan) for e in query.events)

    def record(
        self, ledger: Ledger, after: int, until: int, *, observer: str | None = None
    ) -> None:
        """Add the events of rounds after + 1 to `until` to the ledger.

        observer: add the events of this observer only.
        """
        alike = self.rounds_alike and list(self.events(1)) == list(self.events(until))
        rounds, times = ((1,), until - after) if alike else (range(after + 1, until + 1), 1)
        for number in rounds:
            events = self.events(number)
            ledger.record((event for event in events if observer in (None, event.observer)), times)

    def rows_at(
        self,
        accountant: Accountant,
        rounds: list[int],
        repeated: Mapping[int, int] | None = None,
    ) -> list[EpsilonRow]:
        """Epsilon rows after each of the given rounds, in ascending order.

        repeated: round: attempts that the run has not recorded. As in a run, they are charged from
            the start.
        """
        ledger = Ledger(accountant)
        for past, times in (repeated or {}).items():
            ledger.record(self.events(past), times)
        rows = []
        completed = 0
        for number in rounds:
            self.record(ledger, completed, number)
            rows += ledger.rows(number)
            completed = number
        return rows

    def headline_rows(self, accountant: Accountant, rounds: int) -> list[EpsilonRow]:
        """The rows after `rounds` rounds against the observer by which the run is known."""
        ledger = Ledger(accountant)
        self.record(ledger, 0, rounds, observer=self.algo.headline_observer)
        return ledger.rows(rounds)

    def spent(self, accountant: Accountant, rounds: int) -> float:
        """The headline epsilon after `rounds` rounds."""
        return headline(self.headline_rows(accountant, rounds), self.algo.headline_observer)
