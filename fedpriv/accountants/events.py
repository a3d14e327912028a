"""What an observer sees of one round, as frozen values that an accountant can add up.

Mechanisms are written as dp_accounting's `DpEvent`s. One convention fills the gap they leave:

    noise_multiplier = noise standard deviation / l2 sensitivity **under the event's stated
    adjacency**.

A sum of vectors clipped to C with noise std s is `GaussianDpEvent(s / C)` under add/remove and
`GaussianDpEvent(s / (2 * C))` under replace, sampled or not. The convention is needed because
dp_accounting 0.6 reads the same event in two ways under `REPLACE_ONE`: its RDP accountant takes the
multiplier as it stands, its PLD accountant halves it. Here both take it as it stands.

A sampling scheme belongs to one adjacency and never borrows the other's curve: Poisson sampling is
accounted under add/remove only, a fixed-size batch without replacement under replace only.
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
"""Who may look: anyone who gets the model, the server, and a curious silo."""

DECLARED, CHECKED, ENFORCED = STATUSES = ("declared", "checked", "enforced")
"""What stands behind an event, the weakest first: the method's word alone; its word, and
measurements of its class in a small world (`fedpriv.testing`); bounding and noise by the
framework."""

Runs = Sequence[tuple["DpEvent", int]]
"""A composition: each event, and how many times it happened."""


@dataclass(frozen=True)
class Event:
    """One observer's view of one round's release.

    Events of one (observer, unit, adjacency) compose, so together they must hold everything that
    this observer sees.
    """

    observer: str
    """Who looks: "released model", "server", "silo"."""
    unit: str
    """Whose presence is hidden: "record", "user", "silo"."""
    adjacency: str
    """`ADD_REMOVE` or `REPLACE` one unit."""
    certified: DpEvent
    """What this observer really sees; `NonPrivateDpEvent` when an assumption fails. Hashable
    (tuples, not lists)."""
    claimed: DpEvent | None
    """What the paper says it is; None when the paper claims nothing for this observer."""
    scope: str = ""
    """A disjoint part of the data, such as a silo: no unit may touch two, though the records of a
    group may (see `Ledger`). Epsilon is the maximum over scopes; an event without a scope touches
    all of them."""
    assumptions: tuple[str, ...] = ()
    """What `certified` rests on, or which assumption fails."""
    group_size: int = 1
    """How many records one unit owns at most, all scopes together, when `certified` and `claimed`
    describe what one record meets; the accountant then answers for the whole group."""
    status: str = ENFORCED
    """What stands behind `certified`: one of `STATUSES`. A query sets it, not the algorithm."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is none of {', '.join(STATUSES)}")
        if self.adjacency not in (ADD_REMOVE, REPLACE):
            raise ValueError(
                f"adjacency {self.adjacency!r} is neither {ADD_REMOVE!r} nor {REPLACE!r}"
            )


def leaves(runs: Iterable[tuple[DpEvent, int]]) -> dict[DpEvent, int] | None:
    """The basic mechanisms in `runs` with their number of uses; None if any of them is not private
    at all.

    Nested compositions are unrolled, mechanisms that reveal nothing left out; sampling everything
    is no sampling.
    """
    import dp_accounting as dp

    total: Counter[DpEvent] = Counter()
    todo = list(runs)
    while todo:
        event, count = todo.pop()
        if count < 0:
            raise ValueError(f"{event} cannot happen {count} times")
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
    """What a sampling event that looks at all of the data, or at none, comes to; None for any other
    event."""
    import dp_accounting as dp

    if isinstance(event, dp.PoissonSampledDpEvent):
        share = event.sampling_probability
        inner = event.event
    elif isinstance(event, dp.SampledWithoutReplacementDpEvent):
        share = event.sample_size / event.source_dataset_size
        inner = event.event
    else:
        return None
    require(0 <= share <= 1, "sampling rate", share, "must be between 0 and 1")
    if share == 0:
        return dp.NoOpDpEvent()
    return inner if share == 1 else None


def _noise(event: DpEvent) -> float:
    """The noise multiplier at the bottom of `event`, checked; 1.0 for mechanisms that state their
    noise otherwise."""
    while hasattr(event, "event"):
        event = event.event
    noise = getattr(event, "noise_multiplier", getattr(event, "standard_deviation", 1.0))
    require(noise >= 0, "noise_multiplier", noise, "must not be negative")
    moves = [
        c
        for c, p in zip(getattr(event, "sensitivities", [1]), getattr(event, "sampling_probs", [1]))
        if p
    ]
    return noise if any(moves) else math.inf
