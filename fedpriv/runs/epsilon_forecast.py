"""`fedpriv epsilon`: what a run would cost, from its plans alone. No data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.calibrate import MAX_ROUNDS, most_rounds, smallest_noise
from fedpriv.accountants.events import Composition
from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.settings.experiment import Experiment


def milestones(rounds: int) -> list[int]:
    """1, 10, 100, ... and the last round."""
    steps = [10**power for power in range(len(str(rounds)))]
    return [step for step in steps if step < rounds] + [rounds]


@dataclass(frozen=True)
class EpsilonForecast:
    """An experiment's queries without its data: the federation is as much of it as they need."""

    exp: Experiment
    federation: Federation
    plan: Plan

    @staticmethod
    def of(exp: Experiment) -> EpsilonForecast:
        """Data are read only when queries depend on their allocation."""
        federation = exp.federation
        if exp.algo.queries_need_allocation:
            from fedpriv.runtime import allocate

            _, _, federation = allocate(exp)
        return EpsilonForecast(exp, federation, exp.planner.plan(federation))

    @property
    def noise(self) -> float:
        """The noise multiplier of a round's first kind of query."""
        return next(iter(self.plan.channels.values())).mechanism.noise_multiplier

    def record(
        self, ledger: Ledger, plan: Plan, after: int, until: int, *, observer: str | None = None
    ) -> None:
        """Add the events of the rounds after + 1 to `until`; of one observer only, if it is
        named.
        """
        alike = self.exp.algo.rounds_alike
        rounds, times = ((1,), until - after) if alike else (range(after + 1, until + 1), 1)
        for number in rounds:
            queries = self.exp.algo.queries(number, plan)
            events = (event for query in queries for event in query.events)
            ledger.record((event for event in events if observer in (None, event.observer)), times)

    def rows_at(
        self, rounds: list[int], again: Mapping[int, int] | None = None
    ) -> list[EpsilonRow]:
        """Epsilon rows after each of the given rounds, ascending.

        again: how often more than once rounds were begun; as in a run, all of it is charged from
            the start.
        """
        ledger = Ledger(self.exp.accountant)
        rows = []
        done = 0
        for past, times in (again or {}).items():
            events = (
                event for query in self.exp.algo.queries(past, self.plan) for event in query.events
            )
            ledger.record(events, times)
        for number in rounds:
            self.record(ledger, self.plan, done, number)
            rows += ledger.rows(number)
            done = number
        return rows

    def compositions(self) -> dict[tuple[str, str, str, int], list[Composition]]:
        """What each unit meets in all rounds (see `Ledger.compositions`)."""
        ledger = Ledger(self.exp.accountant)
        self.record(ledger, self.plan, 0, self.exp.options.rounds)
        return ledger.compositions()

    def with_noise(self, noise: float) -> EpsilonForecast:
        """The same with another noise multiplier; kinds of queries keep their proportion, and the
        grids that they have."""
        plan = self.plan
        before = self.noise
        if noise == before:
            return self
        if len(plan.channels) == 1:
            given = replace(self.exp.planner, mechanism=plan.mechanism.with_noise(noise))
            return replace(self, plan=given.draft(self.federation))
        scaled = {}
        for name, channel in plan.channels.items():
            own = noise * (channel.mechanism.noise_multiplier / before if before else 1.0)
            scaled[name] = replace(channel, mechanism=channel.mechanism.with_noise(own))
        return replace(self, plan=replace(plan, channels=scaled))

    def spent(self, accountant: Accountant, noise: float, rounds: int) -> float:
        """The headline epsilon of so many rounds with this noise multiplier."""
        ledger = Ledger(accountant)
        observer = self.exp.algo.headline_observer
        self.record(ledger, self.with_noise(noise).plan, 0, rounds, observer=observer)
        return headline(ledger.rows(rounds), observer)


def calibrations(planned: EpsilonForecast, budget: float) -> list[str]:
    """How many rounds fit within `budget`, and how much noise makes the planned rounds fit: one
    line each."""
    exp = planned.exp
    spent = planned.spent
    sigma = planned.noise
    rounds = exp.options.rounds
    rough = Rdp(exp.accountant.delta)  # instant, and near enough for a guess
    # Plans that differ are walked one by one, so nobody asks beyond the planned rounds.
    limit = MAX_ROUNDS if exp.algo.rounds_alike else rounds
    guess = most_rounds(lambda n: spent(rough, sigma, n), budget, limit=limit)
    most = most_rounds(lambda n: spent(exp.accountant, sigma, n), budget, near=guess, limit=limit)
    lines = [f"epsilon {budget:g}: {'at least ' * (most == limit)}{most} rounds at noise {sigma:g}"]
    try:
        near = smallest_noise(lambda z: spent(rough, z, rounds), budget)
        least = smallest_noise(lambda z: spent(exp.accountant, z, rounds), budget, near=near)
        lines.append(f"epsilon {budget:g}: {rounds} rounds at noise {least:.4g}")
    except ConfigError:  # no noise is enough, or this mechanism has none
        lines.append(f"epsilon {budget:g}: no noise multiplier makes {rounds} rounds fit")
    return lines


def show(args: list[str]) -> None:
    """Print the table of every job that the words stand for, and what each observer's epsilons rest
    on."""
    from rich.console import Console

    from fedpriv.accountants.table import epsilon_table
    from fedpriv.runs.stored_config import rounds_repeated, stored_config
    from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
    from fedpriv.settings.experiment import build
    from fedpriv.settings.help import conf_dir

    line = CommandLine.parse(args)
    console = Console(soft_wrap=True, highlight=False)
    jobs = compose_jobs(line, conf_dir())
    for config in jobs:
        folder = config.resume
        exp = build(
            without_hydra(config) if folder is None else stored_config(line, str(folder), len(jobs))
        )
        again = (
            {} if folder is None else rounds_repeated(Path(str(folder)), system=exp.streams.system)
        )
        if line.multirun:
            console.print(" ".join(config.hydra.overrides.task))
        planned = EpsilonForecast.of(exp)
        rows = planned.rows_at(milestones(exp.options.rounds), again)
        console.print(epsilon_table(rows, exp.accountant.delta))
        if again:
            console.print(
                f"{sum(again.values())} rounds were begun again after an interruption and are "
                "charged"
            )
        for about, texts in {
            f"{row.observer}, {row.unit}": row.assumptions for row in rows
        }.items():
            console.print(f"{about}: {'; '.join(texts)}")
        if exp.accountant.budget is not None:
            console.print("\n".join(calibrations(planned, exp.accountant.budget)))
