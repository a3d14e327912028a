"""The privacy cost of a run, from its public plan. Needs no torch, and data only if the queries
depend on the allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.calibrate import MAX_ROUNDS, most_rounds
from fedpriv.accountants.events import Composition
from fedpriv.accountants.ledger import EpsilonRow, Key, Ledger
from fedpriv.accountants.rdp import Rdp
from fedpriv.aggregation.epsilon_target import PlanCost, SolvedTarget, noise_text
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError
from fedpriv.rounds.plan import Plan
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment


def with_solved_noise(exp: Experiment) -> Experiment:
    """The experiment without its `accountant.target`, and with the noise that is solved for it:
    whatever records replace its own, the noise is that of the run."""
    if exp.epsilon_target is None:
        return exp
    noise = EpsilonForecast.of(exp).plan.noise_multipliers
    return replace(exp, accountant=replace(exp.accountant, target=None), noise=noise)


def bounded(epsilon: float | None) -> float | None:
    """An epsilon for JSON, which knows no infinity; None for no bound and no claim."""
    return None if epsilon is None or math.isinf(epsilon) else epsilon


def milestones(rounds: int) -> list[int]:
    """1, 10, 100, ... and the last round."""
    steps = [10**power for power in range(len(str(rounds)))]
    return [step for step in steps if step < rounds] + [rounds]


@dataclass(frozen=True)
class EpsilonForecast:
    """The cost of an experiment.

    exp: the experiment.
    plan: its public plan, with its allocation if the queries depend on it.
    words: its overrides on a command line.
    repeated: round: attempts that a run has not recorded.
    tested: what its private scores cost test persons.
    """

    exp: Experiment
    plan: Plan
    words: tuple[str, ...] = ()
    repeated: Mapping[int, int] = field(default_factory=dict)
    tested: Sequence[EpsilonRow] = ()

    @staticmethod
    def of(
        exp: Experiment, words: tuple[str, ...] = (), repeated: Mapping[int, int] | None = None
    ) -> EpsilonForecast:
        """Reads data only when the queries depend on the allocation, or when the algorithm chooses
        its training records, which has a stability."""
        chooses = type(exp.algo).training_records is not Algorithm.training_records
        read = exp.algo.contributors.needs_sizes or chooses
        federation = allocate(exp)[2] if read else exp.federation
        return EpsilonForecast(exp, exp.planner.plan(federation), words, repeated or {})

    @property
    def noise(self) -> float:
        """The noise multiplier of the first query of a round."""
        return next(iter(self.plan.query_parameters.values())).mechanism.noise_multiplier

    @property
    def noise_text(self) -> str:
        """The noise multipliers of all queries of a round."""
        return noise_text(self.plan.noise_multipliers)

    @property
    def cost(self) -> PlanCost:
        """The events of the rounds."""
        return PlanCost(self.exp.algo, self.plan)

    def rows_at(self, rounds: list[int]) -> list[EpsilonRow]:
        """Epsilon rows after each of the given rounds (see `PlanCost.rows_at`)."""
        return self.cost.rows_at(self.exp.accountant, rounds, self.repeated)

    @cached_property
    def rows(self) -> list[EpsilonRow]:
        """Epsilons after 1, 10, 100, ... rounds and after the last one."""
        return self.rows_at(milestones(self.exp.options.rounds))

    @property
    def shown(self) -> list[EpsilonRow]:
        """What a reader is told: `rows`, and what test persons pay."""
        return [*self.rows, *self.tested]

    @property
    def last(self) -> list[EpsilonRow]:
        """Epsilons after the last round."""
        return [row for row in self.rows if row.round == self.exp.options.rounds]

    @property
    def unit(self) -> str:
        """What the headline epsilon protects: users if there is a certificate for users."""
        units = [row.unit for row in self.last]
        return "user" if "user" in units else units[0]

    def compositions(self) -> dict[Key, list[Composition]]:
        """What each unit meets in all rounds (see `Ledger.compositions`)."""
        ledger = Ledger(self.exp.accountant)
        self.cost.record(ledger, 0, self.exp.options.rounds)
        return ledger.compositions()

    def with_noise(self, noise: float) -> EpsilonForecast:
        """The forecast with another noise multiplier. The noise of different queries keeps its
        proportion, and grids are unchanged."""
        plan = self.plan
        before = self.noise
        if noise == before:
            return self
        if len(plan.query_parameters) == 1:
            planner = replace(self.exp.planner, mechanism=plan.mechanism.with_noise(noise))
            return replace(self, plan=planner.draft(plan.federation))
        scaled = {}
        for name, parameters in plan.query_parameters.items():
            own = noise * (parameters.mechanism.noise_multiplier / before if before else 1.0)
            scaled[name] = replace(parameters, mechanism=parameters.mechanism.with_noise(own))
        return replace(self, plan=replace(plan, query_parameters=scaled))

    def spent(self, accountant: Accountant, noise: float, rounds: int) -> float:
        """The headline epsilon after `rounds` rounds with noise multiplier `noise`."""
        return self.with_noise(noise).cost.spent(accountant, rounds)

    @cached_property
    def target(self) -> SolvedTarget | None:
        """What `accountant.target` means for this run; None without one."""
        target = self.exp.epsilon_target
        return SolvedTarget.of(target, self.exp.algo, self.plan) if target else None


def calibrations(forecast: EpsilonForecast, budget: float) -> list[str]:
    """Two lines: the number of rounds that fit within `budget`, and the noise with which all rounds
    fit, rounded up. `accountant.target` sets this noise."""
    exp = forecast.exp
    spent = forecast.spent
    sigma = forecast.noise
    rounds = exp.options.rounds
    rough = Rdp(exp.accountant.delta)  # fast, and close enough for a first guess
    # The search records every round whose plan differs, so it stops at the planned rounds.
    limit = MAX_ROUNDS if forecast.cost.rounds_alike else rounds
    guess = most_rounds(lambda n: spent(rough, sigma, n), budget, limit=limit)
    most = most_rounds(lambda n: spent(exp.accountant, sigma, n), budget, near=guess, limit=limit)
    lines = [f"epsilon {budget:g}: {'at least ' * (most == limit)}{most} rounds at noise {sigma:g}"]
    try:
        least = _solved(exp, budget)
        lines.append(
            f"epsilon {budget:g}: {rounds} rounds at noise {least.noise_text} "
            f"(accountant.target={budget:g})"
        )
    except ConfigError as error:
        lines.append(
            f"epsilon {budget:g}: no noise multiplier is enough for {rounds} rounds ({error})"
        )
    return lines


def _solved(exp: Experiment, epsilon: float) -> SolvedTarget:
    """The noise with which the experiment costs `epsilon`. Raises ConfigError where there is
    none."""
    accountant = replace(exp.accountant, budget=None, target=epsilon)
    found = EpsilonForecast.of(replace(exp, accountant=accountant)).target
    assert found is not None
    return found
