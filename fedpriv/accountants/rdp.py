"""The accountant of Renyi differential privacy (see `renyi`), and the papers' own epsilons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import ADD_REMOVE, REPLACE, Composition, leaves
from fedpriv.accountants.group import lemma_claim, paper_group_claim, require_proof
from fedpriv.accountants.renyi import ORDERS, PAPER_ORDERS, convert, event_curve, rdp_curve
from fedpriv.accountants.split_users import split_epsilon


@dataclass(frozen=True)
class Rdp(Accountant):
    """Epsilon by the sum of Renyi curves, minimised over orders.

    A group's curve is that of its mixture of Gaussians (`fedpriv.accountants.split_users`).
    """

    def epsilons(
        self, composition: Composition, adjacency: str, group_size: int = 1
    ) -> dict[str, float]:
        """See `Accountant.epsilons`; the method is "rdp"."""
        if group_size > 1:
            require_proof(composition, adjacency, group_size)
            return {"rdp": split_epsilon((), group_size, self.delta, everywhere=composition)}
        return {"rdp": rdp_epsilon(composition, adjacency, self.delta)}


def rdp_epsilon(
    composition: Composition, adjacency: str, delta: float, *, orders: tuple[float, ...] = ORDERS
) -> float:
    """Epsilon at `delta` of `composition`, minimised over `orders`; inf if an event is not
    private."""
    curve = rdp_curve(composition, adjacency, orders)
    return convert(orders, curve, delta)


def claimed_epsilon(composition: Composition, delta: float, group_size: int = 1) -> float:
    """The epsilon that a paper claims for `composition`.

    Claims of zCDP use their paper's formula, and `lemma_claim` for groups. Other events use their
    own curves on the papers' orders, and Uldp-FL's rule for groups. A claim is not checked: each
    event is taken under the adjacency in which it has a curve.
    """
    from dp_accounting import SampledWithoutReplacementDpEvent

    from fedpriv.accountants.zcdp import ZcdpClaim

    found = leaves(composition)
    if found is None:
        return float("inf")
    claims = [(leaf, count) for leaf, count in found.items() if isinstance(leaf, ZcdpClaim)]
    if claims and len(claims) == len(found):
        formula, *others = {type(leaf) for leaf, _ in claims}
        if others:
            raise ValueError(f"claims by different formulas do not compose: {formula}, {others}")
        rho = sum(count * leaf.rho for leaf, count in claims)
        return lemma_claim(lambda delta_1: formula.epsilon(rho, delta_1), group_size, delta)
    if group_size > 1:
        return paper_group_claim(composition, group_size, delta)
    curve = np.zeros(len(PAPER_ORDERS))
    for leaf, count in found.items():
        adjacency = REPLACE if isinstance(leaf, SampledWithoutReplacementDpEvent) else ADD_REMOVE
        curve += count * event_curve(leaf, adjacency, PAPER_ORDERS)
    return convert(PAPER_ORDERS, curve, delta)
