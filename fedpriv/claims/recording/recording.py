"""What was recorded: noised steps with their settings, how often, and what they spend."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import yaml
from dp_accounting import DpEvent

from fedpriv.accountants.calibrate import most_rounds
from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.accountants.rdp import rdp_epsilon
from fedpriv.claims import draft
from fedpriv.claims import schema as s
from fedpriv.errors import FedprivError, require


class NoisedStep(Protocol):
    """One release with noise. Steps with equal settings are equal and have one hash."""

    unit: ClassVar[str]
    """What one contributor is, of `fedpriv.claims.schema.UNITS`."""

    def event(self) -> DpEvent:
        """What it spends of a budget; not private where nothing is proved."""
        ...

    def release(self, times: int) -> dict[str, Any]:
        """The claim's release that stands for so many of these steps."""
        ...


class BudgetSpentError(FedprivError):
    """The next step would exceed the budget of a recording."""


@dataclass
class Recording:
    """All noised steps, in the order in which their settings came up.

    budget: largest epsilon of all steps together, for noise that nobody can predict; None for no
        limit. For Opacus: unit record, add/remove; for Flower: unit client, one client's update is
        replaced and all counts stay. The observer sees every step.
    delta: its delta.
    """

    budget: float | None = None
    delta: float | None = None
    steps: Counter[NoisedStep] = field(default_factory=Counter)
    _current: NoisedStep | None = None
    _left: int = 0

    def __post_init__(self) -> None:
        if self.budget is not None:
            require(0 < self.budget < math.inf, "budget", self.budget, "a positive epsilon")
            fits = self.delta is not None and 0 < self.delta < 1
            require(fits, "delta", self.delta, "between 0 and 1")

    def count(self, step: NoisedStep) -> None:
        """Count a step that is about to be noised. Raises BudgetSpentError if it exceeds the
        budget."""
        if self.budget is not None:
            if self._current != step:
                self._current, self._left = step, self._steps_left(step)
            if self._left == 0:
                raise BudgetSpentError(
                    f"epsilon {self.budget:g} at delta {self.delta:g} is spent after "
                    f"{self.steps.total()} steps"
                )
            self._left -= 1
        self.steps[step] += 1

    def _steps_left(self, step: NoisedStep) -> int:
        """How many more steps with these settings fit, by Renyi divergences."""
        assert self.budget is not None
        assert self.delta is not None
        delta = self.delta
        spent = [(one.event(), count) for one, count in self.steps.items()]
        event = step.event()
        return most_rounds(
            lambda steps: rdp_epsilon([*spent, (event, steps)], ADD_REMOVE, delta), self.budget
        )

    def as_data(self) -> dict[str, Any]:
        """The claim, with `unknown` for what no hook can see."""
        releases = [step.release(count) for step, count in self.steps.items()]
        units = {step.unit for step in self.steps} or {s.RECORD}
        claims = [draft.statement(unit=unit) for unit in s.UNITS if unit in units]
        return draft.claim("a recorded training", claims, releases)

    def write(self, path: Path) -> None:
        """Write the claim as YAML."""
        path.write_text(yaml.safe_dump(self.as_data(), sort_keys=False, width=96))
