"""Steps of Opacus, counted where its optimizers add noise.

The rate and the size of the data are those of the loader that Opacus made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.claims.recording.recording import Recording

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class OpacusStep:
    """One noised step of an optimizer.

    optimizer: its number among those of the recording.
    records: size of the data set.
    rate: rate of Poisson sampling; None if the loader does not sample so.
    multiplier: noise multiplier.
    bound: bound of the whole gradient; None if it adapts to the data.
    one_batch: whether one batch makes a step. Several batches are another sample than one, and may
        have a record twice.
    """

    optimizer: int
    records: int | None
    rate: float | None
    multiplier: float
    bound: float | None
    one_batch: bool

    @property
    def unit(self) -> str:
        """A record of the loader's data."""
        return s.RECORD

    def event(self) -> DpEvent:
        """A Gaussian release of a Poisson sample, if it is one."""
        import dp_accounting as dp

        if self.bound is None or self.rate is None or not self.one_batch:
            return dp.NonPrivateDpEvent()
        return dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(self.multiplier))

    def release(self, times: int) -> dict[str, Any]:
        """Its gradients, so many times."""
        noise: dict[str, Any] = {"mechanism": s.NO_NOISE}
        if self.multiplier > 0:
            deviation = draft.product(self.multiplier, self.bound)
            noise = draft.noise(s.GAUSSIAN, deviation=deviation, added_by=s.BY_HOLDER)
        sampled = self.one_batch and self.rate is not None
        return draft.release(
            f"gradients of optimizer {self.optimizer}, {self.records} records",
            contributor=s.RECORD,
            times=times,
            participation=times,
            clip=self.bound if self.one_batch else None,
            tensors=1,
            weight=1.0,
            weights=s.FIXED,
            denominator=s.FIXED,
            noise=noise,
            sampling=draft.poisson(self.rate) if sampled else None,
        )


@contextmanager
def observe_opacus(recording: Recording) -> Iterator[None]:
    """Count the steps of every optimizer that `PrivacyEngine.make_private` and its relatives make
    meanwhile."""
    from opacus import PrivacyEngine

    made: Callable[..., Any] = PrivacyEngine.make_private
    optimizers = 0

    @functools.wraps(made)
    def make_private(self: Any, *args: Any, **settings: Any) -> Any:
        nonlocal optimizers
        result = made(self, *args, **settings)
        _observe(result, recording, optimizers)
        optimizers += 1
        return result

    PrivacyEngine.make_private = make_private
    try:
        yield
    finally:
        PrivacyEngine.make_private = made


def _observe(result: tuple[Any, ...], recording: Recording, number: int) -> None:
    """Hook the optimizer among what Opacus returned."""
    optimizer = next(part for part in result if hasattr(part, "noise_multiplier"))
    loader = result[-1]
    data = getattr(loader, "dataset", None)
    records = len(data) if data is not None else None
    sampled = type(loader).__name__ == "DPDataLoader"
    rate = float(loader.sample_rate) if sampled else None
    add_noise = optimizer.add_noise

    @functools.wraps(add_noise)
    def counted() -> None:
        recording.count(_step(optimizer, number, records, rate))
        add_noise()

    optimizer.add_noise = counted


def _step(optimizer: Any, number: int, records: int | None, rate: float | None) -> OpacusStep:
    """What Opacus does in this step. A bound per layer counts by the norm of all bounds, which
    Opacus noises every layer by."""
    adapts = hasattr(optimizer, "target_unclipped_quantile")
    bound = None if adapts else float(optimizer.max_grad_norm)
    one_batch = optimizer.accumulated_iterations == 1
    return OpacusStep(number, records, rate, float(optimizer.noise_multiplier), bound, one_batch)
