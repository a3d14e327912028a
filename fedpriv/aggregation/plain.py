"""Summation in the clear: each silo sends its weighted, noised vector to the server.

Trust: the server sees every silo's message, and with weights that depend on record counts it sees the counts too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, Aggregation, AggregationAborted, Party

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Plan, Update

WEIGHT_TOLERANCE = 1e-12


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
        shown = {name: own if needs_counts else np.zeros_like(own) for name, own in counts.items()}
        parties = {name: self._silo_setup(own, memory[name]) for name, own in shown.items()}
        return {SERVER: self._server_setup(list(counts), weigh), **parties}

    def _silo_setup(self, counts: np.ndarray, memory: dict[str, Any]) -> Party:
        inbox = yield {SERVER: counts}
        memory["weights"] = inbox[SERVER]

    def _server_setup(self, silos: list[str], weigh: Callable[[np.ndarray], np.ndarray]) -> Party:
        inbox = yield {}
        _all_present(silos, inbox)
        weights = weigh(np.stack([inbox[name] for name in silos]))
        worst = weights.sum(axis=0).max()
        if weights.min() < 0 or worst > 1 + WEIGHT_TOLERANCE:
            raise ValueError(f"weights of a unit add up to {worst}: the sensitivity bound needs at most 1")
        yield dict(zip(silos, weights))

    def exchange(self, plan: Plan, updates: dict[str, Update], memory: dict[str, dict[str, Any]]) -> dict[str, Party]:
        parties = {name: self._silo(update, memory[name]) for name, update in updates.items()}
        return {SERVER: self._server(list(updates)), **parties}

    def _silo(self, update: Update, memory: dict[str, Any]) -> Party:
        import torch

        vector = update.noise.copy()
        for block in update.blocks:
            weights = torch.from_numpy(memory["weights"][block.units]).to(block.vectors.device)
            vector += (weights @ block.vectors).cpu().numpy()
        yield {SERVER: vector}

    def _server(self, silos: list[str]) -> Party:
        inbox = yield {}
        _all_present(silos, inbox)
        return sum(inbox[name] for name in silos)


def _all_present(silos: list[str], inbox: dict[str, Any]) -> None:
    missing = [name for name in silos if name not in inbox]
    if missing:
        # Without its noise share the sum would be less private than declared.
        raise AggregationAborted(f"no message from {', '.join(missing)}")
