"""Aggregations: how the parties sum contributions, and who learns what while doing so.

A protocol is a set of parties, each a generator: it yields `{receiver: message}` and is sent `{sender: message}`. The
object itself is frozen configuration; what a party must remember between rounds lives in its own `memory`, so a secret
of one party can never be shipped to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.engines.messages import register
from fedpriv.errors import FedprivError

if TYPE_CHECKING:
    from fedpriv.aggregation.fixed_point import Grid
    from fedpriv.algorithms.base import Algorithm, Federation, Plan, Update
    from fedpriv.mechanisms.base import Mechanism

Party = Generator[dict[str, Any], dict[str, Any], Any]
"""A protocol's participant; its return value is what it has learned."""

SERVER = "server"


class AggregationAborted(FedprivError):
    """The exchange ended without a sum; nothing is released in this round."""


@register
@dataclass(frozen=True)
class Total:
    """What a round's exchange gives to whoever learns it: the sum (d,) float64, and the parties that are in it."""

    vector: np.ndarray
    parties: tuple[str, ...]


@dataclass(frozen=True)
class Outlook:
    """Sizes and costs in `lines`, and how many seconds a round's sum will take when one process does all the work."""

    lines: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Aggregation(ABC):
    """How contributions are summed."""

    def check(self, algo: Algorithm) -> None:  # noqa: B027
        """Raise ConfigError for an algorithm whose contributions or weights this aggregation cannot serve."""

    def min_cohort(self, silos: int) -> int:
        """How many silos a released sum covers when `silos` are invited; with fewer the round ends without one.

        Noise shares are sized for so many. Raises ConfigError for settings that cannot work with `silos`.
        """
        return silos

    def code(self, covered: int, bound: float, federation: Federation, mechanism: Mechanism) -> Grid | None:
        """How messages are made of integers when sums cover `covered` silos and no coordinate of a message exceeds
        `bound`; None: they are real numbers. Raises ConfigError when nothing fits."""
        return None

    @property
    @abstractmethod
    def hides_messages(self) -> bool:
        """Whether the server sees only the sum, not each silo's message."""

    @property
    @abstractmethod
    def hides_counts(self) -> bool:
        """Whether weights that depend on record counts reach nobody in the clear."""

    @property
    def hides_sample_from(self) -> frozenset[str]:
        """Observers (`server`, `silo`) who do not see which users are sampled for a round."""
        return frozenset()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What every observer's certificate rests on as far as the exchange goes."""
        return ()

    def flaw(self, observer: str) -> str | None:
        """Why nothing can be certified against this observer; None where the exchange keeps what it promises."""
        return None

    def for_silos(self, plan: Plan) -> Plan:
        """What the silos are told of a plan before they compute."""
        return plan

    def outlook(self, plan: Plan, federation: Federation, rounds: int) -> Outlook | None:
        """What a person should know before so many rounds begin; None where sums take no time worth telling."""
        return None

    @abstractmethod
    def setup(
        self,
        counts: dict[str, np.ndarray],
        weigh: Callable[[np.ndarray], np.ndarray],
        needs_counts: bool,
        memory: dict[str, dict[str, Any]],
    ) -> dict[str, Party]:
        """Parties of the exchange before the first round, by name.

        counts: each silo's records per unit, (n_units,). weigh: the algorithm's weights from the (n_silos, n_units)
        table. memory: one dictionary a party, which only that party's generator may touch; it holds what a message
        may hold (engines.messages), since a party that ran in another process brings it home as one.
        """

    @abstractmethod
    def exchange(self, plan: Plan, updates: dict[str, Update], memory: dict[str, dict[str, Any]]) -> dict[str, Party]:
        """Parties of one round. Whoever learns the total returns a Total; the others return None.

        A party raises AggregationAborted when the sum cannot be had.
        """
