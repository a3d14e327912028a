"""What the answers of a site cost together, whichever runs asked for them.

Answers whose events are of one kind compose: equal observers, units, adjacencies, group sizes and
groups of users. Epsilons of several kinds add up, each at its share of delta; each protects the
unit of its own runs.

>>> from dp_accounting import GaussianDpEvent
>>> from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, REPLACE
>>> from fedpriv.accountants.pld import Pld
>>> def answer(adjacency):
...     event = Event(RELEASED_MODEL, "user", adjacency, GaussianDpEvent(5.0), None)
...     return Charge(RELEASED_MODEL, (event,))
>>> known = Charge.read(answer(ADD_REMOVE).text)
>>> [round(site_epsilon(Pld(), {known: count}), 2) for count in (1, 4)]
[0.73, 1.55]
>>> round(site_epsilon(Pld(), {known: 4, answer(ADD_REMOVE): 4, answer(REPLACE): 1}), 2)
3.14
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import Event
from fedpriv.accountants.ledger import Ledger, headline

EVENT = ("observer", "unit", "adjacency", "scope", "group_size", "group", "one_noise")
"""What an event is written with, before its mechanisms."""


@dataclass(frozen=True, eq=False)
class Charge:
    """What one answer costs.

    observer: whose epsilon the run limits.
    events: what this observer sees of the answer.
    run: name of the run, if scopes of the events are parts of the data in this run alone, such as
        its batches; "": they are silos.
    """

    observer: str
    events: tuple[Event, ...]
    run: str = ""

    @cached_property
    def kind(self) -> object:
        """Equal for charges that compose."""
        about = (
            (event.unit, event.adjacency, event.group_size, event.group) for event in self.events
        )
        return self.observer, self.run, frozenset(about)

    @cached_property
    def text(self) -> str:
        """The charge as one line. Raises ValueError for a mechanism that dp_accounting does not
        have."""
        events = [
            [
                *(getattr(event, name) for name in EVENT),
                _plain(event.certified),
                _plain(event.together),
            ]
            for event in self.events
        ]
        return json.dumps([self.observer, self.run, events])

    @staticmethod
    def read(text: str) -> Charge:
        """The charge of a line. Raises ValueError for any other line."""
        try:
            observer, run, lines = json.loads(text)
            events = []
            for *about, certified, together in lines:
                known: dict[str, Any] = dict(zip(EVENT, about, strict=True))
                known |= {"certified": _read(certified), "together": _read(together)}
                events.append(Event(claimed=None, **known))
            return Charge(observer, tuple(events), run)
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no charge: {error}") from error


def site_epsilon(accountant: Accountant, charges: Mapping[Charge, int]) -> float:
    """Epsilon of all answers at the accountant's delta.

    charges: what was answered, with the number of times.

    Raises ConfigError if the accountant does not support events that compose.
    """
    kinds = {charge.kind for charge in charges if charge.events}
    if not kinds:
        return 0.0
    share = replace(accountant, delta=accountant.delta / len(kinds))
    ledgers = {kind: Ledger(share) for kind in kinds}
    observers = {}
    for charge, count in charges.items():
        if charge.events:
            ledgers[charge.kind].record(charge.events, count)
            observers[charge.kind] = charge.observer
    return sum(headline(ledger.rows(0), observers[kind]) for kind, ledger in ledgers.items())


def _plain(value: Any) -> Any:
    """A mechanism or one of its fields, as JSON holds it: a mechanism is {name: fields}."""
    import attr
    from dp_accounting import dp_event

    if attr.has(type(value)):
        cls = type(value)
        if getattr(dp_event, cls.__name__, None) is not cls:
            raise ValueError(f"{cls.__name__} is no mechanism of dp_accounting")
        return {cls.__name__: [_plain(getattr(value, one.name)) for one in attr.fields(cls)]}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


def _read(value: Any) -> Any:
    """The mechanism, or the field, of a `_plain` one."""
    from dp_accounting import dp_event

    if isinstance(value, dict):
        [(name, fields)] = value.items()
        cls = getattr(dp_event, name)
        if not (isinstance(cls, type) and issubclass(cls, dp_event.DpEvent)):
            raise ValueError(f"{name} is no mechanism of dp_accounting")
        return cls(*map(_read, fields))
    return tuple(map(_read, value)) if isinstance(value, list) else value
