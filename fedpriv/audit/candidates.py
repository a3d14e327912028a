"""Candidates for the worst pair of neighbouring experiments.

Algorithm, aggregation, mechanism and optimiser are those of the audited run. Silos keep their
numbers of records where certificates depend on them. Otherwise canaries have one record in each
silo.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedpriv.accountants.events import Event
from fedpriv.audit.canary import Canaries, FileCanary, canary_features, independent_users
from fedpriv.data.allocate import Allocation
from fedpriv.parties.party import silo_name
from fedpriv.rounds.contributors import Contributors, OwnWeighting
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.user_groups import members
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment

CANARY_SLOPE = 1e5
"""Slope of the canaries' losses, far above any reasonable clip bound."""
OTHER_SLOPE = 10.0
"""Slope of opposing units: also above the clip bound, and outweighed by the canary's slope."""
MAX_SHARED_CANARIES = 32
"""Most canaries in one run."""
TRIED_RECORDS = 4
"""Records of a file that are tried as canaries where no network is trained."""
TRIED_UNITS = 12
"""Units that are tried as canaries where the canary's batch matters."""


def round_events(exp: Experiment, plan: Plan) -> list[Event]:
    """All events of the first round."""
    return [event for query in exp.algo.queries(1, plan) for event in query.events]


def bounds_whole_silos(exp: Experiment, plan: Plan) -> bool:
    """Whether the bound applies to a silo's whole update, so that its units share the bound."""
    enforced = any(query.asked.enforced for query in exp.algo.queries(1, plan))
    return enforced and exp.algo.contributors.weighting == OwnWeighting()


def _certified_alone(exp: Experiment, plan: Plan) -> bool:
    """Whether each silo adds all its noise itself and keeps its certificate if the others are
    empty."""
    sizes = plan.federation.silo_records
    if not sizes or any(query.asked.enforced for query in exp.algo.queries(1, plan)):
        return False

    def of_silo(silo: int, records: tuple[int, ...]) -> list[Event]:
        known = replace(plan, federation=replace(plan.federation, silo_records=records))
        return [event for event in round_events(exp, known) if event.scope == silo_name(silo)]

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
    exp: Experiment, plan: Plan, unit: str, *, replaces: bool, user_group: str = ""
) -> list[list[Canaries]]:
    """Groups of candidates for `unit`; those of a group differ only in the canary's place.

    plan: plan of the audited run.
    replaces: whether neighbours replace a unit instead of adding one.
    user_group: group of users that the canaries belong to; "": any.
    """
    if not exp.algo.releases_model:
        return [_of_the_file(exp)]
    # Units that share a bound hide each other. Sums may be too slow for shared runs to pay off.
    pooled = bounds_whole_silos(exp, plan)
    slow = bool(exp.aggregation.estimate(exp.algo.queries(1, plan)[0], plan.federation))
    most = 1 if slow or pooled else MAX_SHARED_CANARIES
    if exp.algo.contributors.needs_sizes:
        return _with_real_sizes(exp, plan, unit, replaces, most)
    most = int(min(most, most_in_group(exp, user_group)))
    shared = [[_in_every_silo(exp, most, 0.0)]] if most > 1 else []
    # Of equally promising candidates the first is taken. Opposing units come first because they
    # show twice as much where units share a bound.
    alone = [[_in_every_silo(exp, 1, -OTHER_SLOPE)], [_in_every_silo(exp, 1, 0.0)]]
    return [[in_group(one, user_group) for one in group] for group in (*shared, *alone)]


def _any_loss(exp: Experiment, plan: Plan) -> bool:
    """Whether certificates hold for losses of any shape, such as those of records that drive
    parameters away from zero."""
    unknown = replace(plan, federation=replace(plan.federation, loss=None))
    one, other = ([event.certified for event in round_events(exp, p)] for p in (plan, unknown))
    return one == other


def _in_every_silo(exp: Experiment, canaries: int, other_slope: float) -> Canaries:
    """Canaries, and one other user, with one draw in each silo."""
    allocation = independent_users(exp, canaries + 1)
    owner = np.where(allocation.user < canaries, allocation.user, -1)
    slopes = np.where(owner >= 0, CANARY_SLOPE, other_slope)
    present = np.stack([slopes, np.zeros(len(owner))], axis=1)
    absent = np.where(owner[:, None] < 0, present, 0.0)
    # Weights from counts may divide by a canary's count. The canary then stays, with records that
    # have no gradient.
    leaves = not exp.algo.contributors.weighting.needs_counts
    x = canary_features(owner, canaries)
    about = (exp, allocation, x, absent, present, owner, np.arange(canaries))
    return Canaries(*about, silo=None, leaves=leaves)


def _of_the_file(exp: Experiment) -> list[Canaries]:
    """A user with one record in every silo, which is one of the file's, or has all features zero:
    the lower bounds of numbers, and the first of each list of categories."""
    own = exp.data.load(exp.streams).train
    allocation = independent_users(exp, 2)
    owner = np.where(allocation.user == 0, 0, -1)
    rows = np.linspace(0, len(own) - 1, TRIED_RECORDS).astype(int)
    records = [(own.x[row], own.y[row]) for row in rows]
    found: list[Canaries] = []
    for one in [(np.zeros_like(own.x[0]), own.y[0]), *records]:
        x, y = (np.stack([values] * len(owner)) for values in one)
        about = (exp, allocation, x, y, y, owner, np.zeros(1, dtype=np.int64))
        found.append(FileCanary(*about, silo=None, leaves=True))
    return found


def _with_real_sizes(
    exp: Experiment, plan: Plan, unit: str, replaces: bool, most: int
) -> list[list[Canaries]]:
    """Canaries in the smallest silo of the run's allocation, where one record weighs most.

    most: most canaries in one run.
    """
    _, allocation, _ = allocate(exp)
    silo = int(allocation.silo_sizes().argmin())
    here = np.flatnonzero(allocation.trains & (allocation.silo == silo))
    units = _units(allocation, here, unit, exp.data.records_per_draw)
    # A single step has no earlier noise to forget.
    single = getattr(exp.algo, "local_steps", 1) == 1
    rate = None if single else getattr(exp.algo, "local_lr", None)
    # Other silos stay empty if the certificate allows it: their training takes time and hides the
    # canary.
    others_empty = _certified_alone(exp, plan)
    if others_empty:
        allocation = replace(allocation, trains=allocation.trains & (allocation.silo == silo))

    def canaries(chosen: list[np.ndarray], *, forget: bool, escape: bool = False) -> Canaries:
        owner = np.full(len(allocation.user), -1)
        for number, rows in enumerate(chosen):
            owner[rows] = number
        curvature = np.zeros(len(owner))
        if forget and rate is not None and not others_empty:
            curvature[allocation.silo != silo] = 1 / rate
        if escape:
            curvature[(allocation.silo == silo) & (owner < 0)] = -CANARY_SLOPE
        absent, present = (
            np.stack([np.where(owner >= 0, slope, 0.0), curvature], axis=1)
            for slope in (-CANARY_SLOPE if replaces else 0.0, CANARY_SLOPE)
        )
        users = np.array([allocation.user[rows[0]] for rows in chosen])
        x = canary_features(owner, len(chosen))
        return Canaries(exp, allocation, x, absent, present, owner, users, silo=silo, leaves=False)

    groups = [[canaries(units[:1], forget=True)]]
    if most > 1 and len(units) > 1:
        groups.insert(0, [canaries(units[:most], forget=False)])
    if rate is not None and _any_loss(exp, plan):
        groups.append([canaries([rows], forget=True, escape=True) for rows in units[:TRIED_UNITS]])
    return groups


def _units(allocation: Allocation, here: np.ndarray, unit: str, draws: int) -> list[np.ndarray]:
    """Rows of each unit among the rows `here`: single draws, or the users with most rows."""
    owned = np.bincount(allocation.user[here])
    if unit == "user":
        largest = np.flatnonzero(owned == owned.max())
        return [here[allocation.user[here] == user] for user in largest]
    ordered = here[np.argsort(allocation.user[here], kind="stable")]
    return list(ordered[: len(ordered) // draws * draws].reshape(-1, draws))


AnyCanaries = TypeVar("AnyCanaries", bound=Canaries)


def most_in_group(exp: Experiment, name: str) -> float:
    """The largest number of users that a group can have, however many users there are."""
    groups = [group for group in exp.algo.contributors.groups if group.name == name]
    return float(len(groups[0].users) or math.inf) if groups else math.inf


def _members(contributors: Contributors, name: str, n_users: int) -> np.ndarray:
    """The users of a group whose turn is the first, (k,) int64."""
    found = members(contributors.groups, name, n_users)
    return np.asarray(found[found % contributors.turns == 0])


def in_group(canaries: AnyCanaries, name: str) -> AnyCanaries:
    """The same canaries with numbers of users in group `name`, or in the first turn if `name` is
    empty.

    There are at least as many users as in the audited run, and more if the group's share needs it.
    """
    contributors = canaries.original.algo.contributors
    if not name and contributors.turns == 1:
        return canaries
    allocation = canaries.allocation
    n_users = max(canaries.original.allocator.n_users, allocation.n_users)
    while len(found := _members(contributors, name, n_users)) < len(canaries):
        n_users *= 2
    known = np.unique(allocation.user)
    others = np.setdiff1d(known, canaries.users)
    own = found[: len(canaries)]
    free = np.setdiff1d(np.arange(n_users), own)
    number = np.zeros(allocation.n_users, dtype=np.int64)
    number[canaries.users] = own
    number[others] = free[: len(others)]
    renumbered = replace(allocation, user=number[allocation.user], n_users=n_users)
    return replace(canaries, allocation=renumbered, users=own)
