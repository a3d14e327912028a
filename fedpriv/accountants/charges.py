"""Charges: what one answer of a site, or a run, costs, as a line of text.

A `fedpriv.accountants.filters.Budget` adds them up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedpriv.accountants.events import Event

EVENT: dict[str, type] = {
    **dict.fromkeys(("observer", "unit", "adjacency", "scope"), str),
    "group_size": int,
    "group": str,
    "one_noise": bool,
}
"""What an event is written with, before its mechanisms, and its types."""


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
            if {type(observer), type(run)} != {str}:
                raise ValueError("its observer or run is no text")
            events = []
            for *about, certified, together in lines:
                known: dict[str, Any] = dict(zip(EVENT, about, strict=True))
                if [*map(type, about)] != [*EVENT.values()] or known["group_size"] < 1:
                    raise ValueError(f"an event of {about!s:.60}")
                known |= {"certified": _read(certified), "together": _read(together)}
                events.append(Event(claimed=None, **known))
            return Charge(observer, tuple(events), run)
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no charge: {error}") from error


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
    """The mechanism, or the field, of a `_plain` one. Raises ValueError, TypeError or
    AttributeError for any other value."""
    from dp_accounting import dp_event

    if isinstance(value, dict):
        [(name, fields)] = value.items()
        cls = getattr(dp_event, name)
        if not (isinstance(cls, type) and issubclass(cls, dp_event.DpEvent)):
            raise ValueError(f"{name} is no mechanism of dp_accounting")
        return cls(*map(_read, fields))
    if isinstance(value, list):
        return tuple(map(_read, value))
    if value is not None and (type(value) not in (int, float) or not value >= 0):
        raise ValueError(f"{value!s:.60} in a mechanism")
    return value
