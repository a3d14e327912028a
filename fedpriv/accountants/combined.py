"""RDP and PLD: two independent certificates of the same run."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.accountants.events import Composition
from fedpriv.accountants.pld import Pld
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError


@dataclass(frozen=True)
class RdpAndPld(Pld):
    """Both methods, or the one that supports all events. Raises ConfigError if neither does."""

    def epsilons(
        self, composition: Composition, adjacency: str, group_size: int = 1
    ) -> dict[str, float]:
        """See `Accountant.epsilons`; the methods are "rdp" and "pld"."""
        found: dict[str, float] = {}
        refusals: list[ConfigError] = []
        for accountant in (
            Rdp(self.delta),
            Pld(self.delta, value_discretization_interval=self.value_discretization_interval),
        ):
            try:
                found |= accountant.epsilons(composition, adjacency, group_size)
            except ConfigError as refusal:
                refusals.append(refusal)
        if not found:
            raise refusals[0]
        return found
