"""What every algorithm must do, checked on a small federation with real training.

The heart of it is one inequality. The event of a query declares a noise multiplier z: the released
sum's noise has at least z times the standard deviation of how far one unit moves it. Both are
measured: the sum with noise against the same sum without, over several seeds, and the sum without
noise with and without a unit. Where an observer sees messages and its event speaks of one silo,
that silo's message is held to it as well. What is measured on one data set can only show that a
declaration is false, never that it is true for all data.
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
from fedpriv.algorithms.base import Algorithm, silo_name
from fedpriv.parties.post import Message
from fedpriv.rounds.conformance_record import cached, note_passed
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.runtime import PreparedRun, allocate, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.faults import Faulty, alter
from fedpriv.testing.worlds import (
    SMALL,
    experiment,
    with_flipped_record,
    without_rows,
    without_user,
)
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

SEEDS = 30
"""Sums whose noise is measured; with 62 parameters its standard deviation is then known to 2 %."""
SLACK = 0.1
"""How much less noise than declared is put down to chance; six standard deviations."""
RECORDS, TRIED = 5, 60
"""Records of a silo that are exchanged one by one: the first that move anything, among so many."""
ROUNDS = 3
"""Rounds in which a query must come to be checked. It is measured in the first in which a unit
moves it."""


class ConformanceError(AssertionError):
    """A component breaks a rule that every component of its kind must keep."""


@dataclass(frozen=True)
class Checked:
    """What has been checked;

    declared: claims of noise that the measurement cannot judge, by unit and mechanism.
    """

    checked: tuple[str, ...]
    declared: tuple[str, ...]


def check_algorithm(algo: Algorithm, *words: str, record: bool | Path = False) -> Checked:
    """Hold `algo` against all rules, in a world of eight users in three silos and of `words`
    (overrides of a command).

    record: note in the user's cache (True), or in the file given, that the class has passed with
    the source that it has now; epsilons of queries that are not enforced are then "checked" and no
    longer "declared".

    Raises ConformanceError with what is broken, or when what should be noted could not be measured,
    and FedprivError for a configuration that no command would accept.
    """
    exp = experiment(*SMALL, *words, algo=algo)
    checked = []
    declared = []
    measured = set()
    for rule in (_is_configuration, _weights, _queries, _rounds):
        rule(exp)
        checked.append(rule.__name__.strip("_"))
    for query, event, sender in _declarations(exp):
        name = (
            f"{query.name}: {event.unit}, "
            f"{event.adjacency}{f', message of {sender}' if sender else ''}"
        )
        if (declared_noise := noise_multiplier(event)) is None:
            declared.append(f"{name}, {type(event.certified).__name__}")
        elif math.isfinite(declared_noise):
            _noise_hides(exp, query, event, declared_noise, sender=sender)
            checked.append(name)
            measured.add(query.name)
    if record:
        unknown = set(_plan(exp).channels) - measured
        _demand(
            not declared and not unknown,
            f"not recorded: unmeasured {', '.join([*declared, *sorted(unknown)])}",
        )
        note_passed(type(algo), Algorithm, cached() if record is True else Path(record))
    return Checked(tuple(dict.fromkeys(checked)), tuple(dict.fromkeys(declared)))


def noise_multiplier(event: Event) -> float | None:
    """The noise multiplier z of a Gaussian release, sampled or not, inf for no guarantee; None for
    anything else.

    T releases tell as much as one with z / sqrt(T), and whatever is made of them, such as a trained
    model, no more; a unit of k records moves it k times as far as one.
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
    """Frozen, comparable, picklable, with a name."""
    algo = exp.algo
    _demand(pickle.loads(pickle.dumps(algo)) == algo, "does not come back from pickle as it was")
    _demand(bool(algo.label), "has no label")
    frozen = type(algo).__dataclass_params__.frozen  # type: ignore[attr-defined]
    _demand(frozen, "is no frozen dataclass")


def _weights(exp: Experiment) -> None:
    """The weights of a unit add up to at most 1 and are never negative."""
    weighting = exp.algo.unit_weighting
    rng = np.random.default_rng(0)
    for most in (1, 5, 2000):
        counts = rng.integers(0, most + 1, (4, 4))
        weights = weighting.weights(counts)
        worst = weights.max() if weighting.own_units else weights.sum(axis=0).max()
        _demand(
            weights.shape == counts.shape,
            f"weights of shape {weights.shape} for counts of {counts.shape}",
        )
        _demand(
            bool(weights.min() >= 0) and worst <= 1 + 1e-12,
            f"weights of a unit add up to {worst:g}: at most 1",
        )


def _plan(exp: Experiment) -> Plan:
    _, _, federation = allocate(exp)
    return exp.planner.plan(federation)


def _queries(exp: Experiment) -> None:
    """Planning repeats, names its queries apart, and says what every observer sees."""
    plan = _plan(exp)
    observers = {observer.name for observer in plan.threat_model.observers}
    for number in (1, 2):
        one, two = (exp.algo.queries(number, plan) for _ in range(2))
        _demand(
            [q.events for q in one] == [q.events for q in two],
            "planning the same round twice differs",
        )
        names = [query.name for query in one]
        _demand(
            len(set(names)) == len(names), f"queries of a round share a name: {', '.join(names)}"
        )
        _demand(
            set(names) <= set(plan.channels), f"queries {names} without a mechanism of their own"
        )
        for query in one:
            missing = observers - {event.observer for event in query.events}
            _demand(not missing, f"query {query.name} says nothing of {', '.join(sorted(missing))}")
            _demand(
                0 < query.n_summed <= len(query.invited),
                f"a sum over {query.n_summed} of {query.invited}",
            )


def _rounds(exp: Experiment) -> None:
    """Rounds repeat to the bit, also from a checkpoint in between, and leave finite numbers."""
    with prepare(exp) as whole:
        first = _round(whole, 1)
        arrays = whole.arrays(whole.state)
        second = _round(whole, 2)
    with prepare(exp, arrays) as resumed:
        again = _round(resumed, 2)
    _demand(
        bool(np.isfinite(first).all() and np.isfinite(second).all()), "parameters are not finite"
    )
    _demand(np.array_equal(second, again), "a resumed run differs from one in one go")


def _round(prepared: PreparedRun, number: int) -> np.ndarray:
    result = prepared.run_round(prepared.queries(number), prepared.state)
    _demand(result.aborted is None, f"round {number} has no sum: {result.aborted}")
    prepared.state = result.state
    return prepared.algo.output(result.state)


def _declarations(exp: Experiment) -> Iterator[tuple[Query, Event, str | None]]:
    """Queries of the first rounds, each the first of its name, with what each says of the released
    model, and of a silo's message that somebody sees: one event a unit and adjacency, and the
    silo's name (None: the sum)."""
    plan = _plan(exp)
    named = set[str]()
    for query in (
        query for number in range(1, ROUNDS + 1) for query in exp.algo.queries(number, plan)
    ):
        seen: dict[tuple[str, str, bool], tuple[Query, Event, str | None]] = {}
        for event in query.events if query.name not in named else ():
            alone = plan.observer(event.observer).sees_messages and bool(event.scope)
            if alone or event.observer == RELEASED_MODEL:
                found = query, event, _silo_of(event) if alone else None
                seen.setdefault((event.unit, event.adjacency, alone), found)
        named.add(query.name)
        yield from seen.values()


def _silo_of(event: Event) -> str:
    """The silo that the event's scope is, or is a part of."""
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
    """The sum (size,) of a round's query `name`, with or without noise; with `sender`, that silo's
    message, if it is sent in the clear.

    seed: of everything that is drawn in the round; who owns which record does not depend on it.
    state: in which the query is asked; None: the one that the round's earlier queries lead to from
        the first state.
    """
    said: list[np.ndarray] = []

    def overheard(message: Message) -> Message:
        said.append(message.content)
        return message

    if sender:
        exp = replace(exp, engine=Faulty(exp.engine, (alter(overheard, sender=sender),)))

    def revise(plan: Plan) -> Plan:
        channels = dict(plan.channels)
        if not noisy:
            channels = {
                key: replace(c, mechanism=c.mechanism.with_noise(0.0))
                for key, c in channels.items()
            }
        return replace(plan, channels=channels, streams=Streams(seed))

    with prepare(exp, revise=revise) as prepared:
        now = state or prepared.state
        for query in prepared.queries(round):
            if state is not None and query.name != name:
                continue
            found, _ = prepared.exchange(query, now, watch=Stopwatch(), lines=[])
            if query.name == name:
                clear = query.encoding.clear if query.encoding else np.asarray
                return clear(said[-1]) if sender else found.vector
            now = prepared.algo.global_update(now, query, found, prepared.plan)
    raise ConformanceError(f"round {round} has no query {name}")


def _states(exp: Experiment, name: str) -> Iterator[tuple[int, State]]:
    """The rounds in which query `name` comes, and the states in which it is asked, in a run with
    noise."""
    with prepare(exp) as prepared:
        state = prepared.state
        for number in range(1, ROUNDS + 1):
            for query in prepared.queries(number):
                if query.name == name:
                    yield number, state
                found, _ = prepared.exchange(query, state, watch=Stopwatch(), lines=[])
                state = prepared.algo.global_update(state, query, found, prepared.plan)


def _noise_hides(
    exp: Experiment, query: Query, event: Event, declared: float, *, sender: str | None
) -> None:
    """The noise that is added is at least `declared` times what a unit moves the sum, or the
    message of `sender`, from the same state."""
    name = query.name
    what = f"message of {sender}" if sender else "sum"
    units = RECORDS if event.unit == "record" else None
    for round, state in _states(exp, name):

        def at(
            exp: Experiment, noisy: bool, seed: int = 0, round: int = round, state: State = state
        ) -> np.ndarray:
            return total(exp, name, noisy=noisy, seed=seed, sender=sender, round=round, state=state)

        here = at(exp, noisy=False)
        near = (
            float(np.linalg.norm(at(other, noisy=False) - here)) for other in neighbours(exp, event)
        )
        moved = float(
            np.max([0.0, *islice((distance for distance in near if distance != 0), units)])
        )
        if moved != 0:
            break
    _demand(math.isfinite(moved), f"a {event.unit} whose features are no numbers spoils the {what}")
    _demand(moved > 0, f"no {event.unit} moves the {what} at all")
    noise = [
        at(exp, noisy=True, seed=seed) - at(exp, noisy=False, seed=seed) for seed in range(SEEDS)
    ]
    deviation = float(np.std(noise))
    enough = deviation >= (1 - SLACK) * declared * moved
    measured = f"noise {deviation:.4g} on a {what} that a {event.unit} moves by {moved:.4g}"
    _demand(
        enough, f"query {name}: {measured}; its event declares at least {declared:.4g} times that"
    )


def neighbours(exp: Experiment, event: Event) -> Iterator[Experiment]:
    """Experiments that differ from `exp` in one unit of the event. In an event of one silo the
    number of its records is public, so there a unit that is removed goes without lowering it."""
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
    for row in np.flatnonzero(here)[:TRIED]:
        yield without_rows(exp, row[None]) if removed else with_flipped_record(exp, int(row))
