"""`fedpriv epsilon`: what a run would cost, from its plans alone. No data, no torch."""

from __future__ import annotations

from fedpriv.accountants.ledger import Ledger
from fedpriv.config import Experiment


def milestones(rounds: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... and the last round."""
    steps = [base * 10**power for power in range(len(str(rounds))) for base in (1, 2, 5)]
    return [step for step in steps if step < rounds] + [rounds]


def rows_at(experiment: Experiment, rounds: list[int]) -> list:
    """Epsilon rows after each of the given rounds, ascending, from the algorithm's plan of round 1.

    Plans look at no data and an algorithm's events do not change from round to round, so one plan stands for all.
    """
    ledger = Ledger(experiment.accountant)
    exp = experiment
    events = exp.algo.plan(1, exp.federation, exp.mechanism, exp.aggregation, exp.streams).events
    rows, done = [], 0
    for round in rounds:
        ledger.record(events, round - done)
        rows += ledger.rows(round)
        done = round
    return rows


def show(args: list[str]) -> None:
    """Print the table of every job that the words stand for."""
    from rich.console import Console

    from fedpriv.accountants.table import epsilon_table
    from fedpriv.cli import _own
    from fedpriv.compose import Words, compose_jobs
    from fedpriv.config import build
    from fedpriv.help import conf_dir

    words = Words.parse(args)
    console = Console()
    for config in compose_jobs(words, conf_dir()):
        exp = build(_own(config))
        if words.multirun:
            console.print(" ".join(config.hydra.overrides.task), soft_wrap=True)
        console.print(epsilon_table(rows_at(exp, milestones(exp.options.rounds)), exp.accountant.delta))
        for event in exp.algo.plan(1, exp.federation, exp.mechanism, exp.aggregation, exp.streams).events:
            console.print(f"{event.observer}: {'; '.join(event.assumptions)}", soft_wrap=True, highlight=False)
