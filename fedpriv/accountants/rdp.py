"""The accountant of Renyi differential privacy, and the epsilons that papers claim by it (see
`renyi`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import ADD_REMOVE, REPLACE, Runs, leaves
from fedpriv.accountants.group import (
    group_rdp_epsilon,
    lemma_claim,
    paper_group_claim,
    require_proof,
)
from fedpriv.accountants.renyi import ORDERS, PAPER_ORDERS, convert, event_curve, rdp_curve


@dataclass(frozen=True)
class Rdp(Accountant):
    """Epsilon by the sum of Renyi curves, minimised over `ORDERS`."""

    def epsilons(self, runs: Runs, adjacency: str, group_size: int = 1) -> dict[str, float]:
        """See `Accountant.epsilons`; the method is "rdp"."""
        if group_size > 1:
            require_proof(runs, adjacency, group_size)
            return {"rdp": group_rdp_epsilon(runs, group_size, self.delta)}
        return {"rdp": rdp_epsilon(runs, adjacency, self.delta)}


def rdp_epsilon(
    runs: Runs, adjacency: str, delta: float, *, orders: tuple[float, ...] = ORDERS
) -> float:
    """Epsilon at `delta` of `runs`, minimised over `orders`; inf when an event is not private."""
    curve = rdp_curve(runs, adjacency, orders)
    return convert(orders, curve, delta)


def claimed_epsilon(runs: Runs, delta: float, group_size: int = 1) -> float:
    """The epsilon that a paper claims for `runs`: each event by its own curve, on the papers'
    orders; claims of zCDP by their papers' formula. Groups of records: by `lemma_claim` of these,
    else as Uldp-FL does.

    A claim is not checked, so an event is taken under the adjacency in which its curve exists,
    whatever is stated.
    """
    from dp_accounting import SampledWithoutReplacementDpEvent

    from fedpriv.accountants.zcdp import ZcdpClaim

    found = leaves(runs)
    if found is None:
        return float("inf")
    claims = [(leaf, count) for leaf, count in found.items() if isinstance(leaf, ZcdpClaim)]
    if claims and len(claims) == len(found):
        kind, *others = {type(leaf) for leaf, _ in claims}
        if others:
            raise ValueError(f"claims by different formulas have no common one: {kind}, {others}")
        rho = sum(count * leaf.rho for leaf, count in claims)
        return lemma_claim(lambda delta_1: kind.epsilon(rho, delta_1), group_size, delta)
    if group_size > 1:
        return paper_group_claim(runs, group_size, delta)
    curve = np.zeros(len(PAPER_ORDERS))
    for leaf, count in found.items():
        adjacency = REPLACE if isinstance(leaf, SampledWithoutReplacementDpEvent) else ADD_REMOVE
        curve += count * event_curve(leaf, adjacency, PAPER_ORDERS)
    return convert(PAPER_ORDERS, curve, delta)
