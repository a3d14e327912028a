"""Runs that end in the middle of a round, in this process or with their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import yaml
from runs import experiment

from fedpriv.accountants.ledger import EpsilonRow, Ledger
from fedpriv.rounds.query import events_of
from fedpriv.runs.loop import train
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.experiment import Experiment

WORDS = ("randomness=system", "accountant=rdp", "preset.n_silos=2")
"""Small, and with noise that is never the same."""


class Death(BaseException):
    """Ends a run as a kill would: nothing in the program catches it."""


def run_or_resume(folder: Path, *words: str, resume: bool = False) -> None:
    """Run the experiment of `words`, or go on with it."""
    config = yaml.safe_dump({"words": [word for word in words if not word.startswith("rounds=")]})
    train(experiment(*words), config, folder, resume)


def watched(before: Callable[[int], object], after: Callable[[int], object]):
    """Calls `before` with a query's round just before its first message leaves, and `after` once
    its sum is known."""
    exchange = PreparedRun.exchange

    def seen(self, query, state, *, watch, lines):
        before(query.round)
        known = exchange(self, query, state, watch=watch, lines=lines)
        after(query.round)
        return known

    return patch.object(PreparedRun, "exchange", seen)


def dies_in(round: int, *, sums: list[int]):
    """The run dies as soon as the sum of `round` is known; `sums` collects the rounds whose sums
    were."""

    def after(number: int) -> None:
        sums.append(number)
        if number == round:
            raise Death

    return watched(lambda number: None, after)


def cost(exp: Experiment, rounds: int) -> list[EpsilonRow]:
    """Epsilon rows of so many rounds of an experiment whose rounds cost the same."""
    ledger = Ledger(exp.accountant)
    with prepare(exp) as prepared:
        ledger.record(events_of(prepared.queries(1)), rounds)
    return ledger.rows(rounds)


def certified(rows: list[dict[str, str]]) -> dict[tuple[str, ...], float]:
    """What the last round in a table of epsilons certifies, by observer, unit, adjacency and
    method."""
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    return {_about(row): float(row["certified"]) for row in last}


def expected(rows: list[EpsilonRow]) -> dict[tuple[str, ...], float]:
    """The same of a ledger's rows."""
    return {_about(asdict(row)): row.certified for row in rows}


def _about(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("observer", "unit", "adjacency", "method"))


def child(folder: Path, log: Path, words: tuple[str, ...], resume: bool) -> None:
    """A process of its own: runs, and notes in a file every round whose first message is about to
    leave (`begins`) and every sum that was seen (`sum`)."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    with open(log, "ab", buffering=0) as file:

        def note(what: str, round: int) -> None:
            file.write(f"{what} {round}\n".encode())  # unbuffered: it outlives the process

        with watched(lambda number: note("begins", number), lambda number: note("sum", number)):
            run_or_resume(folder, *words, resume=resume)


def interrupted_in(round: int):
    """Ctrl-C as soon as `round` begins."""
    real = PreparedRun.run_round

    def interrupted(self, queries, *rest):
        if queries[0].round == round:
            raise KeyboardInterrupt
        return real(self, queries, *rest)

    return patch.object(PreparedRun, "run_round", interrupted)
