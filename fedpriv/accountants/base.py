"""What every accountant answers: the epsilon of a composition of events, by each method it
knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.accountants.events import Runs
from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class Accountant(ABC):
    """Adds up events at a fixed `delta`. Stateless: the events are kept by a `Ledger`."""

    delta: float = 1e-5
    """Probability with which the epsilon guarantee may fail."""
    budget: float | None = None
    """Largest epsilon that a run may reach, of the released model or of whom else its algorithm
    names; it ends at the last round that fits."""

    def __post_init__(self) -> None:
        require(
            0 < self.delta < 1, "accountant.delta", self.delta, "must lie strictly between 0 and 1"
        )
        fits = self.budget is None or self.budget > 0
        require(fits, "accountant.budget", self.budget, "a positive epsilon, or null for no limit")

    @abstractmethod
    def epsilons(self, runs: Runs, adjacency: str, group_size: int = 1) -> dict[str, float]:
        """Method name -> epsilon of the composition of each event `count` times, all on the same
        data.

        With a `group_size` above 1 the events say what one record meets, and epsilon protects any
        group of that size.

        Every value is an upper bound at `delta` under `adjacency`; inf when nothing is certified.
        Noise multipliers are relative to the sensitivity under `adjacency` (see
        `fedpriv.accountants.events`). Raises ConfigError, naming the event, when no method of this
        accountant can handle it.
        """


def unsupported(accountant: str, event: DpEvent, adjacency: str, *, hint: str) -> ConfigError:
    """The error of an accountant that has no valid bound for `event`."""
    return ConfigError(
        "accountant", accountant, f"cannot account {event} under {adjacency} adjacency; {hint}"
    )
