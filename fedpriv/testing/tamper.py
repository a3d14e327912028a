"""Outcomes of an experiment when single messages are tampered with on their way.

    from fedpriv.testing import experiment
    from fedpriv.testing.tamper import tamper
    rich.print(tamper(experiment("aggregation=secagg"), trials=5).table())

Each trial (`fault_trials`) has one fault in one letter of one phase. The outcome is:

- detected: one exchange ended without a sum, and the reason names a party;
- harmless: every sum is correct for the silos in it, and nobody noticed anything;
- silent: a sum, or what a silo remembers, is wrong. None may be.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.table import Table

from fedpriv.parties.traffic import Letter
from fedpriv.settings.experiment import Experiment
from fedpriv.testing import faults
from fedpriv.testing.damage import flip_bit, retype, same_type, truncate
from fedpriv.testing.fault_trials import ROUNDS, FaultTrial, FaultTrials
from fedpriv.testing.faults import Fault, phase_of

DETECTED = "detected"
UNNAMED = "nobody named"
"""Detected, but the reason names no party."""
HARMLESS = "harmless"
SILENT = "silent"
LASTING = "lasting"
"""Detected, but more than one exchange was lost."""
CRASH = "crash"
"""An exception that is no declared abort."""
BAD = (SILENT, LASTING, CRASH)

SET_UP = 0
"""The round in the stamps of a set-up's messages."""
AFTER_SET_UP = (1, 2)
"""Rounds that show the cost of an altered set-up."""
TAMPERED = 2
"""The round that is tampered with; replayed letters are of the round before."""

Row = tuple[int, str, str]
"""A round, a phase, and its sender: "silo", or a helper's name."""


@dataclass(frozen=True)
class TamperTarget:
    """The letter of a trial.

    letter: the letter.
    phase: all letters of its phase in an undisturbed trial.
    other_session: all letters of the same exchange in another session.
    where: exchange, phase, sender and receiver of the letter.
    rng: generator of the damage.
    """

    letter: Letter
    phase: tuple[Letter, ...]
    other_session: tuple[Letter, ...]
    where: dict[str, Any]
    rng: random.Random


def _swap(target: TamperTarget) -> Fault | None:
    """Swap with another sender's letter or, if one party sends to many, another receiver's."""
    letter = target.letter
    rivals = [other.sender for other in target.phase if other.receiver == letter.receiver]
    fault, own = faults.swap, letter.sender
    if len(rivals) == 1:
        rivals = [other.receiver for other in target.phase if other.sender == letter.sender]
        fault, own = faults.misdeliver, letter.receiver
    others = [name for name in rivals if name != own]
    where = {key: target.where[key] for key in ("exchange", "phase")}
    return fault(own, target.rng.choice(others), **where) if others else None


TAMPERINGS: dict[str, Callable[[TamperTarget], Fault | None]] = {
    "bit flip": lambda target: faults.alter(partial(flip_bit, target.rng), **target.where),
    "forgery": lambda target: faults.forge(partial(same_type, target.rng), **target.where),
    "truncation": lambda target: faults.alter(partial(truncate, target.rng), **target.where),
    "retype": lambda target: faults.alter(partial(retype, target.rng), **target.where),
    "earlier round": lambda target: (
        faults.replay(**target.where) if target.letter.message.round else None
    ),
    "other session": lambda target: faults.replay(target.other_session, **target.where),
    "swap": _swap,
    "duplicate": lambda target: faults.duplicate(**target.where),
    "drop": lambda target: faults.drop(**target.where),
    "late": lambda target: faults.delay(target.rng.randint(1, 3), **target.where),
}
"""Ways to tamper with a letter; None if a way does not apply to it."""


@dataclass
class Outcomes:
    """Number of trials with each outcome.

    title: heading of the table.
    counts: counts of outcomes, by row and way of tampering.
    examples: a reason or an error, by row, way and outcome.
    """

    title: str
    counts: dict[tuple[Row, str], Counter[str]] = field(default_factory=dict)
    examples: dict[tuple[Row, str, str], str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return list(dict.fromkeys(row for row, _ in self.counts))

    def of(self, outcome: str) -> dict[tuple[Row, str], int]:
        """How often an outcome occurred, by row and way."""
        return {place: counts[outcome] for place, counts in self.counts.items() if counts[outcome]}

    def note(self, row: Row, way: str, outcome: str, trial: FaultTrial) -> None:
        """Count a trial."""
        self.counts.setdefault((row, way), Counter())[outcome] += 1
        reason = repr(trial.crash or "; ".join(trial.aborts.values()))
        self.examples.setdefault((row, way, outcome), reason)

    def table(self) -> Table:
        """The outcomes of every row, by way of tampering."""
        table = Table("message", *TAMPERINGS, title=self.title)
        for row in self.rows:
            table.add_row(_row_title(row), *(self._cell(row, way) for way in TAMPERINGS))
        return table

    def _cell(self, row: Row, way: str) -> str:
        counts = self.counts.get((row, way), Counter())
        parts = []
        for outcome, count in sorted(counts.items()):
            part = f"{outcome} {count}" if len(counts) > 1 else outcome
            parts.append(f"[bold red]{part}[/]" if outcome in BAD else part)
        return ", ".join(parts) or "-"


def tamper(
    exp: Experiment,
    *,
    trials: int = 20,
    seed: int = 0,
    title: str = "",
    ways: Iterable[str] = tuple(TAMPERINGS),
) -> Outcomes:
    """Tamper with every phase of the set-up and of a round's query, `trials` times in every way.

    exp: an experiment with one query a round.
    seed: seed of the choice of letters and of their damage.
    title: heading of the table.
    ways: names of `TAMPERINGS`.
    """
    outcomes = Outcomes(title or type(exp.aggregation).__name__)
    with FaultTrials(exp) as bench:
        undisturbed = bench.run()
        other = bench.run()
        for exchange, row, letters in _phases(undisturbed):
            for way in ways:
                for number in range(trials):
                    rng = random.Random(f"{seed} {row} {way} {number}")
                    letter = rng.choice(letters)
                    where = {
                        "exchange": exchange,
                        "phase": row[1],
                        "sender": letter.sender,
                        "receiver": letter.receiver,
                    }
                    known = tuple(other.sent[exchange])
                    fault = TAMPERINGS[way](TamperTarget(letter, letters, known, where, rng))
                    if fault is None:
                        break
                    trial = bench.run([fault], ROUNDS if exchange else AFTER_SET_UP)
                    outcomes.note(row, way, _outcome(bench, trial), trial)
    return outcomes


def _phases(trial: FaultTrial) -> Iterable[tuple[int, Row, tuple[Letter, ...]]]:
    """Exchange, row and letters of each phase of the set-up and of the tampered round."""
    for exchange, sent in enumerate(trial.sent):
        for row in dict.fromkeys(map(_row_of, sent)):
            if row[0] in (SET_UP, TAMPERED):
                yield exchange, row, tuple(letter for letter in sent if _row_of(letter) == row)


def _outcome(bench: FaultTrials, trial: FaultTrial) -> str:
    if trial.crash is not None:
        return CRASH
    if not bench.is_correct(trial):
        return SILENT
    if len(trial.aborts) > 1:
        return LASTING
    if not trial.aborts:
        return HARMLESS
    [reason] = trial.aborts.values()
    parties = (*bench.prepared.aggregation.helpers, *bench.prepared.silos)
    named = any(re.search(rf"\b{name}\b", reason) for name in parties)
    return DETECTED if named else UNNAMED


def _row_of(letter: Letter) -> Row:
    sender = "silo" if letter.sender.startswith("silo") else letter.sender
    return letter.message.round, phase_of(letter) or "", sender


def _row_title(row: Row) -> str:
    round, phase, sender = row
    return f"{'set-up' if round == SET_UP else 'query'}: {phase} of {sender}"
