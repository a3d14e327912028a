"""Steps of Opacus, counted where its optimizers add noise.

The classes of Opacus are observed, so that no optimizer of the process is missed: one that was made
before the recording counts with unknown settings, which spend any budget. The rate and the size of
the data are those of the loader that Opacus made. It counts as sampled so only if the loader drew a
batch for every step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import dp_accounting as dp
from dp_accounting import DpEvent

from fedpriv.claims import draft
from fedpriv.claims import schema as s
from fedpriv.claims.reading import UNKNOWN
from fedpriv.claims.recording.recording import Recording


@dataclass(frozen=True)
class OpacusStep:
    """One noised step of an optimizer.

    optimizer: its number among those of the recording.
    records: size of the data set.
    rate: rate of Poisson sampling; None if the loader does not sample so.
    multiplier: noise multiplier.
    bound: bound of the whole gradient, by which the noise is scaled; None if it adapts to the data,
        or if gradients of the step were clipped to another bound.
    one_batch: whether one batch makes a step. Several batches are another sample than one, and may
        have a record twice.
    """

    unit: ClassVar[str] = s.RECORD

    optimizer: int
    records: int | None
    rate: float | None
    multiplier: float
    bound: float | None
    one_batch: bool

    def event(self) -> DpEvent:
        """A Gaussian release of a Poisson sample, if it is one."""
        if self.bound is None or self.rate is None or not self.one_batch:
            return dp.NonPrivateDpEvent()
        return dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(self.multiplier))

    def release(self, times: int) -> dict[str, Any]:
        """Its gradients, so many times."""
        deviation = None if self.bound is None else self.multiplier * self.bound
        sampled = self.one_batch and self.rate is not None
        drawn = {"rule": s.POISSON, "rate": self.rate, "drawn": s.EACH_TIME, "hidden_from": UNKNOWN}
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
            noise=draft.noise(
                s.GAUSSIAN,
                deviation=deviation if self.multiplier else 0.0,
                added_by=s.BY_HOLDER,
            ),
            sampling=drawn if sampled else None,
        )


@dataclass(eq=False)
class Optimizer:
    """What is known of one optimizer.

    number: its number among those of the recording.
    records: size of the data set; None if not known.
    sampler: draws its Poisson samples; None if the loader does not sample so, or is not known.
    module: what may hold the clipping bound of the gradients, as for ghost clipping.
    steps: noised so far.
    held: bounds of the batches that wait for the step.
    joined: whether the training joins batches of the loader in one step by skipping steps.
    """

    number: int
    records: int | None = None
    sampler: Any = None
    module: Any = None
    steps: int = 0
    held: set[float] = field(default_factory=set)
    joined: bool = False


class Observer:
    """Wraps methods of Opacus; a wrapper calls the method with what it got.

    splitting: whether Opacus itself is splitting a sample into parts.
    noising: whether a method calls the method of its base class.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.optimizers: WeakKeyDictionary[Any, Optimizer] = WeakKeyDictionary()
        self.drawn: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.numbers = 0
        self.splitting = False
        self.noising = False

    def known(self, optimizer: Any) -> Optimizer:
        """What is known of an optimizer."""
        if optimizer not in self.optimizers:
            self.optimizers[optimizer] = Optimizer(self.numbers)
            self.numbers += 1
        return self.optimizers[optimizer]

    def make_private(self, made: Any, engine: Any, *args: Any, **settings: Any) -> Any:
        """A new optimizer with its loader."""
        result = made(engine, *args, **settings)
        own = self.known(next(part for part in result if hasattr(part, "noise_multiplier")))
        loader = result[-1]
        data = getattr(loader, "dataset", None)
        own.records = len(data) if data is not None else None
        own.module = result[0]
        if type(loader).__name__ == "DPDataLoader":
            own.sampler = loader.batch_sampler
        return result

    def draw(self, draws: Any, sampler: Any) -> Iterator[Any]:
        """Poisson samples, counted."""
        for sample in draws(sampler):
            self.drawn[sampler] = self.drawn.get(sampler, 0) + 1
            yield sample

    def split(self, splits: Any, sampler: Any) -> Iterator[Any]:
        """Parts of one sample each, by `BatchMemoryManager`."""
        parts = splits(sampler)
        while True:
            self.splitting = True
            try:
                part = next(parts)
            except StopIteration:
                return
            finally:
                self.splitting = False
            yield part

    def signal_skip_step(self, signal: Any, optimizer: Any, do_skip: bool = True) -> None:
        """A step that only accumulates. Unless Opacus splits a sample so, several samples make a
        step."""
        own = self.known(optimizer)
        own.joined = own.joined or (do_skip and not self.splitting)
        signal(optimizer, do_skip)

    def check_skip_next_step(self, check: Any, optimizer: Any, pop_next: bool = True) -> bool:
        """Whether a step only accumulates; its gradients have been clipped."""
        skips: bool = check(optimizer, pop_next)
        if pop_next:
            own = self.known(optimizer)
            own.held.add(_clipped_to(optimizer, own.module))
        return skips

    def add_noise(self, add: Any, optimizer: Any) -> None:
        """Noise: the end of a step."""
        if self.noising:
            add(optimizer)
            return
        self.count(optimizer)
        self.noising = True
        try:
            add(optimizer)
        finally:
            self.noising = False

    def pre_step_of_hooks(self, step: Any, optimizer: Any, closure: Any = None) -> Any:
        """The end of a step whose noise was added in the backward pass."""
        ready = step(optimizer, closure)
        if ready:
            # Opacus has set its count of batches to zero.
            self.known(optimizer).joined = True
            self.count(optimizer)
        return ready

    def count(self, optimizer: Any) -> None:
        """Count what Opacus does in this step. A bound per layer counts by the norm of all bounds,
        which Opacus noises every layer by."""
        own = self.known(optimizer)
        own.steps += 1
        bound = float(optimizer.max_grad_norm)
        held = {*own.held, _clipped_to(optimizer, own.module)}
        own.held.clear()
        adapts = hasattr(optimizer, "target_unclipped_quantile")
        same = all(math.isclose(one, bound, rel_tol=1e-6) for one in held)
        sampled = own.sampler is not None and own.steps <= self.drawn.get(own.sampler, 0)
        step = OpacusStep(
            own.number,
            own.records,
            float(own.sampler.sample_rate) if sampled else None,
            float(optimizer.noise_multiplier),
            bound if same and not adapts else None,
            not own.joined and optimizer.accumulated_iterations == 1,
        )
        self.recording.count(step)


def _clipped_to(optimizer: Any, module: Any) -> float:
    """The bound that Opacus clips gradients to now. The optimizer's own scales the noise."""
    layers = getattr(optimizer, "max_grad_norms", None)
    if layers is not None:
        return math.hypot(*map(float, layers))
    if type(optimizer).__name__.endswith("FastGradientClipping"):
        module = module if hasattr(module, "max_grad_norm") else getattr(module, "module", None)
        return float(getattr(module, "max_grad_norm", math.nan))
    return float(optimizer.max_grad_norm)


@contextmanager
def observe_opacus(recording: Recording) -> Iterator[None]:
    """Count the noised steps of all of Opacus's optimizers in this process meanwhile."""
    from opacus import PrivacyEngine
    from opacus.optimizers import DPOptimizer
    from opacus.utils import batch_memory_manager, uniform_sampler

    observer = Observer(recording)
    hooks: list[tuple[type, str, Callable[..., Any]]] = [
        (PrivacyEngine, "make_private", observer.make_private),
        (batch_memory_manager.BatchSplittingSampler, "__iter__", observer.split),
        (uniform_sampler.UniformWithReplacementSampler, "__iter__", observer.draw),
        (uniform_sampler.DistributedUniformWithReplacementSampler, "__iter__", observer.draw),
        (DPOptimizer, "signal_skip_step", observer.signal_skip_step),
        (DPOptimizer, "_check_skip_next_step", observer.check_skip_next_step),
    ]
    for cls in _with_subclasses(DPOptimizer):
        if "_add_noise_parameter" in vars(cls):  # DistributedPerLayerOptimizer
            hooks.append((cls, "pre_step", observer.pre_step_of_hooks))
        else:
            hooks.append((cls, "add_noise", observer.add_noise))
    with ExitStack() as undo:
        for cls, name, observe in hooks:
            if (method := vars(cls).get(name)) is not None:
                setattr(cls, name, _wrapped(observe, method))
                undo.callback(setattr, cls, name, method)
        yield


def _with_subclasses(cls: type) -> set[type]:
    return {cls}.union(*map(_with_subclasses, cls.__subclasses__()))


def _wrapped(observe: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def observed(*args: Any, **named: Any) -> Any:
        return observe(method, *args, **named)

    return observed
