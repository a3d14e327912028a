"""Candidates for the worst pair of neighbouring experiments, made like those of the run that is
audited.

Algorithm, aggregation, mechanism and optimiser are the run's. Silos keep their numbers of records
where certificates depend on them; else canaries have one record in each silo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.audit.canary import FEATURES, Canaries, features
from fedpriv.data.allocation import Allocation
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.weighting import OwnWeighting
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment

if TYPE_CHECKING:
    from fedpriv.accountants.events import Event

SLOPE = 1e5
"""Of the canaries' losses: far above every clip bound that somebody would choose."""
PULL = 10.0
"""Slope of the others' losses where they pull the other way: above the bound too, and outweighed by
the canary's."""
AT_ONCE = 32
"""Most canaries in one run."""
RESTLESS = 16
"""Others whose contributions depend on the order of their batches."""
PLACES = 12
"""Records that are tried where it matters in which batch the canary is."""


@dataclass(frozen=True)
class Bounds:
    """What worlds may be like.

    at_once: most canaries in one run.
    pooled: whether units share a bound, so that canaries would hide each other, and others who move
        for one of them show no more than its own push.
    any_loss: whether certificates are for losses of any shape, such as those of records that run
        away.
    alone: whether certificates of a silo do not rest on others, which then stay empty: their
        training would take time and hide the canary.
    """

    at_once: int
    pooled: bool
    any_loss: bool
    alone: bool

    @staticmethod
    def of(exp: Experiment, plan: Plan) -> Bounds:
        """Those of a run."""
        federation = plan.federation
        [query, *_] = exp.algo.queries(1, plan)
        slow = (
            exp.aggregation.estimate(query, federation, 1) is not None
        )  # sums that take time worth telling
        shapeless = replace(plan, federation=replace(federation, loss=None))
        certified = (
            [event.certified for query in exp.algo.queries(1, known) for event in query.events]
            for known in (plan, shapeless)
        )
        any_loss = next(certified) == next(certified)
        pooled = pools(exp, plan)
        return Bounds(1 if slow or pooled else AT_ONCE, pooled, any_loss, stands_alone(exp, plan))


def pools(exp: Experiment, plan: Plan) -> bool:
    """Whether several units share one bound: a silo's whole update is bounded."""
    enforced = any(query.enforced for query in exp.algo.queries(1, plan))
    return enforced and exp.algo.contributors.weighting == OwnWeighting()


def stands_alone(exp: Experiment, plan: Plan) -> bool:
    """Whether each silo adds all noise itself, and its certificates stay the same where the others
    have no records."""
    sizes = plan.federation.silo_records
    if not sizes or any(query.enforced for query in exp.algo.queries(1, plan)):
        return False

    def of_silo(silo: int, records: tuple[int, ...]) -> list[Event]:
        known = replace(plan, federation=replace(plan.federation, silo_records=records))
        events = (event for query in exp.algo.queries(1, known) for event in query.events)
        return [event for event in events if event.scope == silo_name(silo)]

    try:
        return all(
            of_silo(silo, tuple(n * (other == silo) for other, n in enumerate(sizes)))
            == of_silo(silo, sizes)
            != []
            for silo in range(len(sizes))
        )
    except ZeroDivisionError:  # a method that divides by the size of every silo
        return False


def candidates(
    exp: Experiment, bounds: Bounds, unit: str, *, replaces: bool
) -> list[list[Canaries]]:
    """Kinds of worlds for `unit`, several of a kind where they differ in the canary's place alone.

    replaces: whether neighbours replace a unit instead of adding one.
    """
    if exp.algo.queries_need_allocation:
        return _among_real_sizes(exp, bounds, unit, replaces)
    crowd = [[_everywhere(exp, bounds.at_once, 0.0)]] if bounds.at_once > 1 else []
    # The first of several that promise the same is taken: where units share a bound, pulling shows
    # twice as much.
    restless = [] if bounds.pooled else _restless(exp)
    return [*crowd, [_everywhere(exp, 1, -PULL)], [_everywhere(exp, 1, 0.0)], *restless]


def _everywhere(exp: Experiment, canaries: int, pull: float) -> Canaries:
    """Canaries with one draw in each silo, and another user who has one too, of slope `pull`."""
    silos = exp.allocator.n_silos
    draws = exp.data.records_per_draw
    user = np.repeat(np.arange(canaries + 1), silos * draws)
    silo = np.tile(np.repeat(np.arange(silos), draws), canaries + 1)
    owner = np.where(user < canaries, user, -1)
    slopes = np.where(owner >= 0, SLOPE, pull)
    return _present_or_not(exp, user, silo, owner=owner, x=features(owner, canaries), slopes=slopes)


def _restless(exp: Experiment) -> list[list[Canaries]]:
    """Others with two batches each in every silo, who end near the minimum of their last one: if a
    unit's presence moves anybody else's order, it moves the sum by all of them."""
    size = getattr(exp.algo, "batch_size", None)
    rate = getattr(exp.algo, "local_lr", None)
    if size is None or rate is None:
        return []
    silos = exp.allocator.n_silos
    draws = exp.data.records_per_draw
    each = -(-2 * size // draws) * draws
    of_silo = np.concatenate(
        [np.zeros(draws, dtype=int), np.repeat(np.arange(1, RESTLESS + 1), each)]
    )
    user = np.tile(of_silo, silos)
    silo = np.repeat(np.arange(silos), len(of_silo))
    owner = np.where(user == 0, 0, -1)
    # Each of them along a coordinate of its own, so that their moves do not cancel.
    x = np.zeros((len(user), FEATURES + RESTLESS))
    x[user == 0, :FEATURES] = FEATURES**-0.5
    x[user > 0, FEATURES + user[user > 0] - 1] = 1.0
    slopes = SLOPE * np.random.default_rng(0).standard_normal(len(user))
    slopes[user == 0] = SLOPE
    curvature = np.where(user == 0, 0.0, 1 / rate)
    return [
        [_present_or_not(exp, user, silo, owner=owner, x=x, slopes=slopes, curvature=curvature)]
    ]


def _present_or_not(
    exp: Experiment,
    user: np.ndarray,
    silo: np.ndarray,
    *,
    owner: np.ndarray,
    x: np.ndarray,
    slopes: np.ndarray,
    curvature: np.ndarray | None = None,
) -> Canaries:
    trains = np.ones(len(user), dtype=bool)
    allocation = Allocation(user, silo, trains, int(user.max()) + 1, exp.allocator.n_silos)
    curved = np.zeros(len(user)) if curvature is None else curvature
    present, absent = (
        np.stack([s, curved], axis=1) for s in (slopes, np.where(owner >= 0, 0.0, slopes))
    )
    users = np.array([user[owner == k][0] for k in range(owner.max() + 1)])
    # Weights from counts may divide by a canary's count: then it stays, with records that have no
    # gradient.
    leaves = not exp.algo.contributors.weighting.needs_counts
    return Canaries(exp, allocation, x, absent, present, owner, users, silo=None, leaves=leaves)


def _among_real_sizes(
    exp: Experiment, bounds: Bounds, unit: str, replaces: bool
) -> list[list[Canaries]]:
    """Canaries in the smallest silo of the run's allocation, where one record weighs most."""
    _, allocation, _ = allocate(exp)
    silo = int(allocation.silo_sizes().argmin())
    here = np.flatnonzero(allocation.trains & (allocation.silo == silo))
    units = _units(allocation, here, unit, exp.data.records_per_draw)
    rate = getattr(exp.algo, "local_lr", None)
    if (
        rate is None or getattr(exp.algo, "local_steps", 1) == 1
    ):  # a single step has no earlier noise to forget
        rate = None

    if bounds.alone:
        allocation = replace(allocation, trains=allocation.trains & (allocation.silo == silo))

    def world(chosen: list[np.ndarray], forget: bool, escape: bool) -> Canaries:
        owner = np.full(len(allocation.user), -1)
        for number, rows in enumerate(chosen):
            owner[rows] = number
        curvature = np.zeros(len(owner))
        if forget and rate is not None and not bounds.alone:
            curvature[allocation.silo != silo] = 1 / rate
        if escape:
            curvature[(allocation.silo == silo) & (owner < 0)] = -SLOPE
        faces = (np.where(owner >= 0, slope, 0.0) for slope in (-SLOPE if replaces else 0.0, SLOPE))
        absent, present = (np.stack([face, curvature], axis=1) for face in faces)
        users = np.array([allocation.user[rows[0]] for rows in chosen])
        x = features(owner, len(chosen))
        return Canaries(exp, allocation, x, absent, present, owner, users, silo=silo, leaves=False)

    kinds = [[world(units[:1], forget=True, escape=False)]]
    if bounds.at_once > 1 and len(units) > 1:
        kinds.insert(0, [world(units[: bounds.at_once], forget=False, escape=False)])
    if rate is not None and bounds.any_loss:
        kinds.append([world([rows], forget=True, escape=True) for rows in units[:PLACES]])
    return kinds


def _units(allocation: Allocation, here: np.ndarray, unit: str, draws: int) -> list[np.ndarray]:
    """Rows of each unit among the rows `here`: of the users who own most of them, or of single
    draws."""
    owned = np.bincount(allocation.user[here])
    if unit == "user":
        return [
            here[allocation.user[here] == user] for user in np.flatnonzero(owned == owned.max())
        ]
    ordered = here[np.argsort(allocation.user[here], kind="stable")]
    return list(ordered[: len(ordered) // draws * draws].reshape(-1, draws))
