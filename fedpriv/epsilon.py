"""`fedpriv epsilon`: what a run would cost, from its plans alone. No data, no torch."""

from __future__ import annotations

from fedpriv.accountants.events import Event
from fedpriv.accountants.ledger import EpsilonRow, Ledger
from fedpriv.config import Experiment


def milestones(rounds: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... and the last round."""
    steps = [base * 10**power for power in range(len(str(rounds))) for base in (1, 2, 5)]
    return [step for step in steps if step < rounds] + [rounds]


def first_events(exp: Experiment) -> tuple[Event, ...]:
    """What the first round would show to whom; the data are read only when the plan depends on their allocation."""
    algo, federation = exp.algo, exp.federation
    if algo.plans_from_allocation:
        from fedpriv.simulation import allocate

        _, _, algo, federation = allocate(exp)
    return algo.plan(1, federation, exp.mechanism, exp.aggregation, exp.streams).events


def rows_at(ledger: Ledger, events: tuple[Event, ...], rounds: list[int]) -> list[EpsilonRow]:
    """Epsilon rows after each of the given rounds, ascending, when every round shows the same `events`."""
    rows, done = [], 0
    for round in rounds:
        ledger.record(events, round - done)
        rows += ledger.rows(round)
        done = round
    return rows


def show(args: list[str]) -> None:
    """Print the table of every job that the words stand for, and what each observer's epsilons rest on."""
    from rich.console import Console

    from fedpriv.accountants.table import epsilon_table
    from fedpriv.compose import Words, compose_jobs, own
    from fedpriv.config import build
    from fedpriv.help import conf_dir

    words = Words.parse(args)
    console = Console()
    for config in compose_jobs(words, conf_dir()):
        exp = build(own(config))
        if words.multirun:
            console.print(" ".join(config.hydra.overrides.task), soft_wrap=True)
        ledger = Ledger(exp.accountant)
        rows = rows_at(ledger, first_events(exp), milestones(exp.options.rounds))
        console.print(epsilon_table(rows, exp.accountant.delta))
        for observer, texts in ledger.assumptions().items():
            console.print(f"{observer}: {'; '.join(texts)}", soft_wrap=True, highlight=False)
