"""What every algorithm must satisfy, checked on a small federation with real training.

The central check is one inequality. A query's event declares a noise multiplier z: the noise of the
released sum has at least z times the standard deviation of the distance by which one unit moves the
sum. Both sides are compared with what the certificate charges:

- the noise, in many rounds and runs (`fedpriv.testing.noise`): how much there is in every round,
  silo, tensor and coordinate, its shape, and whether it is independent of all other noise;
- the distance (`fedpriv.testing.sensitivity`): units of the file are deleted or get other content,
  and all stages run again, on a file as it is and on one in which every unit reaches its bound.

All measurements share one probability of a false alarm. The report says which errors of noise,
bounds and samples would have been found. A measurement on small data can refute a declaration. It
cannot prove it for all data.

>>> from fedpriv.testing import check_algorithm, experiment
>>> algo = experiment("algo=uldp_avg", "algo.noise_multiplier=1", "preset.n_users=8").algo
>>> report = check_algorithm(algo)
>>> report.checked
('weights', 'rounds', 'stability', 'events', 'file', 'update: user, add/remove')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.runtime import PreparedRun, allocate, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.allocators import check_stability
from fedpriv.testing.conformance import ConformanceError, demand
from fedpriv.testing.draws import sample_premises
from fedpriv.testing.event_parameters import inclusion
from fedpriv.testing.experiments import SMALL, experiment
from fedpriv.testing.neighbouring_files import extreme, few
from fedpriv.testing.noise import declarations, noise_premises
from fedpriv.testing.premise import Premise, power_lines, sharing_level
from fedpriv.testing.sensitivity import EXACT, distances

TENSORS = ("model=mlp", "model.hidden=[64]")
"""A network with four tensors, unless the words name another."""
ROUNDS = 8
"""Rounds of a run, unless the words name a number."""
SECONDS = 5.0
"""Processor time in which draws are counted."""
NEIGHBOURS = 3
"""Users, and records, that differ in the file, one at a time."""
SAMPLED, UNSAMPLED = 24, 12
"""Records that differ in a small file, where an event counts on samples, and where none does."""


@dataclass(frozen=True)
class ConformanceReport:
    """The rules that an algorithm satisfies.

    checked: names of the rules, and each measured declaration by query, unit and adjacency.
    declared: declarations of noise that the measurement cannot judge, by unit and mechanism.
    power: lines about the smallest errors that would have been found.
    missing: what else was not measured.
    """

    checked: tuple[str, ...]
    declared: tuple[str, ...]
    power: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A line for each rule, and a last one with the result."""
        rules = {rule.__name__.strip("_"): rule.__doc__ or "" for rule in (*_rules(), _file)}
        lines = [
            f"passed: {rules.get(name, f'The added noise is what the certificate says: {name}.')}"
            for name in self.checked
        ]
        lines += [f"NOT measured, and taken at your word: {name}" for name in self.declared]
        lines += self.power
        missing = ", ".join(["some noise"] * bool(self.declared) + [*self.missing])
        return "\n".join([*lines, f"all rules hold; not measured: {missing}"])


def check_algorithm(algo: Algorithm, *words: str) -> ConformanceReport:
    """Check `algo` against all rules, with eight users in three silos.

    words: overrides of the command.

    Raises ConformanceError with the broken rule, and FedprivError for a configuration that no
    command accepts.
    """
    named = {word.partition("=")[0] for word in words}
    network = () if named & {"model", "data"} else TENSORS
    exp = experiment(*SMALL, *network, f"rounds={ROUNDS}", *words, algo=algo)
    last = exp.algo.last_round(allocate(exp)[2]) or exp.options.rounds
    few_rounds = replace(exp.options, rounds=min(last, exp.options.rounds))
    exp = replace(exp, options=few_rounds)
    checked = []
    for rule in _rules():
        rule(exp)
        checked.append(rule.__name__.strip("_"))
    rounds = min(ROUNDS, exp.options.rounds)
    samples = sample_premises(exp, rounds=rounds, seconds=SECONDS)
    premises = sharing_level([*_file(exp), *noise_premises(exp, rounds=rounds), *samples])
    alarms = [premise for premise in premises if premise.alarm]
    if alarms:
        raise ConformanceError("; ".join(map(str, alarms)))
    checked.append("file")
    plan = exp.planner.plan(allocate(exp)[2])
    found = [one for round in range(1, rounds + 1) for one in declarations(exp, plan, round)]
    checked += [str(one) for one in found if one.measurable]
    declared = [
        f"{one}, {type(one.event.certified).__name__}" for one in found if not one.measurable
    ]
    return ConformanceReport(
        tuple(dict.fromkeys(checked)),
        tuple(dict.fromkeys(declared)),
        tuple(power_lines(premises)),
        tuple(_missing(exp, premises, rounds)),
    )


def _rules() -> tuple[Callable[[Experiment], None], ...]:
    """All rules, in the order of their cost. The docstring of each says what it checks."""
    return _weights, _rounds, _stability, _events


def _weights(exp: Experiment) -> None:
    """The weights of a unit are never negative and add up to at most 1."""
    weighting = exp.algo.contributors.weighting
    alone = weighting.own_units or weighting.one_silo_each
    rng = np.random.default_rng(0)
    for most in (1, 5, 2000):
        counts = rng.integers(0, most + 1, (4, 4))
        weights = weighting.weights(counts)
        demand(
            weights.shape == counts.shape,
            f"weights of shape {weights.shape} for counts of {counts.shape}",
        )
        worst = weights.max() if alone else weights.sum(axis=0).max()
        demand(
            bool(weights.min() >= 0) and worst <= 1 + 1e-12,
            f"weights of a unit add up to {worst:g}: at most 1",
        )


def _rounds(exp: Experiment) -> None:
    """Rounds repeat bit by bit, also after a checkpoint, and parameters stay finite."""
    with prepare(exp) as whole:
        first = _round(whole, 1)
        arrays = whole.arrays(whole.state)
        second = _round(whole, 2)
    with prepare(exp, arrays) as resumed:
        repeated = _round(resumed, 2)
    demand(bool(np.isfinite([first, second]).all()), "parameters are not finite")
    demand(np.array_equal(second, repeated), "a resumed run differs from an uninterrupted one")


def _stability(exp: Experiment) -> None:
    """Without one unit in the file, no more users and records differ than the stages declare."""
    check_stability(exp, records=NEIGHBOURS)


def _events(exp: Experiment) -> None:
    """Every observer has an event for each protected unit in every query."""
    _, _, federation = allocate(exp)
    plan = exp.planner.plan(federation)
    units = {(one.unit, one.adjacency) for one in exp.algo.targets(federation)}
    for number in range(1, min(ROUNDS, exp.options.rounds) + 1):
        for query in exp.algo.queries(number, plan):
            for observer in plan.threat_model.observers:
                found = {
                    (event.unit, event.adjacency)
                    for event in query.events
                    if event.observer == observer.name
                }
                missing = ", ".join(" ".join(unit) for unit in units - found)
                about = f"query {query.name} of round {number}, {observer.name}"
                demand(not missing, f"{about}: no event of {missing}")


def _file(exp: Experiment) -> Iterator[Premise]:
    """Units of the file move what is given to the noise by at most what certificates charge."""
    rounds = min(2, exp.options.rounds)
    for file in (exp, extreme(exp)):
        for largest in distances(file, users=NEIGHBOURS, records=NEIGHBOURS, rounds=rounds):
            if largest.certified:
                yield largest.premise(EXACT)
    yield from _batches(exp)


def _batches(exp: Experiment) -> Iterator[Premise]:
    """Records of a small file, of which batches are a large part."""
    queries = exp.algo.queries(1, exp.planner.plan(allocate(exp)[2]))
    rates = [inclusion(e)[0] for query in queries for e in query.events if e.unit == "record"]
    sampled = min(rates, default=1.0) < 1
    records = SAMPLED if sampled else len(rates) and UNSAMPLED
    rounds = min(ROUNDS if sampled else 2, exp.options.rounds)
    for largest in distances(few(exp), users=0, records=records, rounds=rounds) if records else ():
        if largest.tried:
            yield largest.premise(EXACT)


def _missing(exp: Experiment, premises: list[Premise], rounds: int) -> Iterator[str]:
    """What a report does not vouch for."""
    queries = exp.algo.queries(1, exp.planner.plan(allocate(exp)[2]))
    if premises and not any(p.kind == "bounds" and p.smallest < math.inf for p in premises):
        yield "bounds (no unit moved anything)"
    rates = [inclusion(event)[0] for query in queries for event in query.events]
    if min(rates, default=1.0) < 1 and not any(one.kind == "rate" for one in premises):
        yield "which records are in batches"
    yield "other data"
    if rounds < exp.options.rounds:
        yield f"rounds after {rounds}"


def _round(prepared: PreparedRun, number: int) -> np.ndarray:
    result = prepared.run_round(prepared.queries(number), prepared.state)
    demand(result.aborted is None, f"round {number} has no sum: {result.aborted}")
    prepared.state = result.state
    return prepared.algo.output(result.state)
