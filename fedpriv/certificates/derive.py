"""Derive every observer's certified event from a method's requests.

The framework bounds, samples, sums and noises, so it knows what each observer sees. One formula
serves all methods. A method adds only its paper's claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from fedpriv.accountants.events import ADD_REMOVE, SERVER, Event
from fedpriv.accountants.group import dominating
from fedpriv.certificates.cheating import ANYTHING, HONEST, trusted_with
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import (
    ObservedRelease,
    Request,
    Target,
    observed_releases,
)
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError, require
from fedpriv.rounds.contributors import Contributors, Silos
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Asked, Query
from fedpriv.rounds.user_groups import PUBLIC_GROUPS
from fedpriv.util.installed import others

if TYPE_CHECKING:
    from dp_accounting import DpEvent

TRUNCATED = "without one record another of its user's trains in its place"
"""Why a record that is added or removed has no certificate if at most k records of a user train:
when one record leaves, another takes its place. For sampled batches no bound is proven for that."""
IN_SEVERAL = "a user with records in two silos would count in full in each"
ROUNDED_ALIKE = (
    "float32 training rounds a unit's contribution equally, whichever other units are present"
)
"""Kernels may add in another order for another number of rows. Sums of clipped gradients avoid it
on the processors that were tried (`fedpriv.training.layers.own_gradients`). On a GPU they do not:
there the same silo's sum was seen to change by 2e-6 of its size beside other silos. If one unit
replaces another, the number of rows stays the same."""


LEAST_TAIL = 0.5
"""Share of a mechanism's `noise_bound` that a range must leave for noise: eight standard
deviations of a Gaussian, which a coordinate exceeds once in 1e15 times."""
ROUNDING = 1e-9
"""How much smaller than that a range may be, relatively, because of rounding."""


def plan_queries(
    requests: Iterable[Request],
    plan: Plan,
    contributors: Contributors,
    targets: Iterable[Target],
    *,
    round: int,
    claim: Callable[[ObservedRelease], DpEvent | None],
    author: object = None,
    trains: bool = True,
    charged: bool = True,
) -> tuple[Query, ...]:
    """The queries of a round, with the events of each observer.

    Users are sampled here, unless no observer may know the sample.

    claim: the event that the method's paper claims for an observed release; None: no claim.
    author: the method; its word counts where it draws batches, computes contributions or noises.
    trains: whether the author computes contributions; False: the framework trains users by the
        recipes of the requests.
    charged: False leaves out events and samples.
    """
    requests = tuple(requests)
    _require_askable(requests, plan, contributors)
    rate = contributors.rate
    targets = tuple(targets)
    queries = []
    for place, request in enumerate(requests):
        parameters = plan.query_parameters[request.name]
        n_summed = request.sum_of(plan)
        trusted = request, request.noise, request.batches, parameters.mechanism
        authors = (
            *plan.authors,
            *plan.federation.authors,
            *others(*trusted, contributors, contributors.weighting, *contributors.groups),
            *(others(author) if _rests_on_author(request, contributors, trains) else ()),
        )
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
            events=derive(request, plan, contributors, targets, round, claim, authors)
            if charged
            else (),
            streams=plan.streams,
            user_rate=rate,
            sensitivity=request.noise.sensitivity(n_summed),
            asked=Asked(
                request.recipe,
                request.stateful or parameters.mechanism.mixing is not None,
                request.noise.enforced,
            ),
        )
        if charged and rate < 1 and not plan.hides_sample:
            # Afresh for each query: each is charged as a sample of its own.
            coins = plan.streams.secret(query.stream("user sample"), round)
            query = replace(query, sampled=coins.random(plan.federation.n_users) < rate)
        queries.append(query)
    return tuple(queries)


def _rests_on_author(request: Request, contributors: Contributors, trains: bool) -> bool:
    """Whether the certificate needs the method's own noise, batches as it declares them, or
    contributions that it makes of one unit's records each. If silos are bounded, it holds for any
    function of a silo's records."""
    of_units = request.batches is not None or not isinstance(contributors, Silos)
    return not request.noise.enforced or (trains and of_units)


def _require_askable(requests: tuple[Request, ...], plan: Plan, contributors: Contributors) -> None:
    """Raise ValueError for requests whose noise shares or random streams would not be what events
    say."""
    names = [request.name for request in requests]
    if len(set(names)) < len(names):
        raise ValueError(f"queries of a round share a name: {', '.join(names)}")
    for request in requests:
        silos = request.silos(plan)
        n_summed = request.sum_of(plan)
        known = set(range(plan.federation.n_silos))
        if len(set(silos)) < len(silos) or not set(silos) <= known:
            raise ValueError(f"query {request.name}: {silos} are not different silos of the run")
        if request.stateful and request.noise.enforced and request.noise.added:
            _require_simulated(request, plan)
        require_suited(request, plan, contributors)
        if not 1 <= n_summed <= len(silos):
            raise ValueError(f"query {request.name}: a sum over {n_summed} of {len(silos)} silos")
        if request.recipe is not None and not contributors.any_number:
            name = type(contributors).__name__
            raise ValueError(f"query {request.name}: a recipe trains users, not {name}")
        if request.noise.enforced and request.noise.added:
            _require_grid(request, plan, contributors)


def _require_grid(request: Request, plan: Plan, contributors: Contributors) -> None:
    """Raise ConfigError for a grid on which bounded messages or noise shares do not fit. A message
    beyond its range ends the query, and everybody sees that. It is decided by one silo's vector
    under that silo's share of the noise alone, which certificates of a sum do not charge."""
    parameters = plan.query_parameters[request.name]
    mechanism = parameters.mechanism
    sensitivity = request.noise.sensitivity(request.sum_of(plan))
    parameters.check_noise(sensitivity)
    encoding = parameters.encoding
    if not (mechanism.clips and isinstance(encoding, FixedPoint)):
        return
    signal = _most_bounded(request, plan, contributors) * mechanism.clip
    reached = signal + LEAST_TAIL * mechanism.noise_bound(request.sum_of(plan), sensitivity)
    if mechanism.mixing is not None:
        reached *= max(1.0, mechanism.mixing.row_sum)
    allowed = f"at least {reached!r}, which messages can reach (`message_bound` of the method)"
    fits = encoding.bound >= reached * (1 - ROUNDING)
    require(fits, "aggregation.range", encoding.bound, allowed)


def _most_bounded(request: Request, plan: Plan, contributors: Contributors) -> float:
    """The most bounded vectors that one silo's message adds up."""
    most = contributors.most_bounded(plan.federation)
    batches = request.batches
    if batches is None or not contributors.one_silo:
        return most
    sizes = (n for n in plan.federation.silo_records if n)
    return min(most, max((batches.most(request.batch_size(n), n) for n in sizes), default=most))


def _require_simulated(request: Request, plan: Plan) -> None:
    """Raise ConfigError for a silo memory beside noise that protects somebody. Silos fill it from
    contributions before the noise, and a checkpoint holds the memories of all silos."""
    if plan.streams.system:
        allowed = (
            f"seed, since silos keep raw contributions of query {request.name}, and the "
            "checkpoint of the run would hold them"
        )
        raise ConfigError("randomness", "system", allowed)


def require_suited(request: Request, plan: Plan, contributors: Contributors) -> None:
    """Raise ConfigError for a mechanism that no certificate covers with this query.

    - Correlated noise: sums that no message of a later round can repeat as certified, which are
      those that the framework does not noise, of records, of batches that silos draw, or of another
      size than the model.
    - A bound that adapts: messages without room for its marks, sums whose number of contributions
      is not known beforehand, and several kinds of vectors.
    - A bound in L1: all but sums that the framework noises, of vectors that a method makes for it.
    """
    mechanism = plan.query_parameters[request.name].mechanism
    noised = type(request.noise) is SumNoise
    drawn = contributors.one_silo or request.batches is not None
    trains = request.size is None
    if mechanism.mixing is not None:
        allowed = (
            "gaussian: correlated noise is for sums of users or silos that the framework noises"
        )
        require(noised and not drawn and trains, "mechanism", "correlated", allowed)
    if mechanism.marks:
        alone = len(plan.query_parameters) == 1 and trains
        fits = request.noise.marks and not contributors.one_silo and alone
        allowed = "gaussian: a bound adapts where all sums are noised and of one kind of vectors"
        require(fits, "mechanism", "adaptive", allowed)
    if mechanism.norm == 1:
        fits = noised and not drawn and not trains
        require(fits, "mechanism", "laplace", "gaussian: laplace is for statistics and evaluations")


def derive(
    request: Request,
    plan: Plan,
    contributors: Contributors,
    targets: Iterable[Target],
    round: int,
    claim: Callable[[ObservedRelease], DpEvent | None],
    authors: tuple[str, ...],
) -> tuple[Event, ...]:
    """The events of one query, which is the word of these authors."""
    observers = plan.threat_model.observers
    trusted = trusted_with(request, plan, contributors, authors)
    views = observed_releases(request, plan, contributors, targets, observers, round)
    events = (_event(view, _claimed(view, claim), authors, trusted) for view in views)
    return _with_bounds(tuple(events), plan)


def _claimed(
    view: ObservedRelease, claim: Callable[[ObservedRelease], DpEvent | None]
) -> DpEvent | None:
    """What the method's paper claims. A paper with a fixed bound claims nothing for one that
    adapts, and none does for a server that cheats."""
    return None if view.mechanism.marks or view.observer.cheats else claim(view)


def _with_bounds(events: tuple[Event, ...], plan: Plan) -> tuple[Event, ...]:
    """The events of one release, those under one noise with a bound for records of any silos if all
    silos take part."""
    silos: dict[tuple[str, ...], list[Event]] = {}
    for event in events:
        if event.one_noise:
            silos.setdefault(_about(event), []).append(event)
    bounds = {
        about: dominating((event.certified for event in own), own[0].group_size)
        for about, own in silos.items()
        if len({event.scope for event in own}) == len(own) == plan.federation.n_silos
    }
    return tuple(
        replace(event, together=bounds.get(_about(event))) if event.one_noise else event
        for event in events
    )


def _about(event: Event) -> tuple[str, ...]:
    return event.observer, event.unit, event.adjacency, event.group


def _event(
    view: ObservedRelease,
    claimed: DpEvent | None,
    authors: tuple[str, ...],
    trusted: str | None,
) -> Event:
    """The event of an observed release.

    trusted: see `trusted_with`.
    """
    from dp_accounting import NonPrivateDpEvent

    request = view.request
    observer = view.observer
    plan = view.plan
    target = view.target
    certified: DpEvent = NonPrivateDpEvent()
    fails = _failure(view) or (trusted if observer.cheats else None)
    if fails is not None:
        why: tuple[str, ...] = (f"FAILS: {fails}",)
    else:
        certified, why = request.noise.event(view)
        if observer.cheats:
            why = ANYTHING, *why
        elif observer.name == SERVER and trusted is not None and certified != NonPrivateDpEvent():
            why = f"{HONEST}: {trusted}", *why
    noise = view.mechanism.assumptions(view.parameters.encoding, real=plan.streams.system)
    size = _group(view)
    return Event(
        observer.name,
        target.unit,
        target.adjacency,
        certified,
        claimed,
        view.scope,
        (
            *noise,
            *((ROUNDED_ALIKE,) if _shares_kernels(view) else ()),
            *plan.threat_model.assumptions,
            *request.noise.assumptions(view),
            *request.assumptions,
            *target.assumptions,
            *plan.federation.stability.assumptions,
            *((PUBLIC_GROUPS,) if view.group else ()),
            *why,
        ),
        size,
        authors,
        group=view.group.name if view.group else "",
        one_noise=size > 1 and view.silo is not None and request.noise.of_sums(view),
    )


def _shares_kernels(view: ObservedRelease) -> bool:
    """Whether units that come or go can change the last bits of others. With system randomness each
    user trains alone (`fedpriv.training.select`)."""
    alone = view.plan.streams.system and view.contributors.any_number
    return view.target.adjacency == ADD_REMOVE and not alone


def _failure(view: ObservedRelease) -> str | None:
    """Why no certificate holds against this observer; None if one does."""
    observer = view.observer
    if observer.why_uncertified:
        return observer.why_uncertified
    weighting = view.contributors.weighting
    if weighting.needs_counts and observer.sees_counts:
        return observer.sees_counts
    if weighting.one_silo_each and not view.plan.federation.one_silo_each:
        return IN_SEVERAL
    return view.target.fails or _misfit(view) or _too_far(view)


def _misfit(view: ObservedRelease) -> str | None:
    """Why the unit is none that the derivation knows; None if it is."""
    target = view.target
    group = view.plan.federation.records_per_draw
    known = {"user", "record", f"{group} records of a user"}
    if isinstance(view.contributors, Silos) and not view.request.noise.by_silo:
        known.add("silo")  # its vector is bounded, whatever it is made of
    if target.unit not in known:
        return f"nothing is known of the unit {target.unit}"
    if view.group is not None and not view.request.noise.enforced:
        return "the bounds of groups of users need the framework's clipping"
    batches = view.request.batches
    if batches is not None and batches.adjacency != target.adjacency:
        return (
            f"{type(batches).__name__} batches are for {batches.adjacency}, not {target.adjacency}"
        )
    return None


def _group(view: ObservedRelease) -> int:
    """The number of records that may differ, for a release whose sensitivity is that of one
    record."""
    rows = view.distance.rows
    records = view.target.records
    return records if records == 1 or math.isinf(rows) else max(records, int(rows))


def _too_far(view: ObservedRelease) -> str | None:
    """Why no certificate holds for neighbours at this distance; None if one does."""
    target = view.target
    distance = view.distance
    if math.isinf(distance.users):
        return distance.why
    if target.unit == "user":
        return _uncounted(view)
    if distance.swaps:
        return TRUNCATED
    return None if distance.rows <= 1 else distance.why or f"{distance.rows:g} records differ"


def _uncounted(view: ObservedRelease) -> str | None:
    """Why the method counts too few records of a user; None if it counts all that differ, or if it
    does not matter how many there are."""
    distance = view.distance
    in_full = view.contributors.one_silo
    if not in_full and not view.request.noise.by_silo:
        return None  # whatever the number of its records, one user differs
    drawn = 1 if in_full else view.plan.federation.records_per_draw
    if distance.rows // drawn <= view.target.records:
        return None
    return distance.why or (
        f"{distance.rows:g} records of a user train, and the method counts {view.target.records}"
    )
