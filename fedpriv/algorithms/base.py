"""Algorithms: what a silo computes in a round, and what whoever learns the total does with it.

One round is `plan` (public, no data), `local_update` at each silo, the aggregation's exchange, and `global_update`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedpriv.accountants.events import Event
    from fedpriv.aggregation.base import Aggregation, Total
    from fedpriv.aggregation.fixed_point import Grid
    from fedpriv.convexity import ConvexLoss
    from fedpriv.data.allocation import Allocation
    from fedpriv.data.base import DataSet
    from fedpriv.data.silo import SiloData
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.streams import Streams
    from fedpriv.tasks import Task


@dataclass(frozen=True)
class Federation:
    """What everybody knows before the first round: how many users, silos and model parameters there are.

    silo_records: training records of each silo, for algorithms that declare them public; empty before the allocation.
    loss: what is known to be convex about the training, None for nothing.
    """

    n_users: int
    n_silos: int
    n_parameters: int
    silo_records: tuple[int, ...] = ()
    loss: ConvexLoss | None = None


@dataclass(frozen=True)
class Plan:
    """One round, fixed before anybody looks at data.

    cohort: silos that are invited. users: (n_users,) bool, who is sampled, or None for everyone; None also where the
    parties sample in the exchange, so that nobody knows. user_rate: the probability that a user is.
    events: what each observer will have seen once the round is over; charged whether or not there is a sum.
    covered: how many silos the sum covers; their noise shares make up the whole noise.
    code: how messages are made of integers; None: they are real numbers.
    streams: for draws of the server.
    """

    round: int
    cohort: tuple[int, ...]
    users: np.ndarray | None
    events: tuple[Event, ...]
    covered: int
    code: Grid | None
    streams: Streams
    user_rate: float = 1.0


Kept = dict[str, np.ndarray]
"""What a silo keeps between rounds."""


@dataclass(frozen=True)
class Local:
    """What a silo trains with: its data and private streams, and a module that any weights are loaded into.

    kept: what the algorithm has let it keep from earlier rounds; empty in the first.
    """

    silo: int
    data: SiloData
    model: nn.Module
    task: Task
    mechanism: Mechanism
    streams: Streams
    kept: Kept = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The silo's name as a party."""
        return f"silo{self.silo}"


@dataclass(frozen=True)
class Contributions:
    """Some units' bounded vectors, streamed in blocks so that memory does not grow with the number of units.

    units: (k,) int64 ids. vectors: (k, d) float64 on the training device, each within the mechanism's bound.
    """

    units: np.ndarray
    vectors: torch.Tensor


@dataclass
class Tally:
    """Non-private diagnostics of one silo's update, filled while its blocks stream by."""

    units: int = 0
    nonfinite: int = 0
    clipped: int = 0
    norm_sum: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.units + other.units,
            self.nonfinite + other.nonfinite,
            self.clipped + other.clipped,
            self.norm_sum + other.norm_sum,
        )


@dataclass(frozen=True)
class Update:
    """One silo's part of a round: a stream of contributions, its noise share (d,) float64, and the tally they leave.

    kept: filled while the blocks stream by, with what the silo may keep. With it, a silo whose message nobody asks for
    trains all the same; None: the silo keeps nothing.
    """

    blocks: Iterator[Contributions]
    noise: np.ndarray
    tally: Tally = field(default_factory=Tally)
    kept: Kept | None = None


@dataclass(frozen=True)
class Algorithm(ABC):
    """A federated algorithm by its configuration; it keeps no state between rounds."""

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:  # noqa: B027
        """Raise ConfigError for combinations that cannot work; no data is loaded yet."""

    def cohort_size(self, federation: Federation) -> int:
        """How many silos are invited to a round."""
        return federation.n_silos

    def message_bound(self, federation: Federation, mechanism: Mechanism, covered: int) -> float:
        """A size that no coordinate of a silo's message exceeds, from public numbers alone; inf when there is none.

        covered: how many silos the sum covers.
        """
        return math.inf

    def agree(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> tuple[int, Grid | None]:
        """A plan's `covered` and `code`. Raises ConfigError for settings that cannot work together."""
        covered = aggregation.min_cohort(self.cohort_size(federation))
        bound = self.message_bound(federation, mechanism, covered)
        code = aggregation.code(covered, bound, federation, mechanism) or mechanism.code(covered, bound)
        return covered, code

    @property
    def plans_from_allocation(self) -> bool:
        """Whether plans, and so epsilons, need to know how many records each silo trains on."""
        return False

    @property
    def plans_alike(self) -> bool:
        """Whether every round's plan has the same events, so that one round tells what all of them cost."""
        return True

    def settle(self, allocation: Allocation, data: DataSet) -> tuple[Algorithm, Allocation]:
        """Once, after the allocation: the algorithm with every setting a number, and the records that it trains on."""
        return self, allocation

    def calibrated(
        self, mechanism: Mechanism, federation: Federation, aggregation: Aggregation, streams: Streams
    ) -> Mechanism:
        """Once, after `settle`: the mechanism with its noise a number."""
        return mechanism

    @property
    def sampling_rate(self) -> float:
        """Probability that a user takes part in a round."""
        return 1.0

    @property
    @abstractmethod
    def label(self) -> str:
        """The method's name in its paper's figures."""

    @property
    @abstractmethod
    def needs_counts(self) -> bool:
        """Whether the weights depend on how many records each user has in each silo."""

    @abstractmethod
    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Weight of each unit in each silo, (n_silos, n_units), from counts of that shape; columns sum to at most 1.

        When `needs_counts` is False only the shape of `counts` is used.
        """

    @abstractmethod
    def counts(self, local: Local, federation: Federation) -> np.ndarray:
        """Records of each unit in this silo, (n_units,) int64."""

    @abstractmethod
    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        """What will happen in this round and what each observer will learn; looks at no data."""

    @abstractmethod
    def local_update(self, local: Local, plan: Plan, theta: np.ndarray) -> Update:
        """One silo's contributions and noise share, from the global parameters (d,) float64."""

    @abstractmethod
    def global_update(self, theta: np.ndarray, total: Total, federation: Federation) -> np.ndarray:
        """New global parameters from the sum over the silos that it covers; the only place that divides."""

    def keep(self, kept: dict[str, Kept], total: Total) -> dict[str, Kept]:
        """After a round with a sum: what each silo keeps, by name, of what its update let it keep. A round without a
        sum changes nothing."""
        return kept
