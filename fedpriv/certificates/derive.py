"""Derive every observer's certified event from a method's requests.

The framework bounds, samples, sums and noises, so it knows what each observer sees. One formula
serves all methods. A method adds only its paper's claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.certificates.request import TRUNCATED, ObservedRelease, Request, Target
from fedpriv.data.stability import Distance
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ROUNDED_ALIKE = (
    "float32 training rounds a unit's contribution equally, whichever other units are present"
)
"""Kernels may add in another order for another number of rows. If one unit replaces another, the
number of rows stays the same."""


def plan_queries(
    requests: Iterable[Request],
    plan: Plan,
    contributors: Contributors,
    targets: Iterable[Target],
    *,
    round: int,
    claim: Callable[[ObservedRelease], DpEvent | None],
) -> tuple[Query, ...]:
    """The queries of a round, with the events of each observer.

    Users are sampled here, unless no observer may know the sample.

    claim: the event that the method's paper claims for an observed release; None: no claim.
    """
    sampled = None
    rate = contributors.rate
    if rate < 1 and not plan.hides_sample:
        drawn = plan.streams.secret("user sample", round).random(plan.federation.n_users)
        sampled = drawn < rate
    targets = tuple(targets)
    queries = []
    for place, request in enumerate(requests):
        parameters = plan.query_parameters[request.name]
        n_summed = request.sum_of(plan)
        query = Query(
            name=request.name,
            round=round,
            place=place,
            invited=request.silos(plan),
            n_summed=n_summed,
            n_most=parameters.n_most,
            size=request.length(plan),
            mechanism=parameters.mechanism,
            encoding=parameters.encoding,
            events=derive(request, plan, contributors, targets, round, claim),
            streams=plan.streams,
            sampled=sampled,
            user_rate=rate,
            enforced=request.noise.enforced,
            checked=plan.checked,
            sensitivity=request.noise.sensitivity(n_summed),
            stateful=request.stateful,
        )
        queries.append(query)
    return tuple(queries)


def observed_releases(
    request: Request,
    plan: Plan,
    contributors: Contributors,
    targets: Iterable[Target],
    round: int,
) -> Iterator[ObservedRelease]:
    """The observed releases of a query: one for each part of the data, protected unit and observer.
    A silo without records is no part."""
    parts: Iterable[int | None] = (None,)
    if request.noise.by_silo or contributors.one_silo:
        sizes = plan.federation.silo_records
        parts = [silo for silo in request.silos(plan) if sizes[silo]]
    targets = tuple(targets)
    for silo in parts:
        for target in targets:
            for observer in plan.threat_model.observers:
                yield ObservedRelease(request, plan, contributors, target, observer, round, silo)


def derive(
    request: Request,
    plan: Plan,
    contributors: Contributors,
    targets: Iterable[Target],
    round: int,
    claim: Callable[[ObservedRelease], DpEvent | None],
) -> tuple[Event, ...]:
    """The events of one query."""
    return tuple(
        _event(view, claim(view))
        for view in observed_releases(request, plan, contributors, targets, round)
    )


def _event(view: ObservedRelease, claimed: DpEvent | None) -> Event:
    request = view.request
    plan = view.plan
    target = view.target
    certified, why = request.noise.event(view)
    fails = _failure(view)
    if fails is not None:
        from dp_accounting import NonPrivateDpEvent

        certified, why = NonPrivateDpEvent(), (f"FAILS: {fails}",)
    noise = view.mechanism.assumptions(view.parameters.encoding, real=plan.streams.system)
    return Event(
        view.observer.name,
        target.unit,
        target.adjacency,
        certified,
        claimed,
        view.scope,
        (
            *noise,
            *((ROUNDED_ALIKE,) if target.adjacency == ADD_REMOVE else ()),
            *plan.threat_model.assumptions,
            *request.noise.assumptions(view),
            *request.assumptions,
            *target.assumptions,
            *plan.federation.stability.assumptions,
            *why,
        ),
        _group(view),
    )


def _failure(view: ObservedRelease) -> str | None:
    """Why no certificate holds against this observer; None if one does."""
    observer = view.observer
    if observer.why_uncertified:
        return observer.why_uncertified
    if view.contributors.weighting.needs_counts and observer.sees_counts:
        return observer.sees_counts
    return view.target.fails or _too_far(view.target, _distance(view))


def _group(view: ObservedRelease) -> int:
    """The number of records that may differ, for a release whose sensitivity is that of one
    record."""
    rows = _distance(view).rows
    records = view.target.records
    return records if records == 1 or math.isinf(rows) else max(records, int(rows))


def _distance(view: ObservedRelease) -> Distance:
    """The distance of neighbouring data sets before the first event."""
    target = view.target
    unit = "user" if target.unit == "user" else "record"
    return view.plan.federation.stability.of(unit, target.adjacency)


def _too_far(target: Target, distance: Distance) -> str | None:
    """Why no certificate holds for neighbours at this distance; None if one does."""
    if math.isinf(distance.users):
        return distance.why
    if target.unit == "user":
        return None  # one user differs, whatever the number of its records
    if distance.swaps:
        return TRUNCATED
    return None if distance.rows <= 1 else distance.why or f"{distance.rows:g} records differ"
