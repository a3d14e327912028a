"""`fedpriv epsilon`: what a run would cost, from its plans alone. No data, no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.calibrate import most_rounds, smallest_noise
from fedpriv.accountants.events import Event
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


def settled(exp: Experiment) -> tuple[Algorithm, Federation]:
    """The algorithm and the sizes that plans are made of; data are read only when plans depend on their allocation."""
    if not exp.algo.plans_from_allocation:
        return exp.algo, exp.federation
    from fedpriv.simulation import allocate

    _, _, algo, federation = allocate(exp)
    return algo, federation


def rows_at(ledger: Ledger, events: tuple[Event, ...], rounds: list[int]) -> list[EpsilonRow]:
    """Epsilon rows after each of the given rounds, ascending, when every round shows the same `events`."""
    rows, done = [], 0
    for round in rounds:
        ledger.record(events, round - done)
        rows += ledger.rows(round)
        done = round
    return rows


def calibrations(exp: Experiment, events: Callable[[Mechanism], tuple[Event, ...]], budget: float) -> list[str]:
    """How many rounds fit within `budget`, and how much noise makes the planned rounds fit: one line each."""
    sigma, rounds = exp.mechanism.noise_multiplier, exp.options.rounds

    def spent(accountant: Accountant, noise: float, rounds: int) -> float:
        mechanism = exp.mechanism if noise == sigma else replace(exp.mechanism, noise_multiplier=noise)
        ledger = Ledger(accountant)
        ledger.record((event for event in events(mechanism) if event.observer == "released model"), rounds)
        return headline(ledger.rows(rounds))

    rough = Rdp(exp.accountant.delta)  # instant, and near enough for a guess
    guess = most_rounds(lambda n: spent(rough, sigma, n), budget)
    most = most_rounds(lambda n: spent(exp.accountant, sigma, n), budget, near=guess)
    lines = [f"epsilon {budget:g}: {most} rounds at noise {sigma:g}"]
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
        algo, federation = settled(exp)

        def events(mechanism: Mechanism, exp=exp, algo=algo, federation=federation) -> tuple[Event, ...]:
            return algo.plan(1, federation, mechanism, exp.aggregation, exp.streams).events

        rows = rows_at(Ledger(exp.accountant), events(exp.mechanism), milestones(exp.options.rounds))
        console.print(epsilon_table(rows, exp.accountant.delta))
        for about, texts in {f"{row.observer}, {row.unit}": row.assumptions for row in rows}.items():
            console.print(f"{about}: {'; '.join(texts)}")
        if exp.accountant.budget is not None:
            console.print("\n".join(calibrations(exp, events, exp.accountant.budget)))
