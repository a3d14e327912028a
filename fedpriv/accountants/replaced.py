"""Events that protect against adding or removing a unit, used for replacing it."""

from __future__ import annotations

from dataclasses import replace

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.accountants.group import require_proof


def replaced(event: Event) -> Event:
    """An event whose epsilon, by a `Ledger`, holds for replacing the unit.

    Replacing a unit removes one and adds another: two steps of add/remove. For unsampled Gaussian
    releases, a group of two moves the mean twice as far, whatever the directions of the steps, so a
    bound for this group holds for the replacement. The new event is still accounted under
    add/remove, with twice the group size. Events under replace stay unchanged. Raises ConfigError
    for sampled releases: no proof covers replacement by the curve of a removed group.
    """
    if event.adjacency == REPLACE:
        return event
    size = 2 * event.group_size
    require_proof([(event.certified, 1)], REPLACE, size)
    return replace(event, group_size=size)
