"""Record what an Opacus training really does, and write it as a claim.

    with fedpriv.record() as recording:
        train()
    recording.write(Path("claim.yaml"))

The recorder counts steps at the place where Opacus adds noise, with the bound and the multiplier of
that moment, and reads the rate and the size of the loader that Opacus made. It draws no random
number and changes no tensor, so the training has the same result with it. What it cannot see, such
as who gets the model and where generators are seeded, stays `unknown`.

    with fedpriv.record(budget=3.0, delta=1e-5):
        train()

stops before the step that would exceed the budget. All optimizers of a recording count together, so
that a new engine forgets nothing.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.errors import ConfigError, FedprivError, require

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Settings = tuple[float, float | None, bool]
"""Noise multiplier, bound of the whole gradient (None if it adapts to the data), and whether one
batch makes a step. Several batches are another sample than one, and may have a record twice."""


@dataclass
class Recorded:
    """Steps of one private optimizer.

    records: size of the data set.
    rate: rate of Poisson sampling; None if the loader does not sample so.
    steps: number of noised steps with each setting, in the order of their first step.
    """

    records: int | None
    rate: float | None
    steps: Counter[Settings] = field(default_factory=Counter)


class BudgetSpentError(FedprivError):
    """The next step would exceed the budget of a recording."""


@dataclass
class Recording:
    """All private optimizers that were made while recording, in this order.

    budget: largest epsilon of a record that any optimizer sees, under add/remove, for noise that
        nobody can predict; None for no limit.
    delta: its delta.
    ended: whether the recording is over; later steps are not counted.
    """

    budget: float | None = None
    delta: float | None = None
    optimizers: list[Recorded] = field(default_factory=list)
    ended: bool = False
    _current: tuple[int, Settings] | None = None
    _left: int = 0

    def count(self, recorded: Recorded, settings: Settings) -> None:
        """Count a step that is about to be noised. Raises BudgetSpentError if it exceeds the
        budget."""
        if self.budget is not None:
            if self._current != (id(recorded), settings):
                self._current = id(recorded), settings
                self._left = self._steps_left(recorded, settings)
            if self._left == 0:
                steps = sum(sum(one.steps.values()) for one in self.optimizers)
                raise BudgetSpentError(
                    f"epsilon {self.budget:g} at delta {self.delta:g} is spent after {steps} steps"
                )
            self._left -= 1
        recorded.steps[settings] += 1

    def _steps_left(self, recorded: Recorded, settings: Settings) -> int:
        """How many more steps with these settings fit, by Renyi divergences."""
        from fedpriv.accountants.calibrate import most_rounds
        from fedpriv.accountants.events import ADD_REMOVE
        from fedpriv.accountants.rdp import rdp_epsilon

        assert self.budget is not None
        assert self.delta is not None
        delta = self.delta
        spent = [
            (_event(one, done), count)
            for one in self.optimizers
            for done, count in one.steps.items()
        ]
        event = _event(recorded, settings)
        return most_rounds(
            lambda steps: rdp_epsilon([*spent, (event, steps)], ADD_REMOVE, delta), self.budget
        )

    def as_data(self) -> dict[str, Any]:
        """The claim, with `unknown` for what no hook can see."""
        found = draft.Draft("a recorded training")
        found.releases = [
            _release(number, recorded, settings, count)
            for number, recorded in enumerate(self.optimizers)
            for settings, count in recorded.steps.items()
        ]
        found.claims = [draft.statement(unit=s.RECORD)]
        return found.as_data()

    def write(self, path: Path) -> None:
        """Write the claim as YAML."""
        import yaml

        path.write_text(yaml.safe_dump(self.as_data(), sort_keys=False, width=96))


def _event(recorded: Recorded, settings: Settings) -> DpEvent:
    """One step; not private where nothing is proved under add/remove."""
    import dp_accounting as dp

    multiplier, bound, one_batch = settings
    if bound is None or recorded.rate is None or not one_batch:
        return dp.NonPrivateDpEvent()
    return dp.PoissonSampledDpEvent(recorded.rate, dp.GaussianDpEvent(multiplier))


def _release(number: int, recorded: Recorded, settings: Settings, count: int) -> dict[str, Any]:
    multiplier, bound, one_batch = settings
    noise: dict[str, Any] = {"mechanism": s.NO_NOISE}
    if multiplier > 0:
        deviation = draft.product(multiplier, bound)
        noise = draft.noise(s.GAUSSIAN, deviation=deviation, added_by=s.BY_HOLDER)
    sampled = one_batch and recorded.rate is not None
    return draft.release(
        f"gradients of optimizer {number}, {recorded.records} records",
        contributor=s.RECORD,
        times=count,
        participation=count,
        clip=bound if one_batch else None,
        tensors=1,
        weight=1.0,
        weights=s.FIXED,
        denominator=s.FIXED,
        noise=noise,
        sampling=draft.poisson(recorded.rate) if sampled else None,
    )


@contextmanager
def record(budget: float | None = None, delta: float | None = None) -> Iterator[Recording]:
    """Record every optimizer that `PrivacyEngine.make_private` and its relatives make meanwhile.

    budget, delta: see `Recording`; both or none.

    Raises ConfigError if a recording is under way, and BudgetSpentError in the training.
    """
    from opacus import PrivacyEngine

    if budget is not None:
        require(0 < budget < math.inf, "budget", budget, "a positive epsilon")
        require(delta is not None and 0 < delta < 1, "delta", delta, "between 0 and 1")
    recording = Recording(budget, delta)
    made: Callable[..., Any] = PrivacyEngine.make_private
    if hasattr(made, "__wrapped__"):
        raise ConfigError("record", "nested", "one recording at a time")

    @functools.wraps(made)
    def make_private(self: Any, *args: Any, **settings: Any) -> Any:
        result = made(self, *args, **settings)
        recording.optimizers.append(_observed(result, recording))
        return result

    PrivacyEngine.make_private = make_private
    try:
        yield recording
    finally:
        PrivacyEngine.make_private = made
        recording.ended = True


def _observed(result: tuple[Any, ...], recording: Recording) -> Recorded:
    """Hook the optimizer among what Opacus returned."""
    optimizer = next(part for part in result if hasattr(part, "noise_multiplier"))
    loader = result[-1]
    data = getattr(loader, "dataset", None)
    sampled = type(loader).__name__ == "DPDataLoader"
    recorded = Recorded(
        len(data) if data is not None else None,
        float(loader.sample_rate) if sampled else None,
    )
    add_noise = optimizer.add_noise

    @functools.wraps(add_noise)
    def counted() -> None:
        if not recording.ended:
            recording.count(recorded, _settings(optimizer))
        add_noise()

    optimizer.add_noise = counted
    return recorded


def _settings(optimizer: Any) -> Settings:
    """What Opacus does in this step. A bound per layer counts by the norm of all bounds, which
    Opacus noises every layer by."""
    adapts = hasattr(optimizer, "target_unclipped_quantile")
    bound = None if adapts else float(optimizer.max_grad_norm)
    return float(optimizer.noise_multiplier), bound, optimizer.accumulated_iterations == 1
