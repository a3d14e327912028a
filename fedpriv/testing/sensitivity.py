"""From the file to the sum: how far one unit of the file moves what is given to the noise.

Two runs on neighbouring files (`fedpriv.testing.neighbouring_files`) draw the same random numbers
and see the same releases before, as the composition of releases assumes. Everything that they give
to the noise is compared: the sums of a round, and inside noisy training each step's sum of clipped
gradients. A certificate charges a distance for it. Noise is seeded, equal in both runs, and so
cancels in the difference.

>>> from fedpriv.testing.experiments import experiment
>>> exp = experiment("algo=uldp_avg", "preset.n_users=8", "preset.local_epochs=1")
>>> [largest] = distances(exp, users=2, records=0)
>>> largest.target.unit, largest.relation, 0.1 < largest.ratio <= 1 + 1e-9
('user', 'add/remove', True)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from itertools import islice
from typing import Any
from unittest import mock

import numpy as np
from dp_accounting import NonPrivateDpEvent

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL
from fedpriv.certificates.noise import DpSgdNoise, SiloNoise, StepNoise, SumNoise
from fedpriv.certificates.request import Noise, ObservedRelease, Target, observed_releases
from fedpriv.errors import MisfitError
from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.neighbouring_files import File
from fedpriv.training import dp_sgd
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

EXACT = 1e-9
"""By how much float64 sums exceed a bound."""
ONE_RECORD = "one record"
"""The relation of a user who loses one record."""


@dataclass(frozen=True)
class LargestDistance:
    """What the units of one relation move, at most.

    target: the protected unit.
    relation: how the file differs: adjacency, or "one record" of a user who is protected as a
        whole.
    certified: whether any certificate of the target is finite, with a noise that says what it
        charges.
    ratio: largest distance over what the certificate charges for it; 0 if nothing moved, or if
        nothing is certified and so nothing was measured.
    tried: number of neighbouring files.
    worst: number of the unit that moves most, among the file's; None: nothing was measured.
    """

    target: Target
    relation: str
    certified: bool
    ratio: float = 0.0
    tried: int = 0
    worst: int | None = None

    @property
    def exceeds(self) -> bool:
        """Whether a unit moves more than is charged, beyond rounding. A ratio of NaN does."""
        return not self.ratio <= 1 + EXACT

    def __str__(self) -> str:
        unit = "record" if self.relation == ONE_RECORD else self.target.unit
        worst = "" if self.worst is None else f"; {unit} {self.worst} moves most"
        return (
            f"{self.target.unit}, {self.relation}: {self.ratio:.4g} times the distance that its "
            f"certificate charges, over {self.tried} neighbouring files{worst}"
        )


@dataclass(frozen=True)
class Charge:
    """What a certificate charges, as distances.

    sum: for a round's sum.
    step: for one noisy step inside training, in standard deviations of its noise.
    """

    sum: float
    step: float = 0.0


class RepeatableSystem(Streams):
    """Streams of the operating system that repeat, so that two runs draw the same numbers. Users
    train alone, as with real randomness."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, system=True)

    def secret(self, purpose: str, round: int, party: str = "") -> np.random.Generator:
        return self.generator(purpose, round, party)

    def unit_bases(self, *names: Any) -> np.ndarray:
        return Streams(self.seed).unit_bases(*names)

    def unit_coins(self, *names: Any) -> Callable[[int], np.ndarray]:
        return Streams(self.seed).unit_coins(*names)


@singledispatch
def charge(noise: Noise, view: ObservedRelease) -> Charge | None:
    """The distances that the certificate of one unit of `view` charges; None: the class of the
    noise does not say."""
    return None


@charge.register
def _(noise: SumNoise, view: ObservedRelease) -> Charge:
    release, _, _ = noise.seen(view)
    unit = view.mechanism.clip * noise.sensitivity(view.n_summed)
    return Charge(release.moved * unit * view.target.records)


@charge.register
def _(noise: SiloNoise, view: ObservedRelease) -> Charge:
    release, _, _ = noise.seen(view)
    return Charge(release.moved * view.mechanism.clip / release.size * view.target.records)


@charge.register
def _(noise: DpSgdNoise, view: ObservedRelease) -> Charge:
    return Charge(np.inf, view.target.records / view.mechanism.noise_multiplier)


@charge.register
def _(noise: StepNoise, view: ObservedRelease) -> Charge:
    steps = noise.steps(view.records)
    moved = steps.moved / steps.size * view.target.records
    last = (
        moved * view.mechanism.clip * steps.in_message
    )  # all but the last step are released before
    return Charge(last, moved / view.mechanism.noise_multiplier)


@dataclass
class _Exchange:
    """One exchange of the run on the whole file.

    query, state: what was asked, and the state before.
    steps: each step's sum inside noisy training, in order, in deviations of its noise.
    total: the sum.
    """

    query: Query
    state: State
    steps: list[np.ndarray] = field(default_factory=list)
    total: np.ndarray = field(default_factory=lambda: np.zeros(0))


def distances(
    exp: Experiment,
    *,
    users: int = 10**9,
    records: int = 100,
    rounds: int = 1,
    file: File | None = None,
    seconds: float = math.inf,
) -> list[LargestDistance]:
    """The largest distances that units of the file move what is given to the noise.

    users, records: how many of them differ, one at a time: half of them the extremes of the file
        (`File.extremes`), half chosen at random.
    rounds: rounds that are compared.
    file: what differs; None: the records that the experiment's data set reads.
    seconds: time for the neighbouring files of each relation; one is compared in any case.
    """
    file = file or File.of(exp)
    whole, plan = _whole_run(exp, rounds)
    found = []
    for target in exp.algo.targets(plan.federation):
        charges = [_charges(exp, target, plan, exchange.query) for exchange in whole]
        if not any(charges):
            found.append(LargestDistance(target, target.adjacency, certified=False))
            continue
        compared = partial(_ratio, plan=plan, whole=whole, charges=charges)
        unit = "user" if target.unit == "user" else "record"
        relations = [(target.adjacency, unit, 1)]
        if unit == "user" and target.adjacency == ADD_REMOVE and records:
            # A user without one record is one user removed and another added.
            relations.append((ONE_RECORD, "record", 2))
        for relation, part, units_moved in relations:
            chosen = chosen_units(file, part, users if part == "user" else records)
            rows = file.units(part)
            neighbours = (file.neighbour(rows[one], target.adjacency) for one in chosen)
            ratios = [compared(one) / units_moved for one in _within(seconds, neighbours)]
            found.append(_largest(LargestDistance(target, relation, True), ratios, chosen))
    return found


def _within(seconds: float, neighbours: Iterator[Experiment]) -> Iterator[Experiment]:
    """The first of the neighbours, and the others until the time is up."""
    end = time.monotonic() + seconds
    for neighbour in neighbours:
        yield neighbour
        if time.monotonic() > end:
            return


def chosen_units(file: File, unit: str, most: int) -> list[int]:
    """Numbers of at most `most` units of the file: its extremes in turn until half are chosen, then
    others at random."""
    if most <= 0:
        return []
    extremes = file.extremes(unit)
    number = len(extremes[0])
    in_turn = zip(*(np.argsort(-values, kind="stable") for values in extremes))
    first = islice(dict.fromkeys(int(one) for turn in in_turn for one in turn), (most + 1) // 2)
    others = np.random.default_rng(0).permutation(number)
    return list(islice(dict.fromkeys([*first, *others.tolist()]), most))


def _largest(relation: LargestDistance, ratios: list[float], chosen: list[int]) -> LargestDistance:
    if not ratios:
        return relation
    at = int(np.argmax(ratios))  # a NaN is largest
    return replace(relation, ratio=ratios[at], tried=len(ratios), worst=chosen[at])


def _whole_run(exp: Experiment, rounds: int) -> tuple[list[_Exchange], Plan]:
    """What the run on the whole file gives to the noise, and its plan."""
    whole = []
    with prepare(exp, revise=lambda plan: replace(plan, streams=RepeatableSystem())) as run:
        state = run.state
        for number in range(1, rounds + 1):
            for query in run.queries(number):
                exchange = _Exchange(query, state)
                with _steps(exchange.steps.append):
                    total, _ = run.exchange(query, state, watch=Stopwatch(), lines=[])
                exchange.total = total.vector
                state = exp.algo.next_state(state, query, total, run.plan)
                whole.append(exchange)
        return whole, run.plan


def _ratio(
    neighbour: Experiment, *, plan: Plan, whole: list[_Exchange], charges: list[Charge | None]
) -> float:
    """The largest distance between two runs, relative to its charge. What was public and what was
    released in the run on the whole file is given."""
    ratios = [0.0]
    with prepare(neighbour, revise=lambda _: plan) as run:
        for exchange, charged in zip(whole, charges):
            if charged is None:
                continue
            try:
                steps, total = _repeated(run, exchange)
            except MisfitError:  # the server refuses a message, for numbers that are not finite
                return math.inf
            ratios.append(_norm(total - exchange.total) / charged.sum)
            if charged.step:
                ratios += [_norm(one) / charged.step for one in steps]
    return float(np.max(ratios))  # NaN is largest


def _repeated(run: PreparedRun, exchange: _Exchange) -> tuple[list[np.ndarray], np.ndarray]:
    """How far each step differs if the releases before it are those of `exchange`; and the sum."""
    differences: list[np.ndarray] = []

    def given(total: np.ndarray) -> np.ndarray:
        before = exchange.steps[len(differences)]
        differences.append(total - before)
        return before

    with _steps(given):
        found, _ = run.exchange(exchange.query, exchange.state, watch=Stopwatch(), lines=[])
    if len(differences) != len(exchange.steps):
        raise AssertionError(f"{len(differences)} noisy steps instead of {len(exchange.steps)}")
    return differences, found.vector


def _norm(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


@contextmanager
def _steps(seen: Callable[[np.ndarray], np.ndarray | None]) -> Iterator[None]:
    """Context in which noisy training gives each step's sum to `seen`, in deviations of its noise.
    It continues without noise from what that returns, if it returns something."""

    def released(total: np.ndarray, deviation: float) -> np.ndarray:
        other = seen(total / deviation)
        return total if other is None else other * deviation

    def added(
        noise: TrainingNoise, total: np.ndarray, rng: object, *, divisor: int = 1
    ) -> tuple[np.ndarray, float]:
        return released(total, noise.deviation * divisor), 0.0

    def noised(total: np.ndarray, deviation: float, rng: object) -> np.ndarray:
        return released(total, deviation)

    with (
        mock.patch.object(dp_sgd, "noised", noised),
        mock.patch.object(TrainingNoise, "add", added),
    ):
        yield


def _charges(exp: Experiment, target: Target, plan: Plan, query: Query) -> Charge | None:
    """What the certificates of the released model charge for a query; None: there is none.

    A unit whose records are in several silos is charged as if all of them were in the one where
    they move most.
    """
    certified = {
        event.scope
        for event in query.events
        if (event.observer, event.unit, event.adjacency)
        == (RELEASED_MODEL, target.unit, target.adjacency)
        and event.certified != NonPrivateDpEvent()
    }
    requests = [one for one in exp.algo.requests(query.round, plan) if one.name == query.name]
    observer = [plan.observer(RELEASED_MODEL)]
    views = (
        view
        for request in requests
        for view in observed_releases(
            request, plan, exp.algo.contributors, [target], observer, query.round
        )
        if view.scope in certified
    )
    charges = [found for view in views if (found := charge(view.request.noise, view))]
    if not charges:
        return None
    return Charge(max(one.sum for one in charges), max(one.step for one in charges))
