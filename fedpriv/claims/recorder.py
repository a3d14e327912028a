"""Record what an Opacus training really does, and write it as a claim.

    with fedpriv.record() as recording:
        train()
    recording.write(Path("claim.yaml"))

The recorder counts steps at the place where Opacus adds noise, with the bound and the multiplier of
that moment, and reads the rate and the size of the loader that Opacus made. It draws no random
number and changes no tensor, so the training has the same result with it. What it cannot see, such
as who gets the model and where generators are seeded, stays `unknown`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.errors import ConfigError

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


@dataclass
class Recording:
    """All private optimizers that were made while recording, in this order.

    ended: whether the recording is over; later steps are not counted.
    """

    optimizers: list[Recorded] = field(default_factory=list)
    ended: bool = False

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
def record() -> Iterator[Recording]:
    """Record every optimizer that `PrivacyEngine.make_private` and its relatives make meanwhile.

    Raises ConfigError if a recording is under way.
    """
    from opacus import PrivacyEngine

    recording = Recording()
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
            recorded.steps[_settings(optimizer)] += 1
        add_noise()

    optimizer.add_noise = counted
    return recorded


def _settings(optimizer: Any) -> Settings:
    """What Opacus does in this step. A bound per layer counts by the norm of all bounds, which
    Opacus noises every layer by."""
    adapts = hasattr(optimizer, "target_unclipped_quantile")
    bound = None if adapts else float(optimizer.max_grad_norm)
    return float(optimizer.noise_multiplier), bound, optimizer.accumulated_iterations == 1
