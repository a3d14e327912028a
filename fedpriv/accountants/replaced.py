"""From adding or removing a unit to replacing it."""

from __future__ import annotations

from dataclasses import replace

from fedpriv.accountants.events import REPLACE, Event


def replaced(event: Event) -> Event:
    """An event whose epsilon, by a `Ledger`, holds for replacing the unit.

    Replacing is removing one unit and adding another, two steps of add/remove, so what holds for a group of two holds
    for it. It still calls itself add/remove, by which it is accounted. Events under replacement stay as they are.
    """
    return event if event.adjacency == REPLACE else replace(event, group_size=2 * event.group_size)
