"""The public settings of a run, fixed once data are allocated and noise is calibrated.

An algorithm plans a round from its number and a `Plan` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.data.stability import NO_STAGES, Stability
from fedpriv.errors import require
from fedpriv.training.optimizers import LocalOptimizer, Sgd

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.models.tasks import ConvexLoss
    from fedpriv.util.streams import Streams

UPDATE = "update"
"""Name of the query that most algorithms make, once a round."""
UNSAID = "the aggregation does not say what it learns"


@dataclass(frozen=True)
class Federation:
    """Public numbers of the federation.

    n_users: number of users.
    n_silos: number of silos.
    n_parameters: number of model parameters.
    silo_records: number of training records of each silo, for algorithms that declare them public;
        empty before the allocation.
    records_per_draw: size of the groups in which a user's records of one silo come; 2 for Cox
        losses, which need pairs.
    records_per_user: largest number of training records of a user, over all silos; None: no bound.
    loss: proven convexity and smoothness of the loss; None: nothing is proven.
    stability: distance of neighbouring data sets after preprocessing, before the first event.
    authors: names of classes of other packages whose word this distance is: an allocator, or a
        method that chooses its records.
    one_silo_each: whether every user has records in one silo only, by how owners are found.
    """

    n_users: int
    n_silos: int
    n_parameters: int
    silo_records: tuple[int, ...] = ()
    records_per_draw: int = 1
    records_per_user: int | None = None
    loss: ConvexLoss | None = None
    stability: Stability = NO_STAGES
    authors: tuple[str, ...] = ()
    one_silo_each: bool = False


@dataclass(frozen=True)
class Observer:
    """An observer, and what the aggregation shows it beside the released models.

    name: name of the observer.
    sees_messages: whether it sees every silo's noised message, not only the total.
    sees_sample: whether it sees which users are sampled for a round.
    sees_counts: how it learns record counts when weights depend on them; None: it does not.
    own_shares: number of noise shares of a sum that it can subtract: its own, and those of
        colluding silos.
    why_uncertified: why no certificate holds against it; None: the protocol's guarantees hold.
    colluding: number of silos that reveal their noise shares to it.
    cheats: whether it may break the protocol; all others follow it.
    """

    name: str
    sees_messages: bool = False
    sees_sample: bool = True
    sees_counts: str | None = None
    own_shares: int = 0
    why_uncertified: str | None = None
    colluding: int = 0
    cheats: bool = False

    @property
    def subtracts(self) -> tuple[str, ...]:
        """The assumptions of a certificate against an observer that knows a share of the noise."""
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
    """The threat model that an aggregation declares.

    observers: everyone who may see something.
    learners: names of the parties that learn the total; empty: the invited silos.
    assumptions: assumptions of every certificate.
    cheating: why a server that cheats may learn more than one that follows the protocol; None: the
        silos let it learn no more.
    """

    observers: tuple[Observer, ...]
    learners: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    cheating: str | None = UNSAID


@dataclass(frozen=True)
class QueryParameters:
    """The public numbers of all queries of one name.

    mechanism: bound and noise of a contribution.
    n_invited: number of invited silos.
    n_summed: number of silos in a released sum; noise shares are sized for it.
    encoding: integer encoding of messages; None: messages are real numbers.
    n_most: largest number of silos in a sum if surplus noise can be removed; `n_summed` is then the
        smallest. None: exactly `n_summed`.
    """

    mechanism: Mechanism
    n_invited: int
    n_summed: int
    encoding: Encoding | None
    n_most: int | None = None

    def check_noise(self, sensitivity: float = 1.0) -> None:
        """Raise ConfigError if the encoding's grid is too coarse for a noise share or a part of
        one."""
        self.mechanism.check_encoding(self.n_summed, self.encoding, sensitivity)
        if self.n_most is not None:
            from fedpriv.mechanisms.removable_noise import LEAST_PART, smallest_part

            parts = smallest_part(self.n_summed, self.n_most)
            self.mechanism.check_encoding(parts, self.encoding, sensitivity, least=LEAST_PART)


@dataclass(frozen=True)
class Plan:
    """The public plan of a run.

    federation: public numbers of the federation.
    query_parameters: parameters of each query, by the query's name.
    threat_model: observers, and the assumptions of their certificates.
    streams: random streams of the run.
    optimizer: optimiser of local training.
    authors: names of classes of other packages whose word the threat model is.
    """

    federation: Federation
    query_parameters: Mapping[str, QueryParameters]
    threat_model: ThreatModel
    streams: Streams
    optimizer: LocalOptimizer = Sgd()
    authors: tuple[str, ...] = ()

    @property
    def parameters(self) -> QueryParameters:
        """The parameters of an algorithm's only query."""
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
        """The observer of this name, for which noise can be calibrated. Raises ConfigError if the
        aggregation has none."""
        found = {one.name: one for one in self.threat_model.observers if not one.cheats}
        require(
            name in found,
            "algo.observer",
            name,
            f"an observer of this aggregation: {', '.join(found)}",
        )
        return found[name]

    @property
    def noise_multipliers(self) -> dict[str, float]:
        """The noise multiplier of each query, by the query's name."""
        return {name: one.mechanism.noise_multiplier for name, one in self.query_parameters.items()}

    @property
    def sums(self) -> bool:
        """Whether a total is the sum of the messages, so that it shows no single one."""
        return not self.observer(RELEASED_MODEL).sees_messages

    @property
    def hides_messages(self) -> bool:
        """Whether no observer sees a single silo's message."""
        return not any(observer.sees_messages for observer in self.threat_model.observers)

    @property
    def hides_sample(self) -> bool:
        """Whether no observer sees which users are sampled. The parties then sample inside the
        protocol."""
        return not any(observer.sees_sample for observer in self.threat_model.observers)
