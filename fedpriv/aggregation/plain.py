"""Summation in the clear: each silo sends its weighted, noised vector to the server.

Trust: the server sees every silo's message, and with weights that depend on record counts it sees the counts too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, Aggregation, Party
from fedpriv.aggregation.weighted import add_messages, fetch_weights, hand_out_weights, message, shown_counts

if TYPE_CHECKING:
    from fedpriv.aggregation.fixed_point import FixedPoint
    from fedpriv.algorithms.base import Plan, Update


@dataclass(frozen=True)
class Plain(Aggregation):
    """The sum of the silos' messages, added in the order of the cohort."""

    @property
    def hides_messages(self) -> bool:
        return False

    @property
    def hides_counts(self) -> bool:
        return False

    def setup(
        self,
        counts: dict[str, np.ndarray],
        weigh: Callable[[np.ndarray], np.ndarray],
        needs_counts: bool,
        memory: dict[str, dict[str, Any]],
    ) -> dict[str, Party]:
        parties = {
            name: fetch_weights(shown, memory[name]) for name, shown in shown_counts(counts, needs_counts).items()
        }
        return {SERVER: hand_out_weights(list(counts), weigh), **parties}

    def exchange(self, plan: Plan, updates: dict[str, Update], memory: dict[str, dict[str, Any]]) -> dict[str, Party]:
        parties = {name: self._silo(name, update, memory[name], plan.code) for name, update in updates.items()}
        return {SERVER: add_messages(list(updates), plan.code), **parties}

    def _silo(self, name: str, update: Update, memory: dict[str, Any], code: FixedPoint | None) -> Party:
        yield {SERVER: message(name, update, memory, code)}
