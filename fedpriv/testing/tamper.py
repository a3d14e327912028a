"""What becomes of an experiment when single messages are tampered with on their way: a table of outcomes.

    from fedpriv.testing import experiment
    from fedpriv.testing.tamper import tamper
    print(tamper(experiment("aggregation=secagg"), trials=5).markdown())

Each trial is one life (`lives`) in which one letter of one phase is met by one fault. It was detected if some round
ended without a sum and the reason names a party; harmless if every sum that was learned is the right one for the silos
in it, with nothing else noticed; silent if a sum, or what a silo remembers, is wrong.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from fedpriv.config import Experiment
from fedpriv.parties.traffic import Letter
from fedpriv.testing.damage import flip_bit, retype, truncate
from fedpriv.testing.faults import Fault, alter, delay, drop, duplicate, misdeliver, phase_of, replay, swap
from fedpriv.testing.lives import Bench, Life

DETECTED, HARMLESS, SILENT, UNNAMED, CRASH = "detected", "harmless", "silent", "unnamed", "crash"
"""Outcomes. unnamed: as detected, but the reason names nobody. crash: an exception that is no declared abort."""

SET_UP, QUERY = 0, 2
"""Exchanges that are tampered with; replayed letters are of the round before, which is exchange 1."""

Row = tuple[int, str, str]
"""An exchange, a phase, and who sends in it: silo, or a helper's name."""


@dataclass(frozen=True)
class Target:
    """The letter that a trial is about, the letters of its phase in an undisturbed life, and those of another one."""

    letter: Letter
    phase: tuple[Letter, ...]
    other_session: tuple[Letter, ...]
    where: dict[str, Any]
    rng: random.Random


def _swap(target: Target) -> Fault | None:
    """Between two senders, or where one party sends to many, between two receivers."""
    letter = target.letter
    rivals = [other.sender for other in target.phase if other.receiver == letter.receiver]
    makes, side = swap, "sender"
    if len(rivals) == 1:
        rivals = [other.receiver for other in target.phase if other.sender == letter.sender]
        makes, side = misdeliver, "receiver"
    own = getattr(letter, side)
    others = [name for name in rivals if name != own]
    where = {key: target.where[key] for key in ("exchange", "phase")}
    return makes(own, target.rng.choice(others), **where) if others else None


KINDS: dict[str, Callable[[Target], Fault | None]] = {
    "bit flip": lambda target: alter(flip_bit(target.rng), **target.where),
    "truncation": lambda target: alter(truncate(target.rng), **target.where),
    "retype": lambda target: alter(retype(target.rng), **target.where),
    "earlier round": lambda target: replay(**target.where) if target.where["exchange"] == QUERY else None,
    "other session": lambda target: replay(target.other_session, **target.where),
    "swap": _swap,
    "duplicate": lambda target: duplicate(**target.where),
    "drop": lambda target: drop(**target.where),
    "late": lambda target: delay(target.rng.randint(1, 3), **target.where),
}
"""Ways to tamper; None where there is nothing to do it with."""


@dataclass
class Outcomes:
    """How many trials ended how, by phase and kind. examples: a reason or an error, by phase, kind and outcome."""

    title: str
    cells: dict[tuple[Row, str], Counter[str]] = field(default_factory=dict)
    examples: dict[tuple[Row, str, str], str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    def of(self, outcome: str) -> dict[tuple[Row, str], int]:
        """Where it came out, and how often."""
        return {place: counts[outcome] for place, counts in self.cells.items() if counts[outcome]}

    def table(self) -> Table:
        """For a terminal."""
        table = Table("message", *KINDS, title=self.title)
        for row in self.rows:
            table.add_row(_row(row), *[self._cell(row, kind, "[bold red]{}[/]") for kind in KINDS])
        return table

    def markdown(self) -> str:
        """For a page."""
        lines = [f"| {' | '.join(['message', *KINDS])} |", "| --- " * (1 + len(KINDS)) + "|"]
        lines += [
            f"| {' | '.join([_row(row), *[self._cell(row, kind, '**{}**') for kind in KINDS]])} |" for row in self.rows
        ]
        return "\n".join([f"### {self.title}", "", *lines, ""])

    def _cell(self, row: Row, kind: str, bad: str) -> str:
        counts = self.cells.get((row, kind))
        if not counts:
            return "-"
        parts = [f"{outcome} {count}" if len(counts) > 1 else outcome for outcome, count in sorted(counts.items())]
        return ", ".join(bad.format(part) if part.split()[0] in (SILENT, CRASH, UNNAMED) else part for part in parts)


def tamper(
    exp: Experiment, *, trials: int = 20, seed: int = 0, title: str = "", kinds: Iterable[str] = KINDS
) -> Outcomes:
    """Tamper with every phase of the set-up and of a round's query, `trials` times in every way.

    The experiment's rounds must have one query each. seed: of which letters are met, and how they are damaged.
    """
    outcomes = Outcomes(title or type(exp.aggregation).__name__)
    with Bench(exp) as bench:
        undisturbed, other = bench.live(), bench.live()
        for exchange in (SET_UP, QUERY):
            for row in dict.fromkeys(_row_of(exchange, letter) for letter in undisturbed.sent[exchange]):
                letters = tuple(letter for letter in undisturbed.sent[exchange] if _row_of(exchange, letter) == row)
                for kind in kinds:
                    _fill(outcomes, row, kind, bench, letters, tuple(other.sent[exchange]), trials, seed)
    return outcomes


def _fill(
    outcomes: Outcomes,
    row: Row,
    kind: str,
    bench: Bench,
    letters: tuple[Letter, ...],
    other: tuple[Letter, ...],
    trials: int,
    seed: int,
) -> None:
    exchange, phase, _ = row
    for trial in range(trials):
        rng = random.Random(f"{seed} {row} {kind} {trial}")
        letter = rng.choice(letters)
        where = {"exchange": exchange, "phase": phase, "sender": letter.sender, "receiver": letter.receiver}
        fault = KINDS[kind](Target(letter, letters, other, where, rng))
        if fault is None:
            return
        life = bench.live([fault])
        outcome = _outcome(bench, life)
        outcomes.cells.setdefault((row, kind), Counter())[outcome] += 1
        outcomes.examples.setdefault((row, kind, outcome), repr(life.crash or "; ".join(life.aborts.values())))


def _outcome(bench: Bench, life: Life) -> str:
    if life.crash is not None:
        return CRASH
    if not bench.is_right(life):
        return SILENT
    if not life.aborts:
        return HARMLESS
    parties = (*bench.simulation.aggregation.helpers, *bench.simulation.silos)
    named = all(any(re.search(rf"\b{name}\b", reason) for name in parties) for reason in life.aborts.values())
    return DETECTED if named else UNNAMED


def _row_of(exchange: int, letter: Letter) -> Row:
    sender = "silo" if letter.sender.startswith("silo") else letter.sender
    return exchange, phase_of(letter) or "", sender


def _row(row: Row) -> str:
    exchange, phase, sender = row
    return f"{'set-up' if exchange == SET_UP else 'query'}: {phase} of {sender}"
