"""From adding or removing a unit to replacing it."""

from __future__ import annotations

from dataclasses import replace

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.accountants.group import require_proof


def replaced(event: Event) -> Event:
    """An event whose epsilon, by a `Ledger`, holds for replacing the unit.

    Replacing is removing one unit and adding another, two steps of add/remove. Of Gaussian releases
    without sampling a group of two moves twice as far, whichever way each of them goes, so what
    holds for such a group holds for it; the event still calls itself add/remove, by which it is
    accounted. Events under replacement stay as they are. Raises ConfigError for sampled releases:
    the curve of a group that is removed was not proved for one that is exchanged.
    """
    if event.adjacency == REPLACE:
        return event
    size = 2 * event.group_size
    require_proof([(event.certified, 1)], REPLACE, size)
    return replace(event, group_size=size)
