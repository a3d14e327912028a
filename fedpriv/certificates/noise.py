"""Who adds the noise of a query, and what each observer then sees of one protected unit.

- An observer subtracts its own noise share and those of colluding silos from a sum.
- An observer of single messages faces one silo's noise, or the spread of a user's weights.
- Rounding to the grid of messages increases the sensitivity.

This module computes all of it, once for all methods.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from fedpriv.accountants.events import RELEASED_MODEL, REPLACE
from fedpriv.certificates.request import Noise, ObservedRelease, Release
from fedpriv.certificates.sampling import Batches, Coins, Sampling
from fedpriv.models.tasks import ConvexLoss

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class Drift:
    """A bound on how far local steps spread two models apart.

    factor: largest growth of their distance in the steps after the first; inf: unknown.
    reason: why the factor holds.
    """

    factor: float
    reason: str


def touches(records: int, batch_size: int, steps: int) -> int:
    """The largest number of `steps` that use one record: one in each pass begun. A pass has whole
    batches only."""
    return math.ceil(steps / (records // batch_size))


def convex_drift(
    steps: int, lr: float, *, loss: ConvexLoss | None, feature_norm: float | None
) -> Drift:
    """The drift of `steps` gradient steps with learning rate `lr`.

    One step on a convex beta-smooth loss increases the distance of two models by a factor of at
    most max(1, lr * beta - 1).

    loss: proven convexity of the loss; None: nothing is proven.
    feature_norm: public bound on the L2 norm of the features; None: no bound.
    """
    if steps == 1:
        return Drift(1.0, "one local step")
    if loss is None:
        return Drift(math.inf, "the clipped loss is not known to be convex")
    if feature_norm is None:
        return Drift(math.inf, "the features' norm has no public bound (algo.feature_norm)")
    smoothness = loss.smoothness(feature_norm)
    growth = (steps - 1) * math.log(max(1.0, lr * smoothness - 1))
    factor = math.exp(growth) if growth < 700 else math.inf
    return Drift(
        factor,
        f"convex {smoothness:g}-smooth clipped losses spread models at most {factor:g}-fold",
    )


PUBLIC_SIZES = "the number of a silo's records is public"
PUBLIC_COHORT = "who takes part when is public and does not depend on data"
PUBLIC_TURNS = "whose turn it is in which round is public and does not depend on data"
OWN_BUDGETS = "each silo has its own noise, and its own epsilon: this is the largest of them"
MIXED = "silos repeat their own earlier sums in later messages, under fresh noise in each"

Seen = tuple[Release, Sampling, tuple[str, ...]]
"""A release, how it samples its units, and the assumptions of both."""


class ReleaseNoise(Noise):
    """Noise for which an observed release is one release of the mechanism."""

    @abstractmethod
    def seen(self, view: ObservedRelease) -> Seen:
        """The release that the observer sees."""

    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        release, sampling, why = self.seen(view)
        return release.event(view.mechanism, sampling), why


@dataclass(frozen=True)
class NoNoise(Noise):
    """Nobody adds noise on purpose: nothing is certified, whatever the mechanism."""

    enforced = True
    added = False

    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        from dp_accounting import NonPrivateDpEvent

        return NonPrivateDpEvent(), ()

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return ("no noise is added",)


@dataclass(frozen=True)
class SumNoise(ReleaseNoise):
    """The framework bounds each contribution, and all silos of the sum share its noise.

    per_sum: sensitivity that the noise is sized for, in units of the bound, as a function of the
        number of silos in the sum.
    """

    per_sum: Callable[[int], float] = lambda n_summed: 1.0

    enforced = True
    marks = True
    trusts: ClassVar[str | None] = None

    def sensitivity(self, n_summed: int) -> float:
        return self.per_sum(n_summed)

    def seen(self, view: ObservedRelease) -> Seen:
        n_summed = view.n_summed
        observer = view.observer
        single = observer.sees_messages
        # A record that comes or goes replaces the vector of a user who has others.
        part = view.target.unit != "user" and not view.contributors.one_silo
        replaced = part or view.target.adjacency == REPLACE
        # In L1, all messages together move as far as their sum.
        longer = single and view.mechanism.norm == 2
        reach = view.contributors.reach(n_summed, replaced=replaced, single=longer)
        reach *= view.row.weight
        moved = (reach * view.bound + view.rounding) / self.sensitivity(n_summed)
        name = view.request.name
        if not view.contributors.one_silo:
            # No bound is known for two sampled vectors, neither of which is zero.
            rate = 1.0 if observer.sees_sample or replaced else view.contributors.rate
            hidden = view.unknown_shares / n_summed
            return Release(name, moved, hidden), Coins(rate), observer.subtracts or _seen_by(view)
        silos = 1 if single else max(1, view.unknown_shares)
        size = view.request.batch_size(view.records)
        release = Release(name, moved, silos / n_summed, size, view.records)
        why: tuple[str, ...]
        if single:
            why = (f"the {observer.name} sees every silo's sum: its own noise counts alone",)
        else:
            why = (f"the noise of {silos} silos hides the sum", *observer.subtracts)
        return release, _drawn(view), why

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        if view.contributors.one_silo:
            return PUBLIC_SIZES, PUBLIC_COHORT, *_note(view)
        bounded = (
            "the weights of a user add up to at most 1"
            if view.contributors.any_number
            else "a user can move every silo's update by 2 * clip"
        )
        turns = (PUBLIC_TURNS,) if view.contributors.turns > 1 else ()
        mixed = () if view.mechanism.mixing is None else (MIXED,)
        follow = () if view.observer.cheats else ("semi-honest parties",)
        return bounded, *turns, *mixed, "all noise shares are present", *follow


@dataclass(frozen=True)
class SiloNoise(ReleaseNoise):
    """Each silo noises the mean of its batch by itself, with deviation clip / size.

    times: number of clipped vectors in one record's part of a message.
    marks: whether a message has the marks of a bound that adapts.
    """

    times: float = 1.0
    marks: bool = False

    by_silo = True
    trusts = None

    def seen(self, view: ObservedRelease) -> Seen:
        request = view.request
        batches = request.batches
        assert batches is not None
        size = request.batch_size(view.records)
        moved = self.times * batches.moved(size) + view.rounding * size
        hidden = 1.0
        name = view.observer.name
        why = f"the {name} sees every silo's noised message: its own noise counts alone"
        if not view.observer.sees_messages:
            # Count the silos with the least noise: which silos are in the sum is not known
            # beforehand.
            others = list(view.drawn)
            others.remove(size)
            least = others[: max(0, view.unknown_shares - 1)]
            hidden = 1.0 + sum((size / other) ** 2 for other in least)
            why = f"the noise of {1 + len(least)} silos hides the sum"
        drawn_from = batches.drawn_from(view.records)
        release = Release(request.name, moved, hidden, size, drawn_from)
        return release, _drawn(view), (why, *view.observer.subtracts)

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return PUBLIC_SIZES, PUBLIC_COHORT, *_note(view)


@dataclass(frozen=True)
class Steps:
    """Noisy local steps of one silo, as one of its records affects them.

    touched: largest number of steps of a round that use the record.
    moved: distance by which the record moves the sum over a batch, in units of the bound.
    size: divisor of that sum.
    grid: factor that converts the rounding of a message to the units of a step's noise; the largest
        of all rounds.
    in_message: the opposite factor of this round, which converts the units of the last step's noise
        to those of a message.
    noise: standard deviation of the last step's noise in a message, in units that all silos share.
    """

    touched: int
    moved: float
    size: float
    grid: float
    in_message: float
    noise: float


@dataclass(frozen=True)
class StepNoise(ReleaseNoise):
    """Each silo takes noisy steps; the noise of the last step is also the noise of its message.

    The certificate is the better of two bounds on Gaussian releases:

    - Local: each noisy step is one release. This holds for every loss and every observer.
    - Sum: only the noise of the last steps counts. Given everything before it, the sum is Gaussian
      with the variance of the last steps of the silos whose noise the observer does not know. Silos
      may differ in their noise, and those with the least are counted. A record moves the sum by the
      distance it moves its steps, times the drift.

    steps: noisy steps of a silo, as a function of its number of records.
    drift: bound on how far the steps after the first spread two models apart.
    marks: whether a message has the marks of its last step, if the bound adapts.
    """

    steps: Callable[[int], Steps]
    drift: Drift
    marks: bool = False

    by_silo = True
    trusts = "rounding in local steps grows with its broadcast, beyond what their noise hides"

    def seen(self, view: ObservedRelease) -> Seen:
        release, why = self.bound(view, view.rounding)
        return release, Sampling(), why

    def bound(self, view: ObservedRelease, rounding: float) -> tuple[Release, tuple[str, ...]]:
        """The better bound for one record, and its reasons.

        rounding: rounding of a message, in units of the mechanism's noise.
        """
        steps = self.steps(view.records)
        name = view.request.name
        observer = view.observer
        rounded = rounding * steps.grid
        step = steps.moved / steps.size
        local = Release(name, math.sqrt(steps.touched) * (step + rounded), 1)
        alone = "only the silo's own noise counts"
        if observer.sees_messages:
            return local, (alone, f"the {observer.name} sees every silo's noised message")
        silos = max(1, view.unknown_shares)
        whole = self.drift.factor * steps.touched * steps.moved / steps.size + rounded
        summed = Release(name, whole, self._hidden(view, steps, silos))
        if summed.gap < local.gap:
            why = (f"the last steps' noise of {silos} silos hides the sum", self.drift.reason)
            return summed, (*why, *observer.subtracts)
        unknown = math.isinf(self.drift.factor)
        reason = (f"no better bound for the sum: {self.drift.reason}",) if unknown else ()
        return local, (alone, *reason)

    def _hidden(self, view: ObservedRelease, own: Steps, silos: int) -> float:
        """Variance of the last steps' noise of `silos` silos, the record's own and those with the
        least, over that of its own silo: which silos are in the sum is not known beforehand."""
        hidden = 1.0
        left = silos - 1
        sizes = _sizes_of(view.plan.federation.silo_records, view.request.invited)
        noises = Counter[float]()
        for size, times in sizes:  # a silo without records takes no steps
            noises[self.steps(size).noise if size else 0.0] += times
        for noise, times in sorted(noises.items()):
            others = min(times - (noise == own.noise), left)
            hidden += others * (noise / own.noise) ** 2
            left -= others
        return hidden

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return PUBLIC_SIZES, PUBLIC_COHORT


@dataclass(frozen=True)
class DpSgdNoise(Noise):
    """Each silo runs DP-SGD on Poisson batches. Batches and noise stay in the silo.

    plan: number of steps in a round and sampling rate of a group of records, as a function of the
        silo's number of records.
    relative: noise of each silo's steps over that of the mechanism; empty: 1 for all.
    """

    plan: Callable[[int], tuple[int, float]]
    relative: tuple[float, ...] = ()

    by_silo = True
    trusts = None

    def of_silo(self, silo: int | None) -> float:
        """The noise of a silo's steps over that of the mechanism."""
        return self.relative[silo] if self.relative and silo is not None else 1.0

    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

        if view.target.adjacency == REPLACE:
            return NonPrivateDpEvent(), ("FAILS: Poisson batches are for records that come or go",)
        steps, rate = self.plan(view.records)
        release = view.mechanism.event(sensitivity=1 / self.of_silo(view.silo))
        if isinstance(release, NonPrivateDpEvent):  # no accountant knows a part of it
            return release, ()
        why = (OWN_BUDGETS,) if self.relative else ()
        return SelfComposedDpEvent(PoissonSampledDpEvent(rate, release), steps), why

    def of_sums(self, view: ObservedRelease) -> bool:
        return False  # only the silo's own noise counts

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return ("a silo's number of training records is public",)


@dataclass(frozen=True)
class OwnNoise(SumNoise):
    """The method itself bounds and noises, as `SumNoise` would. The framework cannot verify that,
    so a method of another author has a certificate that it declares.

    per_sum: distance by which a unit moves the sum, in units of the bound.
    """

    enforced = False
    marks = False
    trusts = Noise.trusts

    def seen(self, view: ObservedRelease) -> Seen:
        release, sampling, why = super().seen(view)
        moved = self.per_sum(view.n_summed) + view.rounding
        return Release(release.name, moved, release.hidden), sampling, why


@lru_cache(maxsize=64)
def _sizes_of(
    records: tuple[int, ...], invited: tuple[int, ...] | None
) -> tuple[tuple[int, int], ...]:
    """The distinct sizes of the invited silos, and how many silos have each."""
    silos = range(len(records)) if invited is None else invited
    return tuple(Counter(records[silo] for silo in silos).items())


def _drawn(view: ObservedRelease) -> Sampling:
    """The sampling of the batch, as far as a bound is proven for the protected unit."""
    batches = view.request.batches
    if batches is None or (view.target.records > 1 and not batches.own_coins):
        return Sampling()
    return batches


def _note(view: ObservedRelease) -> tuple[str, ...]:
    batches: Batches | None = view.request.batches
    return () if batches is None else (batches.note,)


def _seen_by(view: ObservedRelease) -> tuple[str, ...]:
    observer = view.observer
    if observer.name == RELEASED_MODEL:
        return ()
    seen = "sees every silo's noised message" if observer.sees_messages else "sees only the sum"
    return (f"the {observer.name} {seen}",)
