"""What every algorithm must satisfy, checked on a small federation with real training.

The central check is one inequality. A query's event declares a noise multiplier z: the noise of the
released sum has at least z times the standard deviation of the distance by which one unit moves the
sum. Both sides are measured:

- the noise: sums with noise against the same sums without it, over several seeds;
- the distance: sums without noise, with and without a unit.

If an observer sees messages and its event describes one silo, that silo's message is checked too.
A measurement on one data set can refute a declaration. It cannot prove it for all data.

>>> from fedpriv.testing import check_algorithm, experiment
>>> algo = experiment("algo=uldp_avg", "algo.noise_multiplier=1", "preset.n_users=8").algo
>>> report = check_algorithm(algo)
>>> report.checked
('is_configuration', 'weights', 'queries', 'rounds', 'update: user, add/remove')
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, Event
from fedpriv.algorithms.base import Algorithm
from fedpriv.parties.party import silo_name
from fedpriv.parties.post import Message
from fedpriv.rounds.conformance_record import cached, note_passed
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.runtime import PreparedRun, allocate, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.experiments import (
    SMALL,
    experiment,
    with_flipped_record,
    with_mechanisms,
    without_rows,
    without_user,
)
from fedpriv.testing.faults import Faulty, alter
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

SEEDS = 30
"""Sums whose noise is measured. With 62 parameters the standard deviation is known to 2 %."""
SLACK = 0.1
"""Share of the declared noise that may be missing by chance: six standard deviations."""
RECORDS = 5
"""Records of a silo that are exchanged one by one: the first that change anything."""
TRIED_RECORDS = 60
"""Records that are tried in search of them."""
ROUNDS = 3
"""Rounds in which a query must occur. It is measured in the first one in which a unit moves it."""


class ConformanceError(AssertionError):
    """A component breaks a rule that every component of its group must satisfy."""


@dataclass(frozen=True)
class ConformanceReport:
    """The rules that an algorithm satisfies.

    checked: names of the rules, and each measured declaration by query, unit and adjacency.
    declared: declarations of noise that the measurement cannot judge, by unit and mechanism.
    """

    checked: tuple[str, ...]
    declared: tuple[str, ...]


@dataclass(frozen=True)
class _Declaration:
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
        about = f"{self.query.name}: {self.event.unit}, {self.event.adjacency}"
        return f"{about}, {self.released}" if self.sender else about


def check_algorithm(algo: Algorithm, *words: str, record: bool | Path = False) -> ConformanceReport:
    """Check `algo` against all rules, with eight users in three silos.

    words: overrides of the command.
    record: True notes in the user's cache, and a path notes in that file, that the class has passed
        with its present source. Epsilons of queries that are not enforced are then "checked" and no
        longer "declared".

    Raises ConformanceError with the broken rule, or if a record is wanted and something could not
    be measured, and FedprivError for a configuration that no command accepts.
    """
    exp = experiment(*SMALL, *words, algo=algo)
    checked = []
    declared = []
    measured = set()
    for rule in (_is_configuration, _weights, _queries, _rounds):
        rule(exp)
        checked.append(rule.__name__.strip("_"))
    for declaration in _declarations(exp):
        declared_noise = noise_multiplier(declaration.event)
        if declared_noise is None:
            declared.append(f"{declaration}, {type(declaration.event.certified).__name__}")
        elif math.isfinite(declared_noise):
            _check_noise(exp, declaration, declared_noise)
            checked.append(str(declaration))
            measured.add(declaration.query.name)
    if record:
        missing = [*declared, *sorted(set(_plan(exp).query_parameters) - measured)]
        _demand(not missing, f"not recorded: unmeasured {', '.join(missing)}")
        note_passed(type(algo), Algorithm, cached() if record is True else Path(record))
    return ConformanceReport(tuple(dict.fromkeys(checked)), tuple(dict.fromkeys(declared)))


def noise_multiplier(event: Event) -> float | None:
    """The noise multiplier z of a Gaussian release, sampled or not.

    inf for no guarantee; None for anything else. T releases tell as much as one release with
    z / sqrt(T). What is computed from them, such as a trained model, tells no more. A unit of k
    records moves a release k times as far as one record.
    """
    import dp_accounting as dp

    inner = event.certified
    times = 1
    while isinstance(
        inner,
        dp.PoissonSampledDpEvent | dp.SampledWithoutReplacementDpEvent | dp.SelfComposedDpEvent,
    ):
        times *= inner.count if isinstance(inner, dp.SelfComposedDpEvent) else 1
        inner = inner.event
    if isinstance(inner, dp.NonPrivateDpEvent):
        return math.inf
    if isinstance(inner, dp.GaussianDpEvent):
        noise = float(inner.noise_multiplier)
    elif isinstance(inner, dp.ZCDpEvent):
        noise = (2 * inner.rho) ** -0.5
    else:
        return None
    return noise / math.sqrt(times) / event.group_size


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ConformanceError(otherwise)


def _is_configuration(exp: Experiment) -> None:
    """The algorithm is frozen, comparable and picklable, and has a label."""
    algo = exp.algo
    _demand(pickle.loads(pickle.dumps(algo)) == algo, "pickle does not restore it")
    _demand(bool(algo.label), "has no label")
    _demand(
        type(algo).__dataclass_params__.frozen,  # type: ignore[attr-defined]
        "is not a frozen dataclass",
    )


def _weights(exp: Experiment) -> None:
    """The weights of a unit are never negative and add up to at most 1."""
    weighting = exp.algo.contributors.weighting
    rng = np.random.default_rng(0)
    for most in (1, 5, 2000):
        counts = rng.integers(0, most + 1, (4, 4))
        weights = weighting.weights(counts)
        _demand(
            weights.shape == counts.shape,
            f"weights of shape {weights.shape} for counts of {counts.shape}",
        )
        worst = weights.max() if weighting.own_units else weights.sum(axis=0).max()
        _demand(
            bool(weights.min() >= 0) and worst <= 1 + 1e-12,
            f"weights of a unit add up to {worst:g}: at most 1",
        )


def _plan(exp: Experiment) -> Plan:
    _, _, federation = allocate(exp)
    return exp.planner.plan(federation)


def _queries(exp: Experiment) -> None:
    """Planning is repeatable, gives queries different names, and has events for every observer."""
    plan = _plan(exp)
    observers = {observer.name for observer in plan.threat_model.observers}
    for number in (1, 2):
        one, two = (exp.algo.queries(number, plan) for _ in range(2))
        _demand(
            [q.events for q in one] == [q.events for q in two],
            "planning the same round twice gives different events",
        )
        names = [query.name for query in one]
        _demand(
            len(set(names)) == len(names), f"queries of a round share a name: {', '.join(names)}"
        )
        _demand(
            set(names) <= set(plan.query_parameters), f"queries {names} without their own mechanism"
        )
        for query in one:
            missing = observers - {event.observer for event in query.events}
            _demand(
                not missing, f"query {query.name} has no event for {', '.join(sorted(missing))}"
            )
            _demand(
                0 < query.n_summed <= len(query.invited),
                f"a sum over {query.n_summed} of {query.invited}",
            )


def _rounds(exp: Experiment) -> None:
    """Rounds repeat bit by bit, also after a checkpoint, and parameters stay finite."""
    with prepare(exp) as whole:
        first = _round(whole, 1)
        arrays = whole.arrays(whole.state)
        second = _round(whole, 2)
    with prepare(exp, arrays) as resumed:
        repeated = _round(resumed, 2)
    _demand(bool(np.isfinite([first, second]).all()), "parameters are not finite")
    _demand(np.array_equal(second, repeated), "a resumed run differs from an uninterrupted one")


def _round(prepared: PreparedRun, number: int) -> np.ndarray:
    result = prepared.run_round(prepared.queries(number), prepared.state)
    _demand(result.aborted is None, f"round {number} has no sum: {result.aborted}")
    prepared.state = result.state
    return prepared.algo.output(result.state)


def _declarations(exp: Experiment) -> Iterator[_Declaration]:
    """The declarations of each query when its name first occurs.

    One for each unit and adjacency, about the released model and about a silo's message that an
    observer sees.
    """
    plan = _plan(exp)
    named = set[str]()
    for number in range(1, ROUNDS + 1):
        for query in exp.algo.queries(number, plan):
            found: dict[tuple[str, str, bool], _Declaration] = {}
            for event in query.events if query.name not in named else ():
                if event.unit == "record" and noise_multiplier(event) == math.inf:
                    continue
                alone = plan.observer(event.observer).sees_messages and bool(event.scope)
                if alone or event.observer == RELEASED_MODEL:
                    silo = _silo_of(event) if alone else None
                    for part in (event, *_of_one_record(event, query)):
                        key = part.unit, part.adjacency, alone
                        found.setdefault(key, _Declaration(query, part, silo))
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
    """The silo that the event's scope names."""
    return event.scope.partition("/")[0]


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
    contents: list[np.ndarray] = []

    def record(message: Message) -> Message:
        contents.append(message.content)
        return message

    if sender:
        exp = replace(exp, engine=Faulty(exp.engine, (alter(record, sender=sender),)))

    def revise(plan: Plan) -> Plan:
        seeded = replace(plan, streams=Streams(seed))
        return seeded if noisy else with_mechanisms(seeded, lambda _, m: m.with_noise(0.0))

    with prepare(exp, revise=revise) as prepared:
        now = state or prepared.state
        for query in prepared.queries(round):
            if state is not None and query.name != name:
                continue
            prepared.rehearse(query)
            found, _ = prepared.exchange(query, now, watch=Stopwatch(), lines=[])
            if query.name == name:
                clear = query.encoding.clear if query.encoding else np.asarray
                return clear(contents[-1]) if sender else found.vector
            now = prepared.algo.global_update(now, query, found, prepared.plan)
    raise ConformanceError(f"round {round} has no query {name}")


def _states(exp: Experiment, name: str) -> Iterator[tuple[int, State]]:
    """The rounds and states of query `name` in a run with noise."""
    with prepare(exp) as prepared:
        state = prepared.state
        for number in range(1, ROUNDS + 1):
            for query in prepared.queries(number):
                if query.name == name:
                    yield number, state
                prepared.rehearse(query)
                found, _ = prepared.exchange(query, state, watch=Stopwatch(), lines=[])
                state = prepared.algo.global_update(state, query, found, prepared.plan)


def _check_noise(exp: Experiment, declaration: _Declaration, declared: float) -> None:
    """The noise is at least `declared` times the distance by which a unit moves the release."""
    event = declaration.event
    what = declaration.released
    name = declaration.query.name
    for number, state in _states(exp, name):

        def release(
            exp: Experiment, noisy: bool, seed: int = 0, round: int = number, state: State = state
        ) -> np.ndarray:
            sender = declaration.sender
            return total(exp, name, noisy=noisy, seed=seed, sender=sender, round=round, state=state)

        here = release(exp, noisy=False)
        distances = (
            float(np.linalg.norm(release(other, noisy=False) - here))
            for other in neighbours(exp, event)
        )
        moving = (distance for distance in distances if distance != 0)
        moved = float(np.max([0.0, *islice(moving, RECORDS if event.unit == "record" else None)]))
        if moved != 0:
            break
    _demand(math.isfinite(moved), f"a {event.unit} with NaN features makes the {what} infinite")
    _demand(moved > 0, f"no {event.unit} moves the {what} at all")
    noise = [
        release(exp, noisy=True, seed=seed) - release(exp, noisy=False, seed=seed)
        for seed in range(SEEDS)
    ]
    deviation = float(np.std(noise))
    measured = f"noise {deviation:.4g} on a {what} that a {event.unit} moves by {moved:.4g}"
    _demand(
        deviation >= (1 - SLACK) * declared * moved,
        f"query {name}: {measured}; its event declares at least {declared:.4g} times that",
    )


def neighbours(exp: Experiment, event: Event) -> Iterator[Experiment]:
    """Experiments that differ from `exp` in one unit of the event.

    In an event of one silo the number of its records is public. A removed unit then stays in that
    number.
    """
    removed = event.adjacency == ADD_REMOVE
    users = range(exp.allocator.n_users)
    if event.unit == "user" and removed and not event.scope:
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
