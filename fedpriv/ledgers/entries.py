"""The lines of a ledger, and what they say together.

A ledger is a file of JSON lines that only grows. Each has its number, the SHA-256 digest of the
line before it, a time and a kind:

    init     name of the ledger; populations with a unit and a budget each; groups that overlap
    charge   run, population, observer, words about it, charges with their counts
    settle   run, charges that stay: the run has begun no others
    grant    population, epsilon that its budget grows by

Charges of a run add up over its lines. A settled run has those of its settle line.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.filters import Budget
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.util.starting import garbage_kept

INIT, CHARGE, SETTLE, GRANT = "init", "charge", "settle", "grant"
UNITS = ("user", "record", "silo")

ODD = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError),
    ConfigError,
)
"""What a line that no ledger writes may raise."""

Texts = Counter[str]
"""Charges by their text (`Charge.text`)."""


@dataclass(frozen=True)
class Population:
    """Units that a budget protects.

    name: such as "patients".
    unit: "user", "record" or "silo".
    budget: of all runs.
    """

    name: str
    unit: str
    budget: Budget


@dataclass
class ChargedRun:
    """What one process of a run has charged.

    run: its name, which no other process has.
    population: whom it concerns.
    observer: whose epsilon is charged.
    words: what it did, such as its method and data.
    since: when it was charged first.
    texts: what stays charged.
    settled: whether only rounds that were begun are charged.
    """

    run: str
    population: str
    observer: str
    words: str
    since: str
    texts: Texts = field(default_factory=Counter)
    settled: bool = False


@dataclass
class Balance:
    """What the lines of a ledger say.

    path: of the file, for messages.
    name: of the ledger.
    populations: by name.
    overlap: groups of populations that may have persons in common.
    runs: by name.
    texts: what stays charged, by population.
    entries: number of lines.
    digest: of the last line, hexadecimal.
    """

    path: Path
    name: str = ""
    populations: dict[str, Population] = field(default_factory=dict)
    overlap: tuple[tuple[str, ...], ...] = ()
    runs: dict[str, ChargedRun] = field(default_factory=dict)
    texts: dict[str, Texts] = field(default_factory=dict)
    entries: int = 0
    digest: str = ""

    @staticmethod
    def read(path: Path, content: bytes) -> Balance:
        """What whole lines say. Raises FedprivError, with the number of the line, for one that was
        altered, added or removed."""
        balance = Balance(path)
        with garbage_kept():
            for line in content.splitlines():
                balance._count(line)
        if not balance.populations:
            raise FedprivError(f"{path} is no ledger: fedpriv ledger init makes one")
        return balance

    def _count(self, line: bytes) -> None:
        try:
            entry = json.loads(line.decode())
            if (entry["number"], entry["before"]) != (self.entries + 1, self.digest):
                raise ValueError("it does not follow the line before it")
            self._apply(entry)
            datetime.fromisoformat(entry["time"])
        except ODD as error:
            number = self.entries + 1
            raise FedprivError(
                f"{self.path} was altered: line {number} ({' '.join(str(error).split())})"
            ) from error
        self.entries += 1
        self.digest = hashlib.sha256(line).hexdigest()

    def lines(self, *entries: Mapping[str, Any]) -> bytes:
        """The lines of new entries, which are counted."""
        lines = []
        for entry in entries:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            about = {"number": self.entries + 1, "before": self.digest, "time": now}
            line = json.dumps(about | dict(entry), separators=(",", ":")).encode()
            self._apply(json.loads(line))
            self.entries += 1
            self.digest = hashlib.sha256(line).hexdigest()
            lines.append(line + b"\n")
        return b"".join(lines)

    def _apply(self, entry: dict[str, Any]) -> None:
        kind = entry["kind"]
        if kind == CHARGE:
            texts = _texts(entry)
            name, population = str(entry["run"]), str(entry["population"])
            about = str(entry["observer"]), str(entry["words"]), str(entry["time"])
            run = self.runs.setdefault(name, ChargedRun(name, population, *about))
            self.texts[run.population].update(texts)
            run.texts = run.texts + texts if run.texts else texts
            run.settled = False
        elif kind == SETTLE:
            run, texts = self.runs[entry["run"]], _texts(entry)
            if not texts <= run.texts:
                raise ValueError("it settles more than was charged")
            if texts != run.texts:
                self.texts[run.population].subtract(run.texts - texts)
            run.texts, run.settled = texts, True
        elif kind == GRANT:
            known = self.populations[entry["population"]]
            if not float(entry["epsilon"]) > 0:
                raise ValueError(f"a grant of {entry['epsilon']!s:.20}")
            budget = replace(known.budget, epsilon=known.budget.epsilon + float(entry["epsilon"]))
            self.populations[known.name] = replace(known, budget=budget)
        elif kind == INIT and not self.entries:
            self.name = " ".join(str(entry["name"]).split())
            for name, unit, epsilon, delta in entry["populations"]:
                if unit not in UNITS or str(name) in self.populations:
                    raise ValueError(f"population {name!s:.20} of {unit!s:.20}")
                budget = Budget(float(epsilon), float(delta), near=float(epsilon))
                self.populations[str(name)] = Population(str(name), str(unit), budget)
                self.texts[str(name)] = Counter()
            self.overlap = tuple(tuple(group) for group in entry["overlap"])
            self.groups_of("")
        else:
            raise ValueError(f"kind {kind!s:.20}")

    def groups_of(self, population: str) -> list[tuple[str, ...]]:
        """The groups that persons of a population may be in. Raises ValueError for a group that
        names no population, or several units."""
        for group in self.overlap:
            units = {self.populations[name].unit for name in group}
            if len(units) != 1:
                raise ValueError(f"overlap of {', '.join(group)}: their units differ")
        return [group for group in self.overlap if population in group] or [(population,)]

    def spent(self, population: str) -> float:
        """Epsilon of all that was charged to a population and to those that it overlaps with."""
        budget = self.populations[population].budget
        found = []
        for group in self.groups_of(population):
            total: Texts = Counter()
            for name in group:
                total.update(self.texts[name])
            charges = {_charge(text): count for text, count in total.items() if count}
            found.append(budget.spent(charges))
        return max(found)

    def cost(self, run: ChargedRun) -> float:
        """Epsilon of a run alone, at the delta of its population."""
        budget = self.populations[run.population].budget
        return budget.spent({_charge(text): count for text, count in run.texts.items()})

    def left(self, population: str) -> float:
        """What is left of a budget, as an epsilon."""
        return max(0.0, self.populations[population].budget.epsilon - self.spent(population))

    def exceeded(self, population: str) -> Population | None:
        """A population, this one or one that it overlaps with, whose budget is exceeded."""
        concerned = dict.fromkeys(name for group in self.groups_of(population) for name in group)
        for name in concerned:
            found = self.populations[name]
            if not self.spent(name) <= found.budget.epsilon:
                return found
        return None


def charge_entry(
    run: str, population: str, *, observer: str, words: str, texts: Texts
) -> dict[str, Any]:
    """A line that charges a run."""
    about = {"run": run, "population": population, "observer": observer, "words": words}
    return {"kind": CHARGE, **about, "charges": [*map(list, texts.items())]}


def settle_entry(run: str, texts: Texts) -> dict[str, Any]:
    """A line after which only these charges of a run stay."""
    return {"kind": SETTLE, "run": run, "charges": [*map(list, texts.items())]}


def _texts(entry: Mapping[str, Any]) -> Texts:
    texts: Texts = Counter()
    for text, count in entry["charges"]:
        if type(text) is not str or type(count) is not int or not 1 <= count <= 2**53:
            raise ValueError(f"charge {text!s:.20} {count!s:.20} times")
        _charge(text)
        texts[text] += count
    return texts


@lru_cache(maxsize=4096)
def _charge(text: str) -> Charge:
    """The charge of a text. Raises one of `ODD` for what no filter adds up."""
    charge = Charge.read(text)
    Budget(1.0, 1e-5).spent({charge: 1})
    return charge
