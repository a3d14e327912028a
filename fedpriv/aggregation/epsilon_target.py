"""The noise with which a whole run costs a given epsilon (`accountant.target`).

The run's own accountant adds up the run's own events, those of its headline unit against its
headline observer. So what the run certifies is within the target, whatever the method, its grid and
its threat model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.calibrate import smallest_noise
from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import Event
from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline, tightest
from fedpriv.accountants.rdp import Rdp
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Plan
from fedpriv.util.installed import installed

KEY = "accountant.target"
TOLERANCE = 2e-5
"""Relative distance of the noise from the least, or of its epsilon from the target."""
DIGITS = 6
"""Significant digits of a noise multiplier; it is rounded up."""


def rounded_up(value: float, digits: int = DIGITS) -> float:
    """The smallest number with `digits` significant digits that is not below `value` > 0."""
    unit = digits - 1 - math.floor(math.log10(value))
    found = float(f"{value:.{digits - 1}e}")
    while found < value:
        found = round(found + 10.0**-unit, unit)
    return found


def noise_text(noise: Mapping[str, float]) -> str:
    """Noise multipliers by the names of queries, as text; none is rounded down."""
    up = {name: f"{rounded_up(value):g}" if value else "0" for name, value in noise.items()}
    if len(up) == 1:
        return next(iter(up.values()))
    return ", ".join(f"{value} ({name})" for name, value in up.items())


@dataclass(frozen=True)
class EpsilonTarget:
    """What a run may cost.

    accountant: adds the events up; its `target` is the largest epsilon.
    rounds: number of rounds that it pays for.
    """

    accountant: Accountant
    rounds: int

    def paid(self, algo: Algorithm, plan: Plan) -> int:
        """The rounds that happen: those asked for, or fewer where the records of one pass end."""
        return min(self.rounds, algo.last_round(plan.federation) or self.rounds)

    def noise(self, algo: Algorithm, plan_with: Callable[[float], Plan], *, start: float) -> float:
        """The least noise multiplier of a round's first query with which the run is within the
        target, rounded up to `DIGITS` digits.

        algo: the method.
        plan_with: the plan with a noise multiplier. Raises ConfigError if the noise does not fit.
        start: a guess, or 0.

        Raises ConfigError if no noise is enough.
        """
        target = self.accountant.target
        assert target is not None
        refusals: list[ConfigError] = []

        def spent(accountant: Accountant, noise: float) -> float:
            try:
                plan = plan_with(noise)
                return PlanCost(algo, plan).spent(accountant, self.paid(algo, plan))
            except ConfigError as refusal:  # noise that the grid of messages cannot hold
                refusals.append(refusal)
                return math.inf

        def own(noise: float) -> float:
            return spent(self.accountant, noise)

        try:
            near = start or self._rough(lambda z: spent(Rdp(self.accountant.delta), z), target)
            noise = smallest_noise(own, target, near=near, tolerance=TOLERANCE, close=TOLERANCE)
        except ConfigError as error:
            raise self._unreachable(algo, plan_with, refusals) from error
        found = rounded_up(noise)
        # Numerical epsilons are not monotone to the last digit.
        step = 10.0 ** (math.floor(math.log10(found)) + 1 - DIGITS)
        while own(found) > target:
            found = rounded_up(found + step)
            step *= 2
        return found

    def _rough(self, spent: Callable[[float], float], target: float) -> float | None:
        """A guess from Renyi divergences, which are fast; None where they give none."""
        try:
            return smallest_noise(spent, target, tolerance=0.02)
        except ConfigError:
            return None

    def _unreachable(
        self, algo: Algorithm, plan_with: Callable[[float], Plan], refusals: list[ConfigError]
    ) -> ConfigError:
        """The error for a target that no noise reaches, with the reason."""
        try:
            rows = PlanCost(algo, plan_with(1.0)).headline_rows(self.accountant, self.rounds)
        except ConfigError as refusal:
            return refusal
        reasons = [text for row in rows for text in row.assumptions if text.startswith("FAILS")]
        reasons += [str(refusal) for refusal in refusals[-1:]]
        why = reasons[0].removeprefix("FAILS: ") if reasons else "nothing is certified"
        observer = algo.headline_observer
        return ConfigError(
            KEY, f"{self.accountant.target:g}", f"no noise reaches it against the {observer}: {why}"
        )


@dataclass(frozen=True)
class SolvedTarget:
    """What the target of a run means.

    epsilon: the target.
    certified: what the run certifies, at most the target.
    delta: of both.
    unit: what they protect, such as "user".
    adjacency: of neighbouring data sets.
    observer: against whom.
    rounds: that they cover.
    noise: noise multiplier of each query of a round, by its name.
    """

    epsilon: float
    certified: float
    delta: float
    unit: str
    adjacency: str
    observer: str
    rounds: int
    noise: dict[str, float]

    @staticmethod
    def of(target: EpsilonTarget, algo: Algorithm, plan: Plan) -> SolvedTarget:
        """What `target` means for a plan that it made."""
        accountant = target.accountant
        assert accountant.target is not None
        rounds = target.paid(algo, plan)
        rows = PlanCost(algo, plan).headline_rows(accountant, rounds)
        observer = algo.headline_observer
        decisive = [row for row in rows if row.unit == "user"] or rows
        return SolvedTarget(
            accountant.target,
            headline(rows, observer),
            accountant.delta,
            _distinct(row.unit for row in decisive),
            _distinct(row.adjacency for row in decisive),
            observer,
            rounds,
            plan.noise_multipliers,
        )

    @property
    def noise_text(self) -> str:
        """The noise multipliers."""
        return noise_text(self.noise)

    @property
    def text(self) -> str:
        """One line for a reader."""
        return (
            f"{KEY}={self.epsilon:g}: noise {self.noise_text}; certified epsilon "
            f"{rounded_up(self.certified):g} at delta = {self.delta:g} after {self.rounds} rounds, "
            f"unit {self.unit} ({self.adjacency}), against the {self.observer}"
        )

    @property
    def meaning(self) -> str:
        """What is bounded, for several targets alike."""
        return f"{KEY} bounds: {self.observer}, {self.unit} ({self.adjacency})"


def beyond_target(rows: Iterable[EpsilonRow], target: SolvedTarget) -> list[str]:
    """A line for each observer and unit with a larger epsilon than the target, which bounds that of
    one observer and one unit.

    rows: of the last round.
    """
    beyond = [row for row in tightest(rows) if row.certified > target.epsilon]
    more = f"more than {KEY}={target.epsilon:g}"
    found = [
        f"Against the {row.observer}, a {row.protects} has "
        + (
            "no certified epsilon"
            if math.isinf(row.certified)
            else f"epsilon {row.certified:.4f}, {more}"
        )
        for row in beyond
    ]
    return list(dict.fromkeys(found))


def require_solvable(algo: Algorithm, accountant: Accountant, *, noisy: bool) -> None:
    """Raise ConfigError for settings in which a target has no meaning.

    noisy: whether the mechanism bounds and noises.
    """
    target = accountant.target
    if target is None:
        return
    require(noisy, KEY, f"{target:g}", "null: mechanism=none adds no noise")
    each = "null, because each group of users has its own (algo.budgets)"
    require(not algo.contributors.budgets, KEY, f"{target:g}", each)
    alone = f"null: {KEY}={target:g} is the limit of the run already"
    require(accountant.budget is None, "accountant.budget", accountant.budget, alone)


def _distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


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
        for number, times in self._rounds(after, until).items():
            events = self.events(number)
            ledger.record((event for event in events if observer in (None, event.observer)), times)

    def _rounds(self, after: int, until: int) -> dict[int, int]:
        """Rounds whose events stand for rounds after + 1 to `until`: how often."""
        if self.rounds_alike and list(self.events(1)) == list(self.events(until)):
            return {1: until - after}
        return dict.fromkeys(range(after + 1, until + 1), 1)

    def charges(self, after: int, until: int, *, unit: str | None = None) -> Counter[Charge]:
        """What queries of rounds after + 1 to `until` cost against the observer by which the run is
        known, equal charges counted.

        unit: count what concerns this unit only; None: any.
        """
        observer = self.algo.headline_observer
        found: Counter[tuple[Event, ...]] = Counter()
        for number, times in self._rounds(after, until).items():
            for query in self.algo.queries(number, self.plan):
                found[query.seen_by(observer, unit)] += times
        return Counter({Charge(observer, events): times for events, times in found.items()})

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
