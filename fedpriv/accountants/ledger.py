"""The events of a run, added up at any round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import ENFORCED, RELEASED_MODEL, STATUSES, Event, Runs
from fedpriv.accountants.group import gaussian
from fedpriv.accountants.rdp import claimed_epsilon
from fedpriv.accountants.split_users import split_epsilon
from fedpriv.errors import ConfigError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class EpsilonRow:
    """Epsilon against one observer after `round` rounds, by one method."""

    round: int
    observer: str
    unit: str
    adjacency: str
    method: str
    certified: float
    """A guarantee; inf when there is none."""
    claimed: float | None
    """What the paper's formula gives; None when the paper claims nothing for this observer."""
    assumptions: tuple[str, ...] = ()
    """What `certified` rests on, or which assumption fails."""
    status: str = ENFORCED
    """The weakest of the events' (`STATUSES`)."""


def headline(rows: Iterable[EpsilonRow], observer: str = RELEASED_MODEL) -> float:
    """The epsilon a run is known by: the best certificate against `observer`, for users if it
    speaks of them."""
    released = [row for row in rows if row.observer == observer]
    users = [row for row in released if row.unit == "user"] or released
    return min((row.certified for row in users), default=0.0)


class Ledger:
    """Keeps how often each event happened, and nothing else; a resumed run records its past queries
    again.

    Events compose whatever their order. Epsilon is the maximum over scopes, because a unit lives in
    one of them; events without a scope are composed with those of every scope. A group of records
    may lie in several scopes: its epsilon is the larger of that maximum, all records in one scope,
    and `split_epsilon`'s bound for all other allocations.
    """

    def __init__(self, accountant: Accountant) -> None:
        self.accountant = accountant
        self._counts: Counter[Event] = Counter()

    def record(self, events: Iterable[Event], times: int = 1) -> None:
        """Add the events of one round, or of `times` equal rounds."""
        for event in events:
            self._counts[event] += times

    def copy(self) -> Ledger:
        """A ledger with the same records, to ask what another round would cost."""
        other = Ledger(self.accountant)
        other._counts = self._counts.copy()
        return other

    def compositions(self) -> dict[tuple[str, str, str, int], list[Runs]]:
        """What each unit meets, by (observer, unit, adjacency, group size): a composition for each
        scope."""
        found: dict[tuple[str, str, str, int], list[Runs]] = {}
        for key, scopes in self._scopes().items():
            everywhere = scopes.pop("", [])
            parts = [everywhere + runs for runs in scopes.values()] or [everywhere]
            found[key] = [
                _merged((event.certified, count) for event, count in runs) for runs in parts
            ]
        return found

    def _scopes(self) -> dict[tuple[str, str, str, int], dict[str, list[tuple[Event, int]]]]:
        groups: dict[tuple[str, str, str, int], dict[str, list[tuple[Event, int]]]] = {}
        for event, count in self._counts.items():
            scopes = groups.setdefault(
                (event.observer, event.unit, event.adjacency, event.group_size), {}
            )
            scopes.setdefault(event.scope, []).append((event, count))
        return groups

    def rows(self, round: int) -> list[EpsilonRow]:
        """Epsilon of everything recorded so far, one row per (observer, unit, adjacency, method),
        labelled `round`.

        Raises ConfigError when the accountant cannot handle an event.
        """
        epsilons = _Epsilons(self.accountant)
        rows = []
        for (observer, unit, adjacency, size), scopes in self._scopes().items():
            everywhere = scopes.pop("", [])
            parts = [everywhere + runs for runs in scopes.values()] or [everywhere]
            certified = _largest([epsilons.certified(runs, adjacency, size) for runs in parts])
            if size > 1 and len(scopes) > 1:
                spread = epsilons.spread(list(scopes.values()), everywhere, size)
                certified = {method: max(epsilon, spread) for method, epsilon in certified.items()}
            claims = [epsilons.claimed(runs, size) for runs in parts]
            numbers = [claim for claim in claims if claim is not None]
            claimed = max(numbers) if len(numbers) == len(claims) else None
            texts = (text for runs in parts for event, _ in runs for text in event.assumptions)
            why = tuple(dict.fromkeys(texts))
            status = min((event.status for runs in parts for event, _ in runs), key=STATUSES.index)
            named = (observer, unit, adjacency)
            rows += [
                EpsilonRow(round, *named, m, eps, claimed, why, status)
                for m, eps in certified.items()
            ]
        return rows


class _Epsilons:
    """The epsilons of one table. Silos of one size, and observers who see the same, cost one
    calculation."""

    def __init__(self, accountant: Accountant) -> None:
        self._accountant = accountant
        self._certified: dict[
            tuple[str, int, frozenset[tuple[DpEvent, int]]], dict[str, float]
        ] = {}
        self._claimed: dict[tuple[int, frozenset[tuple[DpEvent, int]]], float] = {}
        self._spread: dict[Hashable, float] = {}

    def certified(
        self, runs: list[tuple[Event, int]], adjacency: str, size: int
    ) -> dict[str, float]:
        total = _merged((event.certified, count) for event, count in runs)
        key = (adjacency, size, frozenset(total))
        if key not in self._certified:
            self._certified[key] = _certified(self._accountant, tuple(total), adjacency, size)
        return self._certified[key]

    def spread(
        self, scopes: list[list[tuple[Event, int]]], everywhere: list[tuple[Event, int]], size: int
    ) -> float:
        """Of a group of records of which no scope has all."""
        parts = [_merged((event.certified, count) for event, count in runs) for runs in scopes]
        common = _merged((event.certified, count) for event, count in everywhere)
        key = (size, frozenset(common), frozenset(Counter(map(frozenset, parts)).items()))
        if all(gaussian(part) for part in (*parts, common)):
            # one record after the other, gaps add up: the whole group in the costliest scope is the
            # worst
            return 0.0
        if key not in self._spread:
            self._spread[key] = split_epsilon(
                parts, size, self._accountant.delta, everywhere=common
            )
        return self._spread[key]

    def claimed(self, runs: list[tuple[Event, int]], size: int) -> float | None:
        """None as soon as one event has no claim: a claim about some of the rounds is none about
        the run."""
        claims = [(event.claimed, count) for event, count in runs if event.claimed is not None]
        if len(claims) < len(runs):
            return None
        total = _merged(claims)
        key = (size, frozenset(total))
        if key not in self._claimed:
            self._claimed[key] = _claimed(tuple(total), size, self._accountant.delta)
        return self._claimed[key]


@lru_cache(maxsize=4096)
def _certified(
    accountant: Accountant, total: tuple[tuple[DpEvent, int], ...], adjacency: str, size: int
) -> dict[str, float]:
    """Kept, since runs that differ in step sizes or clips alone meet the same compositions; not to
    be changed."""
    return accountant.epsilons(total, adjacency, size)


@lru_cache(maxsize=4096)
def _claimed(total: tuple[tuple[DpEvent, int], ...], size: int, delta: float) -> float:
    return claimed_epsilon(total, delta, size)


def _merged(runs: Iterable[tuple[DpEvent, int]]) -> list[tuple[DpEvent, int]]:
    """Equal events together: observers' events may differ in their assumptions only."""
    total: Counter[DpEvent] = Counter()
    for event, count in runs:
        total[event] += count
    return list(total.items())


def _largest(parts: list[dict[str, float]]) -> dict[str, float]:
    """The maximum over scopes of each method that certifies all of them."""
    methods = [method for method in parts[0] if all(method in part for part in parts)]
    if not methods:
        raise ConfigError(
            "accountant", "+".join(parts[0]), "no method can account the events of every scope"
        )
    return {method: max(part[method] for part in parts) for method in methods}
