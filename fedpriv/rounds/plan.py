"""Everything that is public and fixed once data are allocated and noise is calibrated.

Planning takes a round and a `Plan`, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.data.stability import NO_STAGES, Stability
from fedpriv.errors import require
from fedpriv.training.optimizers import LocalOptimizer, Sgd

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.models.convexity import ConvexLoss
    from fedpriv.util.streams import Streams

UPDATE = "update"
"""The name of the query that most algorithms make, once a round."""


@dataclass(frozen=True)
class Federation:
    """What everybody knows before the first round: how many users, silos and model parameters there
    are.

    silo_records: training records of each silo, for algorithms that declare them public; empty
        before the allocation.
    records_per_draw: records of a user in one silo come in groups of this size (2 for Cox losses,
        which need pairs).
    records_per_user: most records of a user that train, over all silos; None where nothing bounds
        them.
    loss: what is known to be convex about the training, None for nothing.
    stability: how far apart neighbouring files are when the first event happens.
    """

    n_users: int
    n_silos: int
    n_parameters: int
    silo_records: tuple[int, ...] = ()
    records_per_draw: int = 1
    records_per_user: int | None = None
    loss: ConvexLoss | None = None
    stability: Stability = NO_STAGES


@dataclass(frozen=True)
class Observer:
    """Somebody who may look, and what the aggregation shows them beside the models that are
    released.

    sees_messages: every silo's noised message, not the total alone.
    sees_sample: which users are sampled for a round.
    sees_counts: how record counts reach it where weights depend on them; None where they do not.
    own_shares: how many noise shares of a sum it knows and can subtract: its own, and those of
        silos that collude.
    colluding: silos that tell it theirs.
    why_uncertified: why nothing can be certified against it; None where the protocol keeps what it
        promises.
    """

    name: str
    sees_messages: bool = False
    sees_sample: bool = True
    sees_counts: str | None = None
    own_shares: int = 0
    why_uncertified: str | None = None
    colluding: int = 0

    @property
    def subtracts(self) -> tuple[str, ...]:
        """What a certificate against it rests on if it knows a share of the noise."""
        if self.colluding:
            return (
                f"one {self.name} subtracts all noise that it and colluding silos "
                f"({self.colluding}) know",
            )
        return (
            (f"one {self.name} subtracts its own noise share and does not collude",)
            if self.own_shares
            else ()
        )


@dataclass(frozen=True)
class ThreatModel:
    """What an aggregation says of itself: who may look, which parties learn the total, what all of
    that rests on."""

    observers: tuple[Observer, ...]
    learners: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class QueryParameters:
    """The public numbers of all queries of one name.

    n_invited: silos that are invited.
    n_summed: silos that a released sum covers; noise shares are sized for so many.
    n_most: silos that it may cover where surplus noise is taken out, `n_summed` being the fewest;
        None: exactly those.
    encoding: how messages are made of integers; None: they are real numbers.
    """

    mechanism: Mechanism
    n_invited: int
    n_summed: int
    encoding: Encoding | None
    n_most: int | None = None

    def check_noise(self, sensitivity: float = 1.0) -> None:
        """Raise ConfigError when a noise share, or a part of one, cannot be told in whole grid
        steps."""
        self.mechanism.check_encoding(self.n_summed, self.encoding, sensitivity)
        if self.n_most is not None:
            from fedpriv.mechanisms.removable_noise import LEAST_PART, smallest_part

            parts = smallest_part(self.n_summed, self.n_most)
            self.mechanism.check_encoding(parts, self.encoding, sensitivity, least=LEAST_PART)


@dataclass(frozen=True)
class Plan:
    """query_parameters: those of each query that the algorithm makes, by the query's name.
    optimizer: of local training.
    checked: whether the algorithm's class has passed `fedpriv.testing` as it stands.
    """

    federation: Federation
    query_parameters: Mapping[str, QueryParameters]
    threat_model: ThreatModel
    streams: Streams
    optimizer: LocalOptimizer = Sgd()
    checked: bool = False

    @property
    def parameters(self) -> QueryParameters:
        """That of an algorithm with a single kind of query."""
        (parameters,) = self.query_parameters.values()
        return parameters

    @property
    def mechanism(self) -> Mechanism:
        return self.parameters.mechanism

    @property
    def n_summed(self) -> int:
        return self.parameters.n_summed

    @property
    def encoding(self) -> Encoding | None:
        return self.parameters.encoding

    def observer(self, name: str) -> Observer:
        """The observer of this name. Raises ConfigError where the aggregation has none."""
        found = {observer.name: observer for observer in self.threat_model.observers}
        require(
            name in found,
            "algo.observer",
            name,
            f"an observer of this aggregation: {', '.join(found)}",
        )
        return found[name]

    @property
    def hides_messages(self) -> bool:
        """Whether nobody sees a single silo's message."""
        return not any(observer.sees_messages for observer in self.threat_model.observers)

    @property
    def hides_sample(self) -> bool:
        """Whether nobody sees which users are sampled, so that the parties draw them in the
        exchange."""
        return not any(observer.sees_sample for observer in self.threat_model.observers)
