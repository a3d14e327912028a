"""`fedpriv epsilon`: what a run would cost, from its plans alone. No data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.calibrate import MOST_ROUNDS, most_rounds, smallest_noise
from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline
from fedpriv.accountants.rdp import Rdp
from fedpriv.algorithms.base import Algorithm, Federation
from fedpriv.config import Experiment
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.base import Mechanism


def milestones(rounds: int) -> list[int]:
    """1, 10, 100, ... and the last round."""
    steps = [10**power for power in range(len(str(rounds)))]
    return [step for step in steps if step < rounds] + [rounds]


@dataclass(frozen=True)
class Planned:
    """An experiment's plans without its data, and the sizes that they are made of."""

    exp: Experiment
    algo: Algorithm
    federation: Federation

    @staticmethod
    def of(exp: Experiment) -> Planned:
        """Settle the algorithm; data are read only when plans depend on their allocation."""
        algo, federation = exp.algo, exp.federation
        if algo.plans_from_allocation:
            from fedpriv.simulation import allocate

            _, _, algo, federation = allocate(exp)
        mechanism = algo.calibrated(exp.mechanism, federation, exp.aggregation, exp.streams)
        return Planned(replace(exp, mechanism=mechanism), algo, federation)

    def record(self, ledger: Ledger, mechanism: Mechanism, after: int, until: int, observer: str | None = None) -> None:
        """Add the events of the rounds after + 1 to `until`; of one observer only, if it is named."""
        alike = self.algo.plans_alike
        rounds, times = ((1,), until - after) if alike else (range(after + 1, until + 1), 1)
        for round in rounds:
            plan = self.algo.plan(round, self.federation, mechanism, self.exp.aggregation, self.exp.streams)
            ledger.record((event for event in plan.events if observer in (None, event.observer)), times)

    def rows_at(self, rounds: list[int]) -> list[EpsilonRow]:
        """Epsilon rows after each of the given rounds, ascending."""
        ledger, rows, done = Ledger(self.exp.accountant), [], 0
        for round in rounds:
            self.record(ledger, self.exp.mechanism, done, round)
            rows += ledger.rows(round)
            done = round
        return rows

    def spent(self, accountant: Accountant, noise: float, rounds: int) -> float:
        """The headline epsilon of so many rounds with this noise multiplier."""
        own = self.exp.mechanism
        mechanism = own if noise == own.noise_multiplier else replace(own, noise_multiplier=noise)
        ledger = Ledger(accountant)
        self.record(ledger, mechanism, 0, rounds, "released model")
        return headline(ledger.rows(rounds))


def calibrations(planned: Planned, budget: float) -> list[str]:
    """How many rounds fit within `budget`, and how much noise makes the planned rounds fit: one line each."""
    exp, spent = planned.exp, planned.spent
    sigma, rounds = exp.mechanism.noise_multiplier, exp.options.rounds
    rough = Rdp(exp.accountant.delta)  # instant, and near enough for a guess
    # Plans that differ are walked one by one, so nobody asks beyond the planned rounds.
    limit = MOST_ROUNDS if planned.algo.plans_alike else rounds
    guess = most_rounds(lambda n: spent(rough, sigma, n), budget, limit=limit)
    most = most_rounds(lambda n: spent(exp.accountant, sigma, n), budget, near=guess, limit=limit)
    lines = [f"epsilon {budget:g}: {'at least ' * (most == limit)}{most} rounds at noise {sigma:g}"]
    try:
        near = smallest_noise(lambda z: spent(rough, z, rounds), budget)
        least = smallest_noise(lambda z: spent(exp.accountant, z, rounds), budget, near=near)
        lines.append(f"epsilon {budget:g}: {rounds} rounds at noise {least:.4g}")
    except (ConfigError, TypeError):  # no noise is enough, or this mechanism has none
        lines.append(f"epsilon {budget:g}: no noise multiplier makes {rounds} rounds fit")
    return lines


def show(args: list[str]) -> None:
    """Print the table of every job that the words stand for, and what each observer's epsilons rest on."""
    from rich.console import Console

    from fedpriv.accountants.table import epsilon_table
    from fedpriv.compose import Words, compose_jobs, own
    from fedpriv.config import build
    from fedpriv.help import conf_dir

    words = Words.parse(args)
    console = Console(soft_wrap=True, highlight=False)
    for config in compose_jobs(words, conf_dir()):
        exp = build(own(config))
        if words.multirun:
            console.print(" ".join(config.hydra.overrides.task))
        planned = Planned.of(exp)
        rows = planned.rows_at(milestones(exp.options.rounds))
        console.print(epsilon_table(rows, exp.accountant.delta))
        for about, texts in {f"{row.observer}, {row.unit}": row.assumptions for row in rows}.items():
            console.print(f"{about}: {'; '.join(texts)}")
        if exp.accountant.budget is not None:
            console.print("\n".join(calibrations(planned, exp.accountant.budget)))
