"""Sums under pairwise masks that cancel; nobody may drop out.

R. Hu, Y. Guo, Y. Gong, Concentrated differentially private federated learning, Fig. 2 ("secure aggregation with
low communication overhead"). Each pair of silos agrees once on a seed. In round t silo i adds to its encoded vector

    sum over j in the cohort, j != i, of sign(j - i) * PRF(seed_ij, t, cohort)   modulo R.

The paper prints r_ij - r_ji with r_ij = PRF(seed_ij, t); with one agreed seed for a pair both terms are the same and
nothing is hidden, hence the sign. Masks cost two exchanges of public keys once, and no traffic in a round.

Trust: the server follows the protocol (it passes the public keys on, so it could otherwise put its own in between) and
sees uniformly random integers, the sum of all of them, and counts if weights depend on them. If it colludes with some
silos, it learns the sum of the others. A message that never arrives ends the round: no sum is released, but what the
server did receive stays hidden, since the missing silo's masks do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, Party
from fedpriv.aggregation.masks import add_masks, agree, digest, new_key, use_masks_once
from fedpriv.aggregation.ring import RingAggregation
from fedpriv.aggregation.weighted import (
    add_messages,
    fetch_weights,
    hand_out_weights_and_keys,
    message,
    shown_counts,
)

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Plan, Update


@dataclass(frozen=True)
class Masked(RingAggregation):
    """The sum of masked messages modulo 2^bits; the plan's `code` turns vectors into integers."""

    def setup(
        self,
        counts: dict[str, np.ndarray],
        weigh: Callable[[np.ndarray], np.ndarray],
        needs_counts: bool,
        memory: dict[str, dict[str, Any]],
    ) -> dict[str, Party]:
        shown = shown_counts(counts, needs_counts)
        parties = {name: self._silo_setup(name, own, memory[name]) for name, own in shown.items()}
        return {SERVER: hand_out_weights_and_keys(list(counts), weigh), **parties}

    def _silo_setup(self, name: str, counts: np.ndarray, memory: dict[str, Any]) -> Party:
        yield from fetch_weights(counts, memory)
        private, public = new_key()
        keys = (yield {SERVER: public})[SERVER]
        memory["seeds"] = {
            peer: agree(private, key, _pair(name, peer)) for peer, key in keys.items() if peer != name
        }  # the private key is not needed again, and forgotten

    def exchange(self, plan: Plan, updates: dict[str, Update], memory: dict[str, dict[str, Any]]) -> dict[str, Party]:
        cohort = sorted(updates)
        parties = {name: self._silo(name, plan, cohort, update, memory[name]) for name, update in updates.items()}
        return {SERVER: add_messages(cohort, plan.code), **parties}

    def _silo(self, name: str, plan: Plan, cohort: list[str], update: Update, memory: dict[str, Any]) -> Party:
        use_masks_once(name, plan.round, memory)
        encoded = message(name, update, memory, plan.code)
        yield {SERVER: mask(encoded, name, cohort, memory["seeds"], plan.round)}


def mask(encoded: np.ndarray, name: str, cohort: list[str], seeds: dict[str, bytes], round: int) -> np.ndarray:
    """Add to `encoded`, in place, what makes it uniform and cancels in the sum over the cohort."""
    larger = [seeds[peer] for peer in cohort if peer > name]
    smaller = [seeds[peer] for peer in cohort if peer < name]
    return add_masks(encoded, larger, smaller, purpose=digest("masked", round, *sorted(cohort)))


def _pair(name: str, peer: str) -> bytes:
    return digest("masked", *sorted((name, peer)))
