"""What aggregations whose messages are masked integers have in common: the ring, and who learns
what."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedpriv.aggregation.base import Aggregation
from fedpriv.aggregation.weighted import WeightedSilo
from fedpriv.encoding.fixed_point import UNBOUNDED_RANGE, FixedPoint, check_ring
from fedpriv.errors import ConfigError
from fedpriv.parties.schema import Array, Schema, SchemaError

if TYPE_CHECKING:
    import numpy as np

    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.rounds.plan import Federation
    from fedpriv.rounds.query import Query, Update


AUTO = "auto"


@dataclass(frozen=True)
class RingAggregation(Aggregation):
    """Sums modulo 2^bits, of which the server sees nothing else.

    bits: 64, 32, or "auto": 32 where rounding costs next to nothing, else 64 (`Planner`).
    range: largest size of a coordinate of a silo's noised, weighted vector, a public bound;
        OutOfRangeError beyond it. null: chosen from the clip bound, the noise and the number of
        silos, `UNBOUNDED_RANGE` where nothing is clipped. Where messages are bounded a range below
        their bound is refused: whether a run fails would depend on its data.
    """

    bits: int | str = 64
    range: float | None = None

    def __post_init__(self) -> None:
        if self.bits != AUTO:
            check_ring(self.bits, self.range)

    def narrower(self) -> RingAggregation | None:
        return replace(self, bits=32) if self.bits == AUTO else None

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> FixedPoint:
        if self.range is not None and self.range < bound < math.inf:
            raise ConfigError(
                "aggregation.range",
                self.range,
                f"at least {float(bound)!r}, which messages can reach, or null",
            )
        derived = UNBOUNDED_RANGE if bound == math.inf else bound
        bits = self.bits if isinstance(self.bits, int) else 64
        encoding = FixedPoint(bits, derived if self.range is None else self.range, n_summed)
        _ = encoding.precision  # raises when nothing fits
        return encoding


@dataclass(repr=False)
class RingSilo(WeightedSilo):
    """A silo whose messages are integers modulo R."""

    def encoded(self, update: Update, encoding: FixedPoint) -> np.ndarray:
        """The silo's message in the clear, (size,) integers modulo R: its weighted sum and its
        noise share."""
        return encoding.encode(self.weighted_sum(update), self.name, update.noise)


def ring_message(query: Query) -> Array:
    """A silo's message: any integers modulo R, as many as the model has parameters."""
    return Array(ring_encoding(query).dtype, (query.size,))


@dataclass(frozen=True)
class InRange(Schema):
    """Integers modulo R in the clear, which one honest silo's message can be."""

    array: Array
    encoding: FixedPoint

    def check(self, message: Any) -> None:
        self.array.check(message)
        if not self.encoding.reached_by(1, message):
            raise SchemaError(f"a coordinate beyond {self.encoding.bound:g}")


def clear_message(query: Query) -> InRange:
    """A silo's message that nothing hides."""
    return InRange(ring_message(query), ring_encoding(query))


def ring_encoding(query: Query) -> FixedPoint:
    """How the query's messages are made of integers modulo R."""
    if not isinstance(query.encoding, FixedPoint):
        raise ValueError(
            f"messages in a ring are encoded as fixed-point numbers, not as {query.encoding}"
        )
    return query.encoding
