"""`fedpriv epsilon`: the privacy cost of a run, from its public plan. Needs no torch, and data only
if the queries depend on the allocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.calibrate import MAX_ROUNDS, most_rounds, smallest_noise
from fedpriv.accountants.events import Composition, Event
from fedpriv.accountants.ledger import EpsilonRow, Key, Ledger, headline
from fedpriv.accountants.rdp import Rdp
from fedpriv.accountants.table import epsilon_table
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.runs.progress import CHARGED_TWICE
from fedpriv.runs.stored_config import rounds_repeated, stored_experiment
from fedpriv.runtime import allocate
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.help import conf_dir


def milestones(rounds: int) -> list[int]:
    """1, 10, 100, ... and the last round."""
    steps = [10**power for power in range(len(str(rounds)))]
    return [step for step in steps if step < rounds] + [rounds]


@dataclass(frozen=True)
class EpsilonForecast:
    """The cost of an experiment.

    exp: the experiment.
    federation: its public sizes, and its allocation if the queries depend on it.
    plan: its public plan.
    """

    exp: Experiment
    federation: Federation
    plan: Plan

    @staticmethod
    def of(exp: Experiment) -> EpsilonForecast:
        """Reads data only when the queries depend on the allocation, or when the algorithm chooses
        its training records, which has a stability."""
        chooses = type(exp.algo).training_records is not Algorithm.training_records
        read = exp.algo.queries_need_allocation or chooses
        federation = allocate(exp)[2] if read else exp.federation
        return EpsilonForecast(exp, federation, exp.planner.plan(federation))

    @property
    def noise(self) -> float:
        """The noise multiplier of the first query of a round."""
        return next(iter(self.plan.query_parameters.values())).mechanism.noise_multiplier

    def events(self, number: int) -> Iterable[Event]:
        """The privacy events of round `number`."""
        return (e for query in self.exp.algo.queries(number, self.plan) for e in query.events)

    def record(
        self, ledger: Ledger, after: int, until: int, *, observer: str | None = None
    ) -> None:
        """Add the events of rounds after + 1 to `until` to the ledger.

        observer: add the events of this observer only.
        """
        # The method's word, which its last round can refute.
        alike = self.exp.rounds_alike and list(self.events(1)) == list(self.events(until))
        rounds, times = ((1,), until - after) if alike else (range(after + 1, until + 1), 1)
        for number in rounds:
            events = self.events(number)
            ledger.record((event for event in events if observer in (None, event.observer)), times)

    def rows_at(
        self, rounds: list[int], repeated: Mapping[int, int] | None = None
    ) -> list[EpsilonRow]:
        """Epsilon rows after each of the given rounds, in ascending order.

        repeated: round: attempts that the run has not recorded. As in a run, they are charged from
            the start.
        """
        ledger = Ledger(self.exp.accountant)
        for past, times in (repeated or {}).items():
            ledger.record(self.events(past), times)
        rows = []
        completed = 0
        for number in rounds:
            self.record(ledger, completed, number)
            rows += ledger.rows(number)
            completed = number
        return rows

    def compositions(self) -> dict[Key, list[Composition]]:
        """What each unit meets in all rounds (see `Ledger.compositions`)."""
        ledger = Ledger(self.exp.accountant)
        self.record(ledger, 0, self.exp.options.rounds)
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
            return replace(self, plan=planner.draft(self.federation))
        scaled = {}
        for name, parameters in plan.query_parameters.items():
            own = noise * (parameters.mechanism.noise_multiplier / before if before else 1.0)
            scaled[name] = replace(parameters, mechanism=parameters.mechanism.with_noise(own))
        return replace(self, plan=replace(plan, query_parameters=scaled))

    def spent(self, accountant: Accountant, noise: float, rounds: int) -> float:
        """The headline epsilon after `rounds` rounds with noise multiplier `noise`."""
        ledger = Ledger(accountant)
        observer = self.exp.algo.headline_observer
        self.with_noise(noise).record(ledger, 0, rounds, observer=observer)
        return headline(ledger.rows(rounds), observer)


def calibrations(forecast: EpsilonForecast, budget: float) -> list[str]:
    """Two lines: the number of rounds that fit within `budget`, and the noise with which all rounds
    fit."""
    exp = forecast.exp
    spent = forecast.spent
    sigma = forecast.noise
    rounds = exp.options.rounds
    rough = Rdp(exp.accountant.delta)  # fast, and close enough for a first guess
    # The search records every round whose plan differs, so it stops at the planned rounds.
    limit = MAX_ROUNDS if exp.rounds_alike else rounds
    guess = most_rounds(lambda n: spent(rough, sigma, n), budget, limit=limit)
    most = most_rounds(lambda n: spent(exp.accountant, sigma, n), budget, near=guess, limit=limit)
    lines = [f"epsilon {budget:g}: {'at least ' * (most == limit)}{most} rounds at noise {sigma:g}"]
    try:
        near = smallest_noise(lambda z: spent(rough, z, rounds), budget)
        least = smallest_noise(lambda z: spent(exp.accountant, z, rounds), budget, near=near)
        lines.append(f"epsilon {budget:g}: {rounds} rounds at noise {least:.4g}")
    except ConfigError:  # no noise is enough, or the mechanism has none
        lines.append(f"epsilon {budget:g}: no noise multiplier is enough for {rounds} rounds")
    return lines


def show(args: list[str]) -> None:
    """Print the epsilon table of every job of a command line, with the assumptions of each row."""
    line = CommandLine.parse(args)
    console = Console(soft_wrap=True, highlight=False)
    jobs = compose_jobs(line, conf_dir())
    for config in jobs:
        repeated: dict[int, int] = {}
        if config.resume is None:
            exp = build(config)
        else:
            folder = str(config.resume)
            exp, _ = stored_experiment(line, folder, len(jobs))
            repeated = rounds_repeated(Path(folder), system=exp.options.system)
        if line.multirun:
            console.print(" ".join(config.hydra.overrides.task))
        forecast = EpsilonForecast.of(exp)
        rows = forecast.rows_at(milestones(exp.options.rounds), repeated)
        console.print(epsilon_table(rows, exp.accountant.delta))
        if repeated:
            console.print(CHARGED_TWICE.format(sum(repeated.values())))
        for row in {(row.observer, row.unit): row for row in rows}.values():
            console.print(f"{row.observer}, {row.unit}: {'; '.join(row.assumptions)}")
        for text in (*exp.data.not_covered, *exp.allocator.not_covered):
            console.print(f"not covered: {text}")
        if exp.accountant.budget is not None:
            console.print("\n".join(calibrations(forecast, exp.accountant.budget)))
