"""What a party is told from outside before an exchange. Everything else it knows from its own
settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.parties.messages import register
from fedpriv.rounds.query import Broadcast

SESSION_BYTES = 16
"""Length of a session's name: 8 bytes of time in nanoseconds, big-endian, and 8 random bytes."""


@register
@dataclass(frozen=True)
class SetUpTask:
    """Asks for a set-up.

    session: names all messages up to the next set-up; larger than the one before.
    silos: names of the silos that take part.
    state: arrays of the state that silos continue from if no helper holds it; None: a helper does.
    aborted: round and place of the last query if it had no sum; None: it had one.
    """

    session: bytes
    silos: tuple[str, ...]
    state: dict[str, np.ndarray] | None = None
    aborted: tuple[int, int] | None = None


@register
@dataclass(frozen=True)
class QueryTask:
    """Asks for one query.

    round: number of the round, from 1.
    place: of the query in its round, from 0.
    repeats: as in `Query`.
    broadcast: what a helper sends down. Where no helper is, the sample of users alone; None: all.
    """

    round: int
    place: int
    repeats: int = 0
    broadcast: Broadcast | None = None
