"""Is there as much noise as events declare, in every round, and is it fresh?

Runs with noise are compared with runs that differ in nothing but the noise. The distance by which a
unit moves a release is measured by removing the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, Event
from fedpriv.certificates.request import turn_of
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.rounds.user_groups import members
from fedpriv.runtime import allocate, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.conformance import ConformanceError, demand
from fedpriv.testing.event_parameters import noise_multiplier
from fedpriv.testing.experiments import (
    with_flipped_record,
    with_mechanisms,
    without_rows,
    without_user,
)
from fedpriv.testing.faults import FaultyNetwork
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

SEEDS = 30
"""Runs whose noise is measured. With 62 parameters the standard deviation is known to 2 %."""
SLACK = 0.1
"""Share of the declared noise that may be missing by chance: six standard deviations."""
CORRELATED = 6.0
"""Standard errors from which on two noises are not independent."""
RECORDS = 5
"""Records of a silo that are exchanged one by one: the first that change anything."""
TRIED_RECORDS = 60
"""Records that are tried in search of them."""
ROUNDS = 3
"""Rounds whose noise is measured. The distance is measured in the first of them in which a unit
moves the release, and in those whose noise is less than it asks for."""

Noise = dict[tuple[str, str | None, int], np.ndarray]
"""Noise (seeds, size) of a query's sum, or of a sender's message, in a round."""


@dataclass(frozen=True)
class Declaration:
    """Noise that an event declares.

    query: the query.
    event: the event.
    sender: silo whose message the event describes; None: the sum.
    """

    query: Query
    event: Event
    sender: str | None

    @property
    def released(self) -> str:
        return f"message of {self.sender}" if self.sender else "sum"

    def __str__(self) -> str:
        about = f"{self.query.name}: {self.event.protects}, {self.event.adjacency}"
        return f"{about}, {self.released}" if self.sender else about


def public_plan(exp: Experiment) -> Plan:
    """The plan of the experiment."""
    _, _, federation = allocate(exp)
    return exp.planner.plan(federation)


def declarations(exp: Experiment) -> Iterator[Declaration]:
    """The declarations of each query when its name first occurs.

    One for each unit, adjacency and group of users, about the released model and about a silo's
    message that an observer sees.
    """
    plan = public_plan(exp)
    named = set[str]()
    for number in range(1, ROUNDS + 1):
        for query in exp.algo.queries(number, plan):
            found: dict[tuple[str, str, str, bool], Declaration] = {}
            for event in query.events if query.name not in named else ():
                if event.unit == "record" and noise_multiplier(event) == math.inf:
                    continue
                alone = plan.observer(event.observer).sees_messages and bool(_silo_of(event))
                if alone or event.observer == RELEASED_MODEL:
                    silo = _silo_of(event) if alone else None
                    for part in (event, *_of_one_record(event, query)):
                        key = part.unit, part.adjacency, part.group, alone
                        found.setdefault(key, Declaration(query, part, silo))
            named.add(query.name)
            yield from found.values()


def _of_one_record(event: Event, query: Query) -> tuple[Event, ...]:
    """What a user's event says of one record, where records have no certificate of their own."""
    own = any(
        other.unit == "record" and noise_multiplier(other) != math.inf for other in query.events
    )
    if event.group_size == 1 or own:
        return ()
    return (replace(event, unit="record", group_size=1),)


def _silo_of(event: Event) -> str:
    """The silo that the event's scope names; "" if it names none."""
    return "" if turn_of(event.scope) is not None else event.scope.partition("/")[0]


def senders(found: Iterable[Declaration]) -> tuple[str, ...]:
    """The silos whose messages declarations describe."""
    return tuple(sorted({one.sender for one in found if one.sender is not None}))


class _Recorded(AbstractContextManager["_Recorded"]):
    """A run whose messages are recorded.

    senders: silos whose messages are recorded.
    seed: seed of everything that the run draws; the allocation of records does not depend on it.
    noisy: whether noise is added.
    """

    def __init__(
        self, exp: Experiment, senders: tuple[str, ...], *, seed: int, noisy: bool
    ) -> None:
        self.senders = senders

        def revise(plan: Plan) -> Plan:
            seeded = replace(plan, streams=Streams(seed))
            return seeded if noisy else with_mechanisms(seeded, lambda _, m: m.with_noise(0.0))

        self.prepared = prepare(exp, revise=revise)
        self.network = FaultyNetwork(())
        if senders:
            self.prepared.session.network = self.network

    def __exit__(self, *failure: object) -> None:
        self.prepared.__exit__(*failure)

    def release(self, query: Query, state: State) -> tuple[dict[str | None, np.ndarray], State]:
        """The query's sum, under None, and the messages of its senders; and the state after it."""
        self.prepared.rehearse(query)
        total, _ = self.prepared.exchange(query, state, watch=Stopwatch(), lines=[])
        clear = query.encoding.clear if query.encoding else np.asarray
        found: dict[str | None, np.ndarray] = {None: total.vector}
        for letter in self.network.sent[-1] if self.senders else ():
            if letter.sender in self.senders:
                found[letter.sender] = clear(letter.message.content)
        return found, self.prepared.algo.next_state(state, query, total, self.prepared.plan)


def total(
    exp: Experiment,
    name: str,
    *,
    noisy: bool,
    seed: int = 0,
    sender: str | None = None,
    round: int = 1,
    state: State | None = None,
) -> np.ndarray:
    """The sum (size,) of a round's query.

    name: the query's name.
    noisy: whether noise is added.
    seed: seed of everything drawn in the round; the allocation of records does not depend on it.
    sender: a silo whose message is returned instead, if it is sent in the clear.
    state: state of the query; None: the state after the round's earlier queries, from the first
        state.
    """
    with _Recorded(exp, (sender,) if sender else (), seed=seed, noisy=noisy) as run:
        now = state or run.prepared.state
        for query in run.prepared.queries(round):
            if state is not None and query.name != name:
                continue
            released, after = run.release(query, now)
            if query.name == name:
                return released[sender]
            now = after
    raise ConformanceError(f"round {round} has no query {name}")


def _states(exp: Experiment, name: str) -> Iterator[tuple[int, State]]:
    """The rounds and states of query `name` in a run with noise."""
    with _Recorded(exp, (), seed=exp.streams.seed, noisy=True) as run:
        state = run.prepared.state
        for number in range(1, ROUNDS + 1):
            for query in run.prepared.queries(number):
                if query.name == name:
                    yield number, state
                _, state = run.release(query, state)


def measured_noise(exp: Experiment, senders: tuple[str, ...]) -> Noise:
    """The noise of sums and messages in every round.

    Beside each run with noise there is one without, which follows the same states.

    senders: silos whose messages are measured; they must be sent in the clear.
    """
    found: dict[tuple[str, str | None, int], list[np.ndarray]] = {}
    for seed in range(SEEDS):
        with (
            _Recorded(exp, senders, seed=seed, noisy=True) as run,
            _Recorded(exp, senders, seed=seed, noisy=False) as quiet,
        ):
            state = run.prepared.state
            for number in range(1, ROUNDS + 1):
                both = zip(run.prepared.queries(number), quiet.prepared.queries(number))
                for query, silent in both:
                    without, _ = quiet.release(silent, state)
                    noised, state = run.release(query, state)
                    for sender in noised.keys() & without.keys():
                        key = query.name, sender, number
                        found.setdefault(key, []).append(noised[sender] - without[sender])
    return {key: np.stack(parts) for key, parts in found.items()}


def check_noise(
    exp: Experiment, declaration: Declaration, declared: float, measured: Noise
) -> None:
    """In every round, the noise is at least `declared` times the distance by which a unit moves
    the release."""
    name = declaration.query.name
    what = declaration.released
    event = declaration.event
    moved = _moved(exp, declaration)
    demand(math.isfinite(moved), f"a {event.unit} with NaN features makes the {what} infinite")
    demand(moved > 0, f"no {event.unit} moves the {what} at all")
    for (query, sender, number), noise in measured.items():
        if (query, sender) != (name, declaration.sender):
            continue
        # Noise that is the same in all runs hides nothing, so the mean is no noise.
        deviation = math.sqrt(float(noise.var(axis=0, ddof=1).mean()))
        least = (1 - SLACK) * declared
        here = moved
        if deviation < least * moved:  # steps may shrink from round to round, noise and distance
            here = _moved(exp, declaration, number) or moved
        found = f"noise {deviation:.4g} on a {what} that a {event.unit} moves by {here:.4g}"
        demand(
            deviation >= least * here,
            f"query {name}: {found}, in round {number}; its event declares at least "
            f"{declared:.4g} times that",
        )


def check_independence(measured: Noise) -> None:
    """The noise of one round and silo says nothing about that of another."""
    for (one, x), (other, y) in combinations(measured.items(), 2):
        if x.shape != y.shape or (one[1] is None) != (other[1] is None):
            continue
        spread = float(x.std() * y.std())
        if not spread:
            continue
        correlation = float((x * y).mean()) / spread
        places = [f"{place[1] or 'the sum'} in round {place[2]}" for place in (one, other)]
        demand(
            abs(correlation) * math.sqrt(x.size) < CORRELATED,
            f"the noise of {places[0]} and of {places[1]} is the same or related: correlation "
            f"{correlation:.2f}",
        )


def _moved(exp: Experiment, declaration: Declaration, only: int | None = None) -> float:
    """The largest distance by which a unit moves the release, in the first round in which one
    does.

    only: in this round; 0.0 if none does.
    """
    name = declaration.query.name
    sender = declaration.sender
    moved = 0.0
    for number, state in _states(exp, name):
        if only not in (None, number):
            continue

        def release(exp: Experiment, round: int = number, state: State = state) -> np.ndarray:
            return total(exp, name, noisy=False, sender=sender, round=round, state=state)

        here = release(exp)
        distances = (
            float(np.linalg.norm(release(other) - here))
            for other in neighbours(exp, declaration.event)
        )
        moving = (distance for distance in distances if distance != 0)
        most = RECORDS if declaration.event.unit == "record" else None
        moved = float(np.max([0.0, *islice(moving, most)]))
        if moved != 0:
            break
    return moved


def neighbours(exp: Experiment, event: Event) -> Iterator[Experiment]:
    """Experiments that differ from `exp` in one unit of the event.

    In an event of one silo the number of its records is public. A removed unit then stays in that
    number.
    """
    removed = event.adjacency == ADD_REMOVE
    groups = exp.algo.contributors.groups
    users = members(groups, event.group, exp.allocator.n_users).tolist()
    turn = turn_of(event.scope)
    if turn is not None:
        users = [user for user in users if user % exp.algo.contributors.turns == turn]
    if event.unit == "user" and removed and not _silo_of(event):
        yield from (without_user(exp, user) for user in users)
        return
    _, allocation, _ = allocate(exp)
    here = (
        np.array([_silo_of(event) in ("", silo_name(int(silo))) for silo in allocation.silo])
        & allocation.trains
    )
    if event.unit == "user" and removed:
        owned = (np.flatnonzero(here & (allocation.user == user)) for user in users)
        yield from (without_rows(exp, rows) for rows in owned if len(rows))
        return
    for row in np.flatnonzero(here)[:TRIED_RECORDS]:
        yield without_rows(exp, row[None]) if removed else with_flipped_record(exp, int(row))
