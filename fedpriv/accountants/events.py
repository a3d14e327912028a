"""Events: what an observer sees of one round, as frozen values that an accountant can add up.

Mechanisms are dp_accounting's `DpEvent`s, with one more convention:

    noise_multiplier = noise standard deviation / L2 sensitivity **under the event's adjacency**.

For example, a sum of vectors clipped to C with noise of standard deviation s is
`GaussianDpEvent(s / C)` under add/remove and `GaussianDpEvent(s / (2 * C))` under replace, sampled
or not. dp_accounting 0.6 has no such convention: under `REPLACE_ONE` its RDP accountant uses the
multiplier unchanged, but its PLD accountant halves it. Here both use it unchanged.

Each sampling scheme is accounted under one adjacency only: Poisson sampling under add/remove, a
fixed-size batch without replacement under replace. The curve of one adjacency does not bound the
other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import require

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ADD_REMOVE = "add/remove"
REPLACE = "replace"

RELEASED_MODEL = "released model"
SERVER = "server"
SILO = "silo"

OBSERVERS = (RELEASED_MODEL, SERVER, SILO)
"""Observers: anyone who gets the model, the server, and a curious silo."""

CHEATING_SERVER = "cheating server"
"""A server that sends what it likes. It has no row where nothing is certified against it."""

ENFORCED = "enforced"
"""Status of an epsilon that rests on code of this package alone."""


def status_of(authors: Iterable[str]) -> str:
    """The status of an epsilon that rests on the word of these classes.

    >>> status_of(()), status_of(("Mine",))
    ('enforced', 'declared by Mine')
    """
    names = ", ".join(dict.fromkeys(authors))
    return f"declared by {names}" if names else ENFORCED


Composition = Sequence[tuple["DpEvent", int]]
"""Events, each with the number of times it happened."""


@dataclass(frozen=True)
class Event:
    """One observer's view of one round's release.

    Events of one (observer, unit, adjacency) compose, so they must cover everything that this
    observer sees.

    observer: who sees the release, such as "released model", "server" or "silo".
    unit: whose presence is hidden: "record", "user" or "silo".
    adjacency: `ADD_REMOVE` or `REPLACE` one unit.
    certified: the mechanism as the observer sees it; `NonPrivateDpEvent` if an assumption fails.
        Hashable (tuples, not lists).
    claimed: the mechanism according to the paper; None if the paper claims nothing for this
        observer.
    scope: a disjoint part of the data, such as a silo; "" for an event that involves all scopes. A
        unit is in one scope only, but the records of a group may be in several (see `Ledger`).
        Epsilon is the maximum over scopes.
    assumptions: what `certified` rests on, or which assumption fails.
    group_size: largest number of records of one unit, over all scopes. Above 1, `certified` and
        `claimed` describe one record, and the accountant answers for the whole group.
    authors: names of classes of other packages whose word `certified` is; empty: this package
        bounds, noises and derives.
    group: the unit's group, if groups have epsilons of their own; "": the event concerns all units.
    one_noise: whether the events of different scopes may be one release, such as a sum over silos,
        in which one noise hides the records of all scopes.
    together: a mechanism that bounds this release for records of any scopes, if it is one release
        in which all scopes take part; None: unknown.
    """

    observer: str
    unit: str
    adjacency: str
    certified: DpEvent
    claimed: DpEvent | None
    scope: str = ""
    assumptions: tuple[str, ...] = ()
    group_size: int = 1
    authors: tuple[str, ...] = ()
    group: str = ""
    one_noise: bool = False
    together: DpEvent | None = None

    @property
    def protects(self) -> str:
        """The unit, with its group if there are several."""
        return f"{self.unit} ({self.group})" if self.group else self.unit


def leaves(composition: Iterable[tuple[DpEvent, int]]) -> dict[DpEvent, int] | None:
    """The basic mechanisms in `composition` with their counts; None if one of them is not private.

    Unrolls nested compositions, leaves out mechanisms that reveal nothing, and removes the sampling
    from events that sample everything.
    """
    import dp_accounting as dp

    total: Counter[DpEvent] = Counter()
    todo = list(composition)
    while todo:
        event, count = todo.pop()
        if isinstance(event, dp.SelfComposedDpEvent):
            todo.append((event.event, event.count * count))
        elif isinstance(event, dp.ComposedDpEvent):
            todo += [(part, count) for part in event.events]
        elif count == 0 or isinstance(event, dp.NoOpDpEvent):
            continue
        elif isinstance(event, dp.NonPrivateDpEvent):
            return None
        elif (whole := _unsampled(event)) is not None:
            todo.append((whole, count))
        else:
            noise = _noise(event)
            if noise == 0:
                return None
            if noise != math.inf:
                total[event] += count
    return dict(total)


def _unsampled(event: DpEvent) -> DpEvent | None:
    """The equivalent of a sampling event that samples all data or none; None for other events."""
    import dp_accounting as dp

    if isinstance(event, dp.PoissonSampledDpEvent):
        rate = event.sampling_probability
    elif isinstance(event, dp.SampledWithoutReplacementDpEvent):
        rate = event.sample_size / event.source_dataset_size
    else:
        return None
    require(0 <= rate <= 1, "sampling rate", rate, "must be between 0 and 1")
    if rate == 0:
        return dp.NoOpDpEvent()
    return event.event if rate == 1 else None


def _noise(event: DpEvent) -> float:
    """The noise multiplier of the innermost event, inf if it moves nothing; 1.0 for mechanisms
    without a noise multiplier. Raises ConfigError for a negative one."""
    while hasattr(event, "event"):
        event = event.event
    noise = getattr(event, "noise_multiplier", getattr(event, "standard_deviation", 1.0))
    require(noise >= 0, "noise_multiplier", noise, "must not be negative")
    sensitivities = getattr(event, "sensitivities", [1])
    probabilities = getattr(event, "sampling_probs", [1])
    moves = any(c for c, p in zip(sensitivities, probabilities) if p)
    return noise if moves else math.inf
