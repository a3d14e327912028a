"""Aggregations: how the parties sum contributions, and who learns what while doing so.

An aggregation is frozen configuration. What a party needs between exchanges lives in its
`SiloProtocol` or `HelperProtocol`, which is made where the party is and whose attributes never
leave it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.algorithms.base import silo_name
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post
from fedpriv.parties.signer import CHECKSUM, Signer
from fedpriv.rounds.plan import ThreatModel
from fedpriv.rounds.query import Broadcast, Query, SetUp, Update
from fedpriv.rounds.weighting import Weighting
from fedpriv.util.work import Work

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Algorithm
    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.rounds.plan import Federation

SERVER = "server"
BROADCAST = "broadcast"
MESSAGE = "message"
"""Phases of most queries: what goes down to the silos, and what comes back."""

Respond = Callable[[Broadcast], Update]
"""What a silo does once it has what was sent down: trains when the update's blocks are asked
for.
"""


def trained(update: Update) -> Generator[Work[Any], Any, Update]:
    """The update, once work for it that gains by waiting for other silos' has been done. Make the
    message of it at once: under a name of its own it would stay in memory, with its noise, in every
    silo until the query ends."""
    if update.ahead is not None and update.ahead.waits:
        update.ahead.give((yield update.ahead.work))
    return update


@dataclass(frozen=True)
class Estimate:
    """Sizes, costs and risks in `lines`, and how many seconds a query's sum will take when one
    process does all the work; None where that is not foreseen."""

    lines: tuple[str, ...]
    seconds: float | None = None


class SiloProtocol(ABC):
    """One silo's part in the sums of a run; its attributes are the silo's memory.

    signer: signs its messages since the set-up.
    """

    signer: Signer = CHECKSUM

    @abstractmethod
    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        """Before the first round.

        counts: this silo's records per unit, (n_units,) int64.
        """

    @abstractmethod
    def query(self, query: Query, respond: Respond) -> Party:
        """One query; returns a Total if silos learn it, else None.

        query: as silos are told (`Query.silo_query`).
        respond: answers what is sent down; where there is no helper, whatever it is given, from the
            silo's own state.

        Raises AggregationAbortedError when the sum cannot be had.
        """


class HelperProtocol(ABC):
    """The part of a party without records, such as a server, in the sums of a run.

    signer: as in `SiloProtocol`.
    """

    signer: Signer = CHECKSUM

    @abstractmethod
    def setup(self, task: SetUp) -> Party:
        """Before the first round."""

    @abstractmethod
    def query(self, query: Query, broadcast: Broadcast) -> Party:
        """One query: sends `broadcast` down to the invited silos first; returns a Total if this
        party learns it.

        Raises AggregationAbortedError when the sum cannot be had.
        """


@dataclass(frozen=True)
class Aggregation(ABC):
    """How contributions are summed."""

    def check(self, algo: Algorithm) -> None:  # noqa: B027
        """Raise ConfigError for an algorithm whose contributions or weights this aggregation cannot
        serve."""

    def serving(self, algo: Algorithm) -> Algorithm:
        """The algorithm with contributions of the kind that this aggregation sums. Raises
        ConfigError where it has none."""
        return algo

    def n_summed(self, n_invited: int) -> int:
        """How many silos a released sum covers when `n_invited` are asked; with fewer the query
        ends without one.

        Noise shares are sized for so many. Raises ConfigError for settings that cannot work with
        `n_invited`.
        """
        return n_invited

    def n_most(self, n_invited: int) -> int | None:
        """How many silos a released sum may cover, `n_summed` being the fewest, where noise that is
        then too much is taken out of it; None: exactly `n_summed`."""
        return None

    @property
    def never_repeats(self) -> bool:
        """Whether what a query without a sum was about must not be in another sum: what parties
        have seen of both could determine it."""
        return False

    def goes_on_with(self, n_silos: int) -> bool:
        """Whether a run goes on with so many silos when the others no longer answer."""
        return False

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> Encoding | None:
        """How messages are made of integers when sums cover at most `n_summed` silos and no
        coordinate of a message exceeds `bound`; None: they are real numbers. Raises ConfigError
        when nothing fits."""
        return None

    def narrower(self) -> Aggregation | None:
        """The same with shorter messages, to be taken where they serve as well (`Planner`); None
        where that is not asked for."""
        return None

    @property
    def helpers(self) -> tuple[str, ...]:
        """Names of the parties beside the silos. The first one sends queries down to the silos;
        where there is none, every silo has the state."""
        return (SERVER,)

    @abstractmethod
    def threat_model(self) -> ThreatModel:
        """Who may look and what they see, who learns the total, and what that rests on."""

    def estimate(self, query: Query, federation: Federation, rounds: int) -> Estimate | None:
        """What a person should know before `rounds` rounds begin; None where sums take no time
        worth telling."""
        return None

    @abstractmethod
    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SiloProtocol:
        """Silo `name`'s part among `silos`, made where it lives."""

    @abstractmethod
    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> HelperProtocol:
        """The part of helper `name`, made where it lives."""


def invited_silos(query: Query) -> tuple[str, ...]:
    """Names of the silos that are asked, in the order of the invitation."""
    return tuple(silo_name(index) for index in query.invited)


def awaited_broadcast(post: Post, query: Query) -> Generator[Mail, Mail, Broadcast | None]:
    """A silo's first step of a query: what is sent down to it; None when nothing is, and then it
    takes no part."""
    heard = yield from post.receive(Expected(BROADCAST, query.broadcast_schema, (SERVER,)))
    return heard.get(SERVER)
