"""Aggregations: how the parties sum contributions, and what each of them learns.

An aggregation is frozen configuration. Each party keeps its memory in a `SiloProtocol` or a
`HelperProtocol`. That object is created in the party's own process, and its attributes never leave
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError, require
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post
from fedpriv.parties.signer import CHECKSUM, Signer
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import UNSAID, Federation, Observer, ThreatModel
from fedpriv.rounds.query import Broadcast, Query, SetUpTask

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism

SERVER = "server"
BROADCAST = "broadcast"
"""Phase in which the server sends a query down to the silos."""
MESSAGE = "message"
"""Phase in which the silos answer."""

Respond = Callable[[Broadcast], LocalJob]
"""What a silo answers to a broadcast. It trains when the job's contributions are read."""

EncodingType = TypeVar("EncodingType")


class CohortSize(NamedTuple):
    """How many silos a released sum covers.

    least: with fewer silos the query ends without a sum; noise shares are sized for this number.
    most: upper limit, where surplus noise is removed from the sum; None: exactly `least`.
    """

    least: int
    most: int | None = None


class SiloProtocol(ABC):
    """One silo's part in the sums of a run; its attributes are the silo's memory.

    signer: signs its messages; replaced before each set-up.
    """

    signer: Signer = CHECKSUM

    @abstractmethod
    def setup(self, task: SetUpTask, counts: np.ndarray) -> Party:
        """Take part in the exchange before the first round.

        counts: this silo's records per unit, (n_units,) int64.
        """

    @abstractmethod
    def query(self, query: Query, respond: Respond) -> Party:
        """Take part in one query. Return a Total if silos learn it, else None.

        query: as the silo computes it from its own settings.
        respond: turns a broadcast into a job. Without a helper it ignores the broadcast and
            uses the silo's own state.

        Raises AggregationAbortedError when there is no sum.
        """


class HelperProtocol(ABC):
    """The part of a party without records, such as a server, in the sums of a run.

    signer: signs its messages; replaced before each set-up.
    """

    signer: Signer = CHECKSUM

    def setup(self, task: SetUpTask, n_units: int) -> Party:
        """Take part in the exchange before the first round. By default there is nothing to
        exchange.

        n_units: number of contributors: users, silos or records.
        """
        yield {}

    @abstractmethod
    def query(self, query: Query, broadcast: Broadcast) -> Party:
        """Take part in one query. Return a Total if this party learns it, else None.

        The first helper sends `broadcast` to the invited silos. Raises AggregationAbortedError when
        there is no sum.
        """


@dataclass(frozen=True)
class Aggregation(ABC):
    """How contributions are summed.

    A subclass needs a threat model, a silo protocol and a helper protocol:

    >>> from fedpriv.aggregation.plain import Plain
    >>> aggregation = Plain()
    >>> aggregation.threat_model().learners
    ('server',)
    >>> aggregation.cohort_size(n_invited=5).least
    5
    >>> aggregation.helpers
    ('server',)
    """

    @abstractmethod
    def threat_model(self) -> ThreatModel:
        """Who observes what, who learns the total, and on which assumptions this rests."""

    @abstractmethod
    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SiloProtocol:
        """The protocol of silo `name`, one of `silos`; called in that silo's process."""

    @abstractmethod
    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> HelperProtocol:
        """The protocol of helper `name`; called in that helper's process."""

    @property
    def weighs_at_silos(self) -> bool:
        """Whether a silo's message is made of `LocalJob.row` of its own weighted sum, so that it
        can repeat earlier sums."""
        return False

    @property
    def helpers(self) -> tuple[str, ...]:
        """Names of the parties without records. The first one sends queries to the silos. Without
        helpers every silo holds the state."""
        return (SERVER,)

    def adapt(self, algo: Algorithm) -> Algorithm:
        """The algorithm with contributions that this aggregation can sum. Raises ConfigError if
        there are none, or if it cannot serve the algorithm's weights."""
        return algo

    def cohort_size(self, n_invited: int) -> CohortSize:
        """How many of the invited silos a released sum covers. Raises ConfigError for settings that
        cannot work with `n_invited`."""
        return CohortSize(n_invited)

    @property
    def never_repeats(self) -> bool:
        """Whether the contributions of a query without a sum must stay out of all later sums,
        because both exchanges together could determine them."""
        return False

    @property
    def fewest(self) -> int | None:
        """The fewest silos that a run goes on with when the others stay silent; None: all. The
        range of messages holds noise shares of so few."""
        return None

    def continues_with(self, n_silos: int) -> bool:
        """Whether a run goes on with this many silos."""
        if self.fewest is None or n_silos < self.fewest:
            return False
        try:
            self.cohort_size(n_silos)
        except ConfigError:
            return False
        return True

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> Encoding | None:
        """How messages become integers; None if they are real numbers.

        n_summed: most silos in a sum.
        bound: largest absolute coordinate of a message.

        Raises ConfigError when nothing fits.
        """
        return None

    def narrower(self) -> Aggregation | None:
        """The same aggregation with shorter messages, which the `Planner` takes if rounding costs
        next to nothing; None if the settings do not ask for it."""
        return None

    def estimate(self, query: Query, federation: Federation) -> tuple[str, ...]:
        """Lines about the sizes and risks of a sum; none where sums cost next to nothing."""
        return ()


def require_setting(aggregation: Aggregation, key: str, holds: bool, allowed: str) -> None:
    """Raise ConfigError for the aggregation's setting `key` unless `holds`."""
    require(holds, f"aggregation.{key}", getattr(aggregation, key), allowed)


def encoding_of(query: Query, encoding_type: type[EncodingType]) -> EncodingType:
    """The query's encoding. Raises ValueError if it has another type."""
    if not isinstance(query.encoding, encoding_type):
        raise ValueError(
            f"query {query.name}: messages need {encoding_type.__name__}, not {query.encoding}"
        )
    return query.encoding


def awaited_broadcast(post: Post, query: Query) -> Generator[Mail, Mail, Broadcast | None]:
    """A silo's first step of a query: wait for the broadcast. None when nothing comes; the silo
    then takes no part."""
    received = yield from post.receive(Expected(BROADCAST, query.broadcast_schema, (SERVER,)))
    return received.get(SERVER)


def server_trust(
    *, sees_messages: bool, assumptions: tuple[str, ...], cheating: str | None = UNSAID
) -> ThreatModel:
    """The threat model of a server that hands out weights, samples users and learns the sum.

    sees_messages: whether the server sees every silo's message too.
    assumptions: what all of this rests on.
    cheating: as in `ThreatModel`.
    """
    released, server, silo = OBSERVERS
    counts = "the server learns every user's record counts"
    weights = "a silo's weights reveal its users' records elsewhere"
    observers = (
        Observer(released, sees_sample=False),
        Observer(server, sees_messages=sees_messages, sees_counts=counts),
        Observer(silo, sees_counts=weights, own_shares=1),
    )
    return ThreatModel(observers, (SERVER,), assumptions, cheating)
