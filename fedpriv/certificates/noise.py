"""Who adds the noise of a query, and what each observer then sees of one protected unit.

Own shares and those of colluding silos lower what hides a sum. Who sees single messages meets one
silo's noise, or the spread of a user's weights. Rounding to the grid of messages moves a unit
further. All of it stands here, once for all methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.accountants.events import RELEASED_MODEL, REPLACE
from fedpriv.certificates.drift import Drift
from fedpriv.certificates.release import Release
from fedpriv.certificates.request import Noise, ObservedRelease
from fedpriv.certificates.sampling import Batches, Coins, Sampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent

PUBLIC_SIZES = "the number of a silo's records is public"
PUBLIC_COHORT = "who takes part when is public and does not depend on data"

Seen = tuple[Release, Sampling, tuple[str, ...]]
"""A release, who takes part in it, and what that rests on."""


class ReleaseNoise(Noise):
    """Noise under which a view is one release of the mechanism."""

    def seen(self, view: ObservedRelease) -> Seen:
        """What the view shows. Raises NotImplementedError where a subclass does not say."""
        raise NotImplementedError

    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        release, sampling, why = self.seen(view)
        return release.event(view.mechanism, sampling), why


@dataclass(frozen=True)
class NoNoise(Noise):
    """Nobody adds noise on purpose: nothing is certified, whatever the mechanism."""

    enforced = True

    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        from dp_accounting import NonPrivateDpEvent

        return NonPrivateDpEvent(), ()

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return ("no noise is added",)


@dataclass(frozen=True)
class SumNoise(ReleaseNoise):
    """The framework bounds each contribution, and all silos of the sum share its noise.

    per_sum: the distance that the noise is made for, in units of the bound, from the number of
        silos in the sum.
    """

    per_sum: Callable[[int], float] = lambda n_summed: 1.0

    enforced = True

    def made_for(self, n_summed: int) -> float:
        return self.per_sum(n_summed)

    def seen(self, view: ObservedRelease) -> Seen:
        n_summed = view.n_summed
        observer = view.observer
        single = observer.sees_messages
        replaced = view.target.adjacency == REPLACE
        reach = view.contributors.reach(n_summed, replaced=replaced, single=single)
        moved = (reach + view.rounding) / self.made_for(n_summed)
        name = view.request.name
        if not view.contributors.one_silo:
            rate = 1.0 if observer.sees_sample else view.contributors.rate
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
        return bounded, "all noise shares are present", "semi-honest parties"


@dataclass(frozen=True)
class SiloNoise(ReleaseNoise):
    """Each silo noises the mean of its batch by itself, with deviation clip / size.

    times: bounds that one record's part of a message is made of.
    """

    times: float = 1.0

    by_silo = True

    def seen(self, view: ObservedRelease) -> Seen:
        request = view.request
        batches = request.batches
        assert batches is not None
        sizes = view.plan.federation.silo_records
        size = request.batch_size(view.records)
        moved = self.times * batches.moved(size) + view.rounding * size
        hidden = 1.0
        name = view.observer.name
        why = f"the {name} sees every silo's noised message: its own noise counts alone"
        if not view.observer.sees_messages:
            # Of the others' noise the least counts: who is in the sum is not known beforehand.
            others = (
                (size / request.batch_size(sizes[other])) ** 2
                for other in request.silos(view.plan)
                if other != view.silo and sizes[other]
            )
            least = sorted(others)[: max(0, view.unknown_shares - 1)]
            hidden = 1.0 + sum(least)
            why = f"the noise of {1 + len(least)} silos hides the sum"
        release = Release(request.name, moved, hidden, size, view.records)
        return release, _drawn(view), (why, *view.observer.subtracts)

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return PUBLIC_SIZES, PUBLIC_COHORT, *_note(view)


@dataclass(frozen=True)
class Steps:
    """Noisy local steps of one silo, as one of its records meets them.

    touched: in how many steps of a round the record can be.
    moved: how far it moves the sum over a batch, in units of the bound.
    size: what that sum is divided by.
    grid: factor on the rounding of a message, to the units of a step's noise.
    """

    touched: int
    moved: float
    size: float
    grid: float


@dataclass(frozen=True)
class StepNoise(ReleaseNoise):
    """Each silo takes noisy steps; the last one's noise is also the noise of its message.

    Certified is the better of two bounds on Gaussian releases. Local: every noisy step by itself,
    for every loss and every observer. Sum: the last steps' noise alone. Whatever came before, the
    sum is Gaussian with the variance of the unknown silos' last steps, and a record moves it by
    what it moves its steps, as far as later steps spread that.

    steps: of a silo with so many records.
    drift: how far the steps after the first can spread two models apart.
    """

    steps: Callable[[int], Steps]
    drift: Drift

    by_silo = True

    def seen(self, view: ObservedRelease) -> Seen:
        release, why = self.bound(view, view.rounding)
        return release, Sampling(), why

    def bound(self, view: ObservedRelease, rounding: float) -> tuple[Release, tuple[str, ...]]:
        """The better bound for one record.

        rounding: of a message, in units of the mechanism's noise.
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
        hidden = max(1, view.unknown_shares)
        whole = self.drift.factor * steps.touched * steps.moved / steps.size + rounded
        summed = Release(name, whole, hidden)
        if summed.gap < local.gap:
            why = (f"the last steps' noise of {hidden} silos hides the sum", self.drift.reason)
            return summed, (*why, *observer.subtracts)
        unknown = math.isinf(self.drift.factor)
        reason = (f"no better bound for the sum: {self.drift.reason}",) if unknown else ()
        return local, (alone, *reason)

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return PUBLIC_SIZES, PUBLIC_COHORT


@dataclass(frozen=True)
class DpSgdNoise(Noise):
    """Each silo runs DP-SGD on Poisson batches, and keeps batches and noise to itself.

    plan: steps in a round and the rate at which a group of records enters each, from the number of
        a silo's records.
    """

    plan: Callable[[int], tuple[int, float]]

    by_silo = True

    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

        if view.target.adjacency == REPLACE:
            return NonPrivateDpEvent(), ("FAILS: Poisson batches are for records that come or go",)
        steps, rate = self.plan(view.records)
        step = PoissonSampledDpEvent(rate, view.mechanism.event())
        return SelfComposedDpEvent(step, steps), ()

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        return ("a silo's number of training records is public",)


@dataclass(frozen=True)
class OwnNoise(SumNoise):
    """The method bounds and noises by itself, as much as `SumNoise` would. The framework cannot
    know that: the certificate is the method's word ("declared", or "checked").

    per_sum: the distance that a unit moves the sum by, in units of the bound.
    """

    enforced = False

    def seen(self, view: ObservedRelease) -> Seen:
        release, sampling, why = super().seen(view)
        moved = self.per_sum(view.n_summed) + view.rounding
        return Release(release.name, moved, release.hidden), sampling, why


def _drawn(view: ObservedRelease) -> Sampling:
    """How the batch is drawn, as far as it is proved for the protected unit."""
    batches = view.request.batches
    if batches is None:
        return Sampling()
    return batches if view.target.records == 1 else batches.of_groups


def _note(view: ObservedRelease) -> tuple[str, ...]:
    batches: Batches | None = view.request.batches
    return () if batches is None else (batches.note,)


def _seen_by(view: ObservedRelease) -> tuple[str, ...]:
    observer = view.observer
    if observer.name == RELEASED_MODEL:
        return ()
    seen = "sees every silo's noised message" if observer.sees_messages else "sees only the sum"
    return (f"the {observer.name} {seen}",)
