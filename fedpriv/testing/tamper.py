"""What becomes of an experiment when single messages are tampered with on their way: a table of
outcomes.

    from fedpriv.testing import experiment
    from fedpriv.testing.tamper import tamper
    print(tamper(experiment("aggregation=secagg"), trials=5).markdown())

Each trial is one life (`lives`) in which one letter of one phase is met by one fault. It was
detected if one exchange ended without a sum and the reason names a party; harmless if every sum
that was learned is the right one for the silos in it, with nothing else noticed; silent if a sum,
or what a silo remembers, is wrong. A forged message that is silent is outside the trust text if
nobody signs it: whoever forges it sits on a channel that is taken for authentic.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from fedpriv.parties.post import Message
from fedpriv.parties.signer import CHECKSUM
from fedpriv.parties.traffic import Letter
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.damage import another, flip_bit, retype, truncate
from fedpriv.testing.faults import (
    Fault,
    alter,
    delay,
    drop,
    duplicate,
    forge,
    misdeliver,
    phase_of,
    replay,
    swap,
)
from fedpriv.testing.lives import ROUNDS, Bench, Life

DETECTED = "detected"
UNNAMED = "nobody named"
HARMLESS = "harmless"
OUTSIDE = "outside"
SILENT, LASTING, CRASH = "silent", "lasting", "crash"
"""Outcomes. nobody named: as detected, but the reason names nobody. outside: of the trust text.
lasting: detected, and more than one exchange was lost. crash: an exception that is no declared
abort."""
BAD = (SILENT, LASTING, CRASH)

SET_UP = 0
"""The round that messages of a set-up are stamped with."""
AFTER_SET_UP = (1, 2)
"""Rounds that show what an altered set-up costs."""
TAMPERED = 2
"""The round that is tampered with; replayed letters are of the one before."""

Row = tuple[int, str, str]
"""A round, a phase, and who sends in it: silo, or a helper's name."""


@dataclass(frozen=True)
class Target:
    """The letter that a trial is about, the letters of its phase in an undisturbed life, and those
    of another one."""

    letter: Letter
    phase: tuple[Letter, ...]
    other_session: tuple[Letter, ...]
    where: dict[str, Any]
    rng: random.Random


def _swap(target: Target) -> Fault | None:
    """Between two senders, or where one party sends to many, between two receivers."""
    letter = target.letter
    rivals = [other.sender for other in target.phase if other.receiver == letter.receiver]
    makes = swap
    side = "sender"
    if len(rivals) == 1:
        rivals = [other.receiver for other in target.phase if other.sender == letter.sender]
        makes = misdeliver
        side = "receiver"
    own = getattr(letter, side)
    others = [name for name in rivals if name != own]
    where = {key: target.where[key] for key in ("exchange", "phase")}
    return makes(own, target.rng.choice(others), **where) if others else None


KINDS: dict[str, Callable[[Target], Fault | None]] = {
    "bit flip": lambda target: alter(flip_bit(target.rng), **target.where),
    "forgery": lambda target: forge(another(target.rng), **target.where),
    "truncation": lambda target: alter(truncate(target.rng), **target.where),
    "retype": lambda target: alter(retype(target.rng), **target.where),
    "earlier round": lambda target: replay(**target.where) if target.letter.message.round else None,
    "other session": lambda target: replay(target.other_session, **target.where),
    "swap": _swap,
    "duplicate": lambda target: duplicate(**target.where),
    "drop": lambda target: drop(**target.where),
    "late": lambda target: delay(target.rng.randint(1, 3), **target.where),
}
"""Ways to tamper; None where there is nothing to do it with."""


@dataclass
class Outcomes:
    """How many trials ended how, by phase and kind.

    examples: a reason or an error, by phase, kind and outcome.
    """

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
            f"| {' | '.join([_row(row), *[self._cell(row, kind, '**{}**') for kind in KINDS]])} |"
            for row in self.rows
        ]
        return "\n".join([f"### {self.title}", "", *lines, ""])

    def _cell(self, row: Row, kind: str, bad: str) -> str:
        counts = self.cells.get((row, kind))
        if not counts:
            return "-"
        parts = [
            (outcome, f"{outcome} {count}" if len(counts) > 1 else outcome)
            for outcome, count in counts.items()
        ]
        return ", ".join(
            bad.format(part) if outcome in BAD else part for outcome, part in sorted(parts)
        )


def tamper(
    exp: Experiment,
    *,
    trials: int = 20,
    seed: int = 0,
    title: str = "",
    kinds: Iterable[str] = KINDS,
) -> Outcomes:
    """Tamper with every phase of the set-up and of a round's query, `trials` times in every way.

    The experiment's rounds must have one query each.

    seed: of which letters are met, and how they are damaged.
    """
    outcomes = Outcomes(title or type(exp.aggregation).__name__)
    with Bench(exp) as bench:
        undisturbed = bench.live()
        other = bench.live()
        for round in (SET_UP, TAMPERED):
            exchange = next(
                (at for at, sent in enumerate(undisturbed.sent) if _is_of(round, sent)), None
            )
            if exchange is None:  # parties without anything to agree on
                continue
            for row in dict.fromkeys(_row_of(letter) for letter in undisturbed.sent[exchange]):
                letters = tuple(
                    letter for letter in undisturbed.sent[exchange] if _row_of(letter) == row
                )
                _fill(
                    outcomes,
                    row,
                    bench,
                    exchange,
                    letters,
                    tuple(other.sent[exchange]),
                    kinds,
                    trials,
                    seed,
                )
    return outcomes


def _fill(
    outcomes: Outcomes,
    row: Row,
    bench: Bench,
    exchange: int,
    letters: tuple[Letter, ...],
    other: tuple[Letter, ...],
    kinds: Iterable[str],
    trials: int,
    seed: int,
) -> None:
    for kind in kinds:
        for trial in range(trials):
            rng = random.Random(f"{seed} {row} {kind} {trial}")
            letter = rng.choice(letters)
            where = {
                "exchange": exchange,
                "phase": row[1],
                "sender": letter.sender,
                "receiver": letter.receiver,
            }
            fault = KINDS[kind](Target(letter, letters, other, where, rng))
            if fault is None:
                break
            life = bench.live([fault], AFTER_SET_UP if row[0] == SET_UP else ROUNDS)
            outcome = _outcome(bench, life, forged=kind == "forgery" and not _signed(letter))
            outcomes.cells.setdefault((row, kind), Counter())[outcome] += 1
            outcomes.examples.setdefault(
                (row, kind, outcome), repr(life.crash or "; ".join(life.aborts.values()))
            )


def _outcome(bench: Bench, life: Life, *, forged: bool) -> str:
    if life.crash is not None:
        return CRASH
    if not bench.is_right(life):
        return OUTSIDE if forged else SILENT
    if len(life.aborts) > 1:
        return LASTING
    if not life.aborts:
        return HARMLESS
    parties = (*bench.prepared.aggregation.helpers, *bench.prepared.silos)
    named = all(
        any(re.search(rf"\b{name}\b", reason) for name in parties)
        for reason in life.aborts.values()
    )
    return DETECTED if named else UNNAMED


def _signed(letter: Letter) -> bool:
    """Whether it takes a key to make it."""
    return len(letter.message.signature) != len(CHECKSUM.sign(()))


def _is_of(round: int, sent: list[Letter]) -> bool:
    return any(type(letter.message) is Message and letter.message.round == round for letter in sent)


def _row_of(letter: Letter) -> Row:
    sender = "silo" if letter.sender.startswith("silo") else letter.sender
    return letter.message.round, phase_of(letter) or "", sender


def _row(row: Row) -> str:
    round, phase, sender = row
    return f"{'set-up' if round == SET_UP else 'query'}: {phase} of {sender}"
