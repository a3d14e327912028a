"""From the file to the sum: how far one unit of the file moves what is given to the noise.

Two runs on neighbouring files (`fedpriv.testing.neighbouring_files`) draw the same random numbers
and see the same releases before, as the composition of releases assumes. Everything that they give
to the noise is compared: the sums of a round, and inside noisy training each step's sum of clipped
gradients. A certificate charges a distance for it. Noise is seeded, equal in both runs, and so
cancels in the difference. No other user's contribution may differ, however little: a mean over all
of them or a bound read off the file moves them.

>>> from fedpriv.testing.experiments import experiment
>>> exp = experiment("algo=uldp_avg", "preset.n_users=8", "preset.local_epochs=1")
>>> [largest] = distances(exp, users=2, records=0)
>>> largest.target.unit, largest.relation, 0.1 < largest.ratio <= 1 + 1e-9
('user', 'add/remove', True)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np
from dp_accounting import NonPrivateDpEvent

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL
from fedpriv.certificates.request import Target, observed_releases
from fedpriv.errors import MisfitError
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State
from fedpriv.rounds.user_groups import membership
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.charges import Charge, charge, contributions, noisy_steps
from fedpriv.testing.neighbouring_files import File
from fedpriv.testing.observation import TrialStreams
from fedpriv.testing.premise import Premise, too_long
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

EXACT = 1e-9
"""By how much float64 sums exceed a bound."""
ALONE = 1e-9
"""Share of the bound by which float32 training may round one user's contribution, in whatever
company."""
Part = tuple[str, int | None]
"""Group and turn of a user, "" and None where there are none."""
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
    group: the units' group of users; "": all.
    longest: the longest contribution, in bounds. It need not move a sum by more than is charged,
        where many bounds are charged for one unit.
    others: how far a contribution of another user moves, at most, in bounds.
    """

    target: Target
    relation: str
    certified: bool
    ratio: float = 0.0
    tried: int = 0
    worst: int | None = None
    group: str = ""
    longest: float = 0.0
    others: float = 0.0

    def premise(self, rounding: float) -> Premise:
        """The premise that no unit moves more than is charged, nor what others contribute, and that
        none contributes more than the bound.

        rounding: share of a distance that counts as rounding.
        """
        ratio = float(np.max([self.ratio, self.longest]))  # a NaN is largest
        if self.others > ALONE:
            ratio = math.inf
        return too_long(f"from the file to the noise: {self}", ratio, rounding)

    def __str__(self) -> str:
        unit = "record" if self.relation == ONE_RECORD else self.target.unit
        about = f"{self.target.unit} ({self.group})" if self.group else self.target.unit
        worst = "" if self.worst is None else f"; {unit} {self.worst} moves most"
        if self.others > ALONE:
            worst += f"; another user's contribution moves by {self.others:.2g} of the bound"
        return (
            f"{about}, {self.relation}: {self.ratio:.4g} times the distance that its "
            f"certificate charges, over {self.tried} neighbouring files{worst}; the longest "
            f"contribution is {self.longest:.4g} bounds"
        )


class RepeatableSystem(TrialStreams):
    """Streams of the operating system that repeat, so that two runs draw the same numbers. Users
    train alone, as with real randomness."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, system=True)

    @property
    def _hidden(self) -> Streams:
        return Streams(self.seed)


@dataclass
class _Exchange:
    """One exchange of the run on the whole file.

    query, state: what was asked, and the state before.
    steps: each step's sum inside noisy training, in order, in deviations of its noise.
    total: the sum.
    after: digest of the state after it.
    records: numbers of the records that train in each silo.
    charges: what a certificate charges for a user's group and turn; empty: there is none.
    parts: (2, n_units) what each has contributed (`contributions`).
    """

    query: Query
    state: State
    steps: list[np.ndarray] = field(default_factory=list)
    total: Total = field(default_factory=lambda: Total(np.zeros(0), ()))
    after: bytes = b""
    records: tuple[np.ndarray, ...] = ()
    charges: dict[Part, Charge] = field(default_factory=dict)
    parts: np.ndarray = field(default_factory=lambda: np.zeros((2, 0)))


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
    longest = max(float(exchange.parts[1].max(initial=0.0)) for exchange in whole)
    found = []
    for target in exp.algo.targets(plan.federation):
        for exchange in whole:
            exchange.charges = _charges(exp, target, plan, exchange.query)
        if not any(exchange.charges for exchange in whole):
            found.append(LargestDistance(target, target.adjacency, certified=False))
            continue
        unit = "user" if target.unit == "user" else "record"
        relations = [(target.adjacency, unit, 1)]
        if unit == "user" and target.adjacency == ADD_REMOVE and records:
            # A user without one record is one user removed and another added.
            relations.append((ONE_RECORD, "record", 2))
        for relation, part, units_moved in relations:
            rows = file.units(part)
            owner = np.array([file.owners.user[own[0]] for own in rows])
            most = users if part == "user" else records
            for group, members in _by_group(exp, owner):
                chosen = chosen_units(file, part, most, members)
                neighbours = (file.neighbour(rows[one], target.adjacency) for one in chosen)
                compared = [
                    _compared(other, plan, whole, group, int(owner[one]))
                    for one, other in zip(chosen, _within(seconds, neighbours))
                ]
                ratios = [float(np.max(own)) / units_moved for own, _ in compared]
                others = max((moved for _, moved in compared), default=0.0)
                largest = LargestDistance(
                    target, relation, True, group=group, longest=longest, others=others
                )
                if ratios:
                    at = int(np.argmax(ratios))  # a NaN is largest
                    largest = replace(
                        largest, ratio=ratios[at], tried=len(ratios), worst=chosen[at]
                    )
                found.append(largest)
    return found


def _by_group(exp: Experiment, owner: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Each group of users, and which of the units of `owner` (k,) it has, (k,) bool."""
    groups = exp.algo.contributors.groups
    if not groups:
        yield "", np.ones(len(owner), dtype=bool)
        return
    own = membership(groups, exp.allocator.n_users)[owner]
    yield from ((group.name, own == place) for place, group in enumerate(groups))


def _within(seconds: float, neighbours: Iterator[Experiment]) -> Iterator[Experiment]:
    """The first of the neighbours, and the others until the time is up."""
    end = time.monotonic() + seconds
    for neighbour in neighbours:
        yield neighbour
        if time.monotonic() > end:
            return


def chosen_units(file: File, unit: str, most: int, among: np.ndarray | None = None) -> list[int]:
    """Numbers of at most `most` units of the file: its extremes in turn until half are chosen, then
    others at random.

    among: (units,) bool, the units that may be chosen; None: all.
    """
    if most <= 0:
        return []
    extremes = file.extremes(unit)
    number = len(extremes[0])
    in_turn = zip(*(np.argsort(-values, kind="stable") for values in extremes))
    here = np.ones(number, dtype=bool) if among is None else among
    first = dict.fromkeys(int(one) for turn in in_turn for one in turn if here[one])
    others = [one for one in np.random.default_rng(0).permutation(number).tolist() if here[one]]
    return list(islice(dict.fromkeys([*islice(first, (most + 1) // 2), *others]), most))


def _whole_run(exp: Experiment, rounds: int) -> tuple[list[_Exchange], Plan]:
    """What the run on the whole file gives to the noise, and its plan."""
    whole = []
    with prepare(exp, revise=partial(_repeatable, exp)) as run:
        state = run.state
        for number in range(1, rounds + 1):
            for query in run.queries(number):
                parts = np.zeros((2, exp.algo.contributors.number(run.plan.federation)))
                exchange = _Exchange(query, state, records=_records(run), parts=parts)

                def kept(
                    total: np.ndarray, deviation: float, _: object, known: _Exchange = exchange
                ) -> np.ndarray:
                    known.steps.append(total / deviation)
                    return total

                with noisy_steps(kept), contributions(exchange.parts):
                    total, _ = run.exchange(query, state, watch=Stopwatch(), lines=[])
                exchange.total = total
                state = exp.algo.next_state(state, query, total, run.plan)
                exchange.after = state.digest()
                whole.append(exchange)
        return whole, run.plan


def _repeatable(exp: Experiment, plan: Plan) -> Plan:
    """The plan with streams that repeat. Silos that keep contributions need seeded ones."""
    kept = any(request.stateful for request in exp.algo.requests(1, plan))
    return plan if kept else replace(plan, streams=RepeatableSystem())


def _compared(
    neighbour: Experiment, plan: Plan, whole: list[_Exchange], group: str, user: int
) -> tuple[list[float], float]:
    """Distances between two runs, relative to their charges, and how far contributions of others
    move, in bounds. What was public and what was released in the run on the whole file is given. A
    state that differs although the sums before it do not is not made of them alone.

    group, user: of the unit in which the files differ.
    """
    ratios, others = [0.0], 0.0
    contributors = neighbour.algo.contributors
    part = group, user % contributors.turns if contributors.turns > 1 else None
    covered: dict[str, tuple[Charge, list[np.ndarray]]] = {}
    with prepare(neighbour, revise=lambda _: plan) as run:
        for exchange in whole:
            if not exchange.charges:
                continue
            # Messages that repeat a sum are charged together, in the round of the sum.
            name = exchange.query.name
            charged, moved = covered.get(name, (Charge(0.0), []))
            if part in exchange.charges or len(moved) >= charged.messages:
                charged, moved = exchange.charges.get(part, Charge(0.0)), []
            covered[name] = charged, moved
            differ = max(map(len, map(np.setxor1d, exchange.records, _records(run))))
            parts = np.zeros_like(exchange.parts)
            try:
                with contributions(parts):
                    steps, total = _repeated(run, exchange)
            except MisfitError:  # the server refuses a message, for numbers that are not finite
                return [math.inf], others
            if contributors.any_number:  # each unit is a user
                moved_by = np.delete(np.abs(exchange.parts[0] - parts[0]), user)
                others = max(others, float(moved_by.max(initial=0.0)))
            moved.append(total - exchange.total.vector)
            ratios.append(_relative(np.concatenate(moved), charged.sum, charged.norm))
            if charged.step:
                most = charged.step * (min(1.0, differ / charged.records) if differ else 1.0)
                lengths = [_relative(one, most) for one in steps]
                ratios += [*lengths, float(np.linalg.norm(lengths)) / math.sqrt(charged.touched)]
            after = run.algo.next_state(exchange.state, exchange.query, exchange.total, plan)
            if after.digest() != exchange.after:
                return [math.inf], others
    return ratios, others


def _repeated(run: PreparedRun, exchange: _Exchange) -> tuple[list[np.ndarray], np.ndarray]:
    """How far each step differs if the releases before it are those of `exchange`; and the sum."""
    differences: list[np.ndarray] = []

    def given(total: np.ndarray, deviation: float, _: object) -> np.ndarray:
        before = exchange.steps[len(differences)]
        differences.append(total / deviation - before)
        return before * deviation

    with noisy_steps(given):
        found, _ = run.exchange(exchange.query, exchange.state, watch=Stopwatch(), lines=[])
    if len(differences) != len(exchange.steps):
        raise AssertionError(f"{len(differences)} noisy steps instead of {len(exchange.steps)}")
    return differences, found.vector


def _records(run: PreparedRun) -> tuple[np.ndarray, ...]:
    """Numbers of the records that train in each silo."""
    return tuple(silo.records for silo in run.silo_data)


def _relative(vector: np.ndarray, charged: float, norm: int = 2) -> float:
    """The length of a vector over what is charged for it."""
    length = float(np.linalg.norm(vector, norm))
    return length / charged if charged else math.inf if length else 0.0


def _charges(exp: Experiment, target: Target, plan: Plan, query: Query) -> dict[Part, Charge]:
    """What the certificates of the released model charge for a query, for each group and turn;
    empty: there is none.

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
    contributors = exp.algo.contributors
    observer = [plan.observer(RELEASED_MODEL)]
    found: dict[Part, Charge] = {}
    for request in exp.algo.requests(query.round, plan):
        if request.name != query.name:
            continue
        views = observed_releases(request, plan, contributors, [target], observer, query.round)
        for view in views:
            charged = charge(request.noise, view)
            if view.scope not in certified or charged is None:
                continue
            group = view.group.name if view.group else ""
            part = group, view.turn if contributors.turns > 1 else None
            other = found.get(part, charged)
            most = max(charged.sum, other.sum), max(charged.step, other.step)
            draws = plan.federation.records_per_draw
            rows = target.records * draws
            found[part] = replace(charged, sum=most[0], step=most[1], records=rows)
    return found
