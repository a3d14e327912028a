"""The ledger of a run: its events with their counts, and their epsilons after any round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import (
    CHEATING_SERVER,
    ENFORCED,
    RELEASED_MODEL,
    Composition,
    Event,
    status_of,
)
from fedpriv.accountants.group import gaussian
from fedpriv.accountants.rdp import claimed_epsilon
from fedpriv.accountants.split_users import split_epsilon
from fedpriv.errors import ConfigError
from fedpriv.util.installed import others

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from rich.table import Table

Counts = list[tuple[Event, int]]
"""Events with the number of times each happened."""

Key = tuple[str, str, str, int, str]
"""Observer, unit, adjacency, group size and group: events with one key compose. Events without a
group compose with those of every group."""


@dataclass(frozen=True)
class EpsilonRow:
    """Epsilon against one observer, by one method.

    round: number of rounds that the epsilon covers.
    observer: who sees the releases.
    unit: whose presence is hidden.
    adjacency: how neighbouring data sets differ in a unit.
    method: the accountant's method.
    certified: a proven upper bound; inf if there is none.
    claimed: epsilon by the paper's formula; None if the paper claims nothing for this observer.
    assumptions: what `certified` rests on, or which assumption fails.
    status: "enforced", or "declared by" the classes of other packages whose word it is.
    group: the group of users whose epsilon it is; "": of every user.
    """

    round: int
    observer: str
    unit: str
    adjacency: str
    method: str
    certified: float
    claimed: float | None
    assumptions: tuple[str, ...] = ()
    status: str = ENFORCED
    group: str = ""

    @property
    def protects(self) -> str:
        """The unit, with its group if there are several."""
        return f"{self.unit} ({self.group})" if self.group else self.unit


def headlines(rows: Iterable[EpsilonRow], observer: str = RELEASED_MODEL) -> dict[str, float]:
    """The smallest certificate of each group against `observer`, for users if there are rows for
    users. Without groups the only one is ""."""
    released = [row for row in rows if row.observer == observer]
    users = [row for row in released if row.unit == "user"] or released
    found: dict[str, float] = {}
    for row in users:
        found[row.group] = min(found.get(row.group, math.inf), row.certified)
    return found


def headline(rows: Iterable[EpsilonRow], observer: str = RELEASED_MODEL) -> float:
    """The epsilon by which a run is known: the largest of `headlines`."""
    return max(headlines(rows, observer).values(), default=0.0)


class Ledger:
    """Counts how often each event happened. A resumed run records its past queries again.

    Events compose in any order. A unit is in one scope only, so epsilon is the maximum over scopes;
    events without a scope compose with those of every scope. A group of records may be in several
    scopes: its epsilon is the larger of that maximum (all records in one scope) and the bound of
    `split_epsilon` (every other way to split them). Where all scopes take part in every release,
    `Event.together` bounds all ways to split them, and the smaller bound counts.
    """

    def __init__(self, accountant: Accountant) -> None:
        self.accountant = accountant
        self._counts: Counter[Event] = Counter()

    def record(self, events: Iterable[Event], times: int = 1) -> None:
        """Add the events of one round, or of `times` equal rounds."""
        for event in events:
            self._counts[event] += times

    def copy(self) -> Ledger:
        """A ledger with the same records, to compute what another round would cost."""
        other = Ledger(self.accountant)
        other._counts = self._counts.copy()
        return other

    def compositions(self) -> dict[Key, list[Composition]]:
        """Everything a unit contributes to: one composition per scope."""
        return {
            key: [_certified(counts) for counts in _with_shared(*parts)]
            for key, parts in self._scopes().items()
        }

    def _scopes(self) -> dict[Key, tuple[list[Counts], Counts]]:
        """Events of each scope, and events without a scope."""
        found: dict[Key, dict[str, Counts]] = {}
        groups: dict[tuple[str, str, str, int], dict[str, None]] = {}
        for event in self._counts:
            about = (event.observer, event.unit, event.adjacency, event.group_size)
            groups.setdefault(about, {})[event.group] = None
        for event, count in self._counts.items():
            about = (event.observer, event.unit, event.adjacency, event.group_size)
            everyone = [group for group in groups[about] if group] or [""]
            for group in [event.group] if event.group else everyone:
                scopes = found.setdefault((*about, group), {})
                scopes.setdefault(event.scope, []).append((event, count))
        return {
            key: ([counts for name, counts in scopes.items() if name], scopes.get("", []))
            for key, scopes in found.items()
        }

    def rows(self, round: int) -> list[EpsilonRow]:
        """Epsilons of everything recorded, labelled `round`: a row for each observer, unit,
        adjacency, group size, group and method. A server that cheats has none where nothing is
        certified against it: the server's row says why. Raises ConfigError if the accountant does
        not support an event."""
        delta = self.accountant.delta
        rows = []
        for key, (scopes, shared) in self._scopes().items():
            observer, unit, adjacency, size, group = key
            parts = _with_shared(scopes, shared)
            compositions = [_certified(counts) for counts in parts]
            certified = _largest(
                [_epsilons(self.accountant, part, adjacency, size) for part in compositions]
            )
            if size > 1 and len(scopes) > 1:
                one_noise = any(event.one_noise for counts in scopes for event, _ in counts)
                split = _split_epsilon(
                    tuple(map(_certified, scopes)), size, delta, _certified(shared), one_noise
                )
                certified = {method: max(epsilon, split) for method, epsilon in certified.items()}
                if (together := _together(scopes)) is not None:
                    both = _merged((*together, *_certified(shared)))
                    bounds = _epsilons(self.accountant, both, adjacency, size)
                    certified = {m: min(own, bounds.get(m, own)) for m, own in certified.items()}
            if observer == CHEATING_SERVER and math.isinf(min(certified.values())):
                continue
            claims = [_claim(counts, size, delta) for counts in parts]
            numbers = [claim for claim in claims if claim is not None]
            claimed = max(numbers) if len(numbers) == len(claims) else None
            events = [event for counts in parts for event, _ in counts]
            why = tuple(dict.fromkeys(text for event in events for text in event.assumptions))
            authors = [name for event in events for name in event.authors]
            status = status_of([*authors, *others(self.accountant)])
            about = round, observer, unit, adjacency
            rows += [
                EpsilonRow(*about, method, epsilon, claimed, why, status, group)
                for method, epsilon in certified.items()
            ]
        return rows


def _with_shared(scopes: list[Counts], shared: Counts) -> list[Counts]:
    """The events that a unit of each scope contributes to."""
    return [shared + counts for counts in scopes] or [shared]


def _together(scopes: list[Counts]) -> tuple[tuple[DpEvent, int], ...] | None:
    """What bounds all releases for records of any scopes; None unless all scopes take part in every
    one of them."""
    found = []
    for counts in scopes:
        known = [(event.together, n) for event, n in counts if event.together is not None]
        found.append(dict(_merged(known)))
        if len(known) < len(counts) or found[0] != found[-1]:
            return None
    return tuple(found[0].items())


def _certified(counts: Counts) -> tuple[tuple[DpEvent, int], ...]:
    return _merged((event.certified, count) for event, count in counts)


def _merged(composition: Iterable[tuple[DpEvent, int]]) -> tuple[tuple[DpEvent, int], ...]:
    """`composition` with the counts of equal mechanisms added up: events may differ in their
    assumptions only."""
    total: Counter[DpEvent] = Counter()
    for event, count in composition:
        total[event] += count
    return tuple(total.items())


# Silos of one size, observers who see the same, and runs that differ in step sizes or clips only
# have equal compositions, so the three calculations below are cached.


@lru_cache(maxsize=4096)
def _epsilons(
    accountant: Accountant,
    composition: tuple[tuple[DpEvent, int], ...],
    adjacency: str,
    group_size: int,
) -> dict[str, float]:
    """As `Accountant.epsilons`; callers must not change the result."""
    return accountant.epsilons(composition, adjacency, group_size)


@lru_cache(maxsize=4096)
def _split_epsilon(
    scopes: tuple[tuple[tuple[DpEvent, int], ...], ...],
    group_size: int,
    delta: float,
    shared: tuple[tuple[DpEvent, int], ...],
    one_noise: bool,
) -> float:
    """Bound for a group that no single scope holds."""
    if all(gaussian(part) for part in (*scopes, shared)):
        # The records' mean gaps add up, so the whole group in the costliest scope is the worst.
        return 0.0
    return split_epsilon(scopes, group_size, delta, everywhere=shared, one_noise=one_noise)


_claimed_epsilon = lru_cache(maxsize=4096)(claimed_epsilon)


def _claim(counts: Counts, group_size: int, delta: float) -> float | None:
    """None if an event has no claim: a claim for some of the rounds says nothing about the run."""
    claims = [(event.claimed, count) for event, count in counts if event.claimed is not None]
    if len(claims) < len(counts):
        return None
    return _claimed_epsilon(_merged(claims), delta, group_size)


def _largest(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The maximum over scopes, for each method that certifies all of them."""
    methods = [method for method in parts[0] if all(method in part for part in parts)]
    if not methods:
        raise ConfigError(
            "accountant", "+".join(parts[0]), "no method supports the events of every scope"
        )
    return {method: max(part[method] for part in parts) for method in methods}


def tightest(rows: Iterable[EpsilonRow]) -> list[EpsilonRow]:
    """The smallest certificate of the methods that certify the same after the same round. Each of
    them is an upper bound."""
    best: dict[tuple[object, ...], EpsilonRow] = {}
    for row in rows:
        key = row.round, row.observer, row.unit, row.adjacency, row.group
        best[key] = min(best.get(key, row), row, key=lambda known: known.certified)
    return list(best.values())


def epsilon_table(rows: Iterable[EpsilonRow], delta: float) -> Table:
    """A table of the tightest of `rows`, with `delta` in the title. Epsilons that are not enforced
    have an asterisk, and the caption says whose word they are."""
    from rich.table import Table

    rows = tightest(rows)
    caption = "; ".join(dict.fromkeys(f"* {row.status}" for row in rows if _mark(row)))
    table = Table(title=f"epsilon at delta = {delta:g}", caption=caption or None)
    for header in ("rounds", "observer", "unit", "adjacency", "method", "certified", "claimed"):
        table.add_column(
            header, justify="right" if header in ("rounds", "certified", "claimed") else "left"
        )
    for row in rows:
        certified = epsilon_text(row.certified) + _mark(row)
        numbers = (certified, "" if row.claimed is None else epsilon_text(row.claimed))
        table.add_row(
            f"{row.round}", row.observer, row.protects, row.adjacency, row.method, *numbers
        )
    return table


def _mark(row: EpsilonRow) -> str:
    """The mark of an epsilon; empty if it is infinite or the framework enforces it."""
    return "" if math.isinf(row.certified) or row.status == ENFORCED else "*"


def epsilon_text(value: float) -> str:
    """An epsilon for a table: four digits after the point."""
    return "∞" if math.isinf(value) else f"{value:.4f}"
