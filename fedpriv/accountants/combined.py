"""RDP and PLD side by side: two independent certificates of the same run."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.accountants.events import Runs
from fedpriv.accountants.pld import Pld
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError


@dataclass(frozen=True)
class RdpAndPld(Pld):
    """Both methods; one that has no bound for an event is left out, and if neither has one, that is
    an error."""

    def epsilons(self, runs: Runs, adjacency: str, group_size: int = 1) -> dict[str, float]:
        """See `Accountant.epsilons`; the methods are "rdp" and "pld"."""
        found: dict[str, float] = {}
        refusals: list[ConfigError] = []
        for accountant in (
            Rdp(self.delta),
            Pld(self.delta, value_discretization_interval=self.value_discretization_interval),
        ):
            try:
                found |= accountant.epsilons(runs, adjacency, group_size)
            except ConfigError as refusal:
                refusals.append(refusal)
        if not found:
            raise refusals[0]
        return found
