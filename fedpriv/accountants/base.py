"""The base of all accountants: the epsilon of a composition of events, by each method that an
accountant knows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.accountants.events import Composition
from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class Accountant(ABC):
    """Adds up events at a fixed `delta`. It has no state; a `Ledger` holds the events.

    delta: probability with which the epsilon guarantee may fail.
    budget: largest epsilon that a run may reach, or None. It limits the released model's epsilon,
        or that of the observer that the algorithm names. The run ends at the last round that fits.
    target: epsilon that the whole run should reach, or None. The noise is solved for it, against
        the same observer, so that the certificate never exceeds it.

    An accountant implements `epsilons`. This one knows no composition theorem at all:

    >>> import math
    >>> from dp_accounting import GaussianDpEvent
    >>> from fedpriv.accountants.pld import gaussian_epsilon
    >>> class OneRelease(Accountant):
    ...     def epsilons(self, composition, adjacency, group_size=1):
    ...         [(event, count)] = composition
    ...         if type(event) is not GaussianDpEvent or count > 1 or group_size > 1:
    ...             raise unsupported("one", event, adjacency, hint="accountant=rdp supports it")
    ...         return {"one": gaussian_epsilon(1 / event.noise_multiplier, self.delta)}
    >>> epsilons = OneRelease(delta=1e-5).epsilons([(GaussianDpEvent(5.0), 1)], "add/remove")
    >>> round(epsilons["one"], 4)
    0.7255
    """

    delta: float = 1e-5
    budget: float | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        require(
            0 < self.delta < 1, "accountant.delta", self.delta, "must lie strictly between 0 and 1"
        )
        fits = self.budget is None or self.budget > 0
        require(fits, "accountant.budget", self.budget, "a positive epsilon, or null for no limit")
        fits = self.target is None or 0 < self.target < math.inf
        allowed = "a positive epsilon, or null for the noise of the method"
        require(fits, "accountant.target", self.target, allowed)

    @property
    def limit(self) -> float | None:
        """The largest epsilon that a run may reach; None: there is none."""
        return self.target if self.budget is None else self.budget

    @property
    def limit_text(self) -> str:
        """The setting that `limit` comes from."""
        name = "target" if self.budget is None else "budget"
        return f"accountant.{name}={self.limit:g}"

    @abstractmethod
    def epsilons(
        self, composition: Composition, adjacency: str, group_size: int = 1
    ) -> dict[str, float]:
        """Epsilon by method name. Every value is an upper bound at `delta`; inf if no bound is
        finite.

        composition: events with their counts, all on the same data. Noise multipliers are relative
            to the sensitivity under `adjacency` (see `fedpriv.accountants.events`).
        adjacency: `ADD_REMOVE` or `REPLACE` one unit.
        group_size: above 1, the events describe what one record contributes to, and epsilon
            protects any group of this number of records.

        Raises ConfigError with the name of the event if no method of this accountant supports it.
        """


def unsupported(accountant: str, event: DpEvent, adjacency: str, *, hint: str) -> ConfigError:
    """The error of an accountant that has no valid bound for `event`."""
    return ConfigError(
        "accountant", accountant, f"cannot account {event} under {adjacency} adjacency; {hint}"
    )
