"""What every algorithm must satisfy, checked on a small federation with real training.

The central check is one inequality. A query's event declares a noise multiplier z: the noise of the
released sum has at least z times the standard deviation of the distance by which one unit moves the
sum. Both sides are measured:

- the noise: sums with noise against the same sums without it, in several rounds and over several
  seeds. The noise of one round must say nothing about that of another;
- the distance: sums without noise, with and without a unit.

If an observer sees messages and its event describes one silo, that silo's message is checked too.
Two more checks begin at the file: units are deleted or get other content, and all stages run again.
What differs behind the stages is compared with the stability that they declare, and what differs
before the noise with what the certificate charges.

A measurement on one data set can refute a declaration. It cannot prove it for all data.

>>> from fedpriv.testing import check_algorithm, experiment
>>> algo = experiment("algo=uldp_avg", "algo.noise_multiplier=1", "preset.n_users=8").algo
>>> report = check_algorithm(algo)
>>> report.checked
('weights', 'rounds', 'stability', 'file', 'update: user, add/remove')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.allocators import check_stability
from fedpriv.testing.conformance import demand
from fedpriv.testing.event_parameters import noise_multiplier
from fedpriv.testing.experiments import SMALL, experiment
from fedpriv.testing.noise_checks import (
    check_independence,
    check_noise,
    declarations,
    measured_noise,
    senders,
)
from fedpriv.testing.sensitivity import distances

NEIGHBOURS = 3
"""Users, and records, that differ in the file, one at a time."""


@dataclass(frozen=True)
class ConformanceReport:
    """The rules that an algorithm satisfies.

    checked: names of the rules, and each measured declaration by query, unit and adjacency.
    declared: declarations of noise that the measurement cannot judge, by unit and mechanism.
    """

    checked: tuple[str, ...]
    declared: tuple[str, ...]

    def __str__(self) -> str:
        """A line for each rule, and a last one with the result."""
        rules = {rule.__name__.strip("_"): rule.__doc__ or "" for rule in _rules()}
        lines = [
            f"passed: {rules.get(name, f'The added noise is what the certificate says: {name}.')}"
            for name in self.checked
        ]
        lines += [f"NOT measured, and taken at your word: {name}" for name in self.declared]
        result = "some noise was not measured" if self.declared else "everything was measured"
        return "\n".join([*lines, f"all rules hold; {result}"])


def check_algorithm(algo: Algorithm, *words: str) -> ConformanceReport:
    """Check `algo` against all rules, with eight users in three silos.

    words: overrides of the command.

    Raises ConformanceError with the broken rule, and FedprivError for a configuration that no
    command accepts.
    """
    exp = experiment(*SMALL, *words, algo=algo)
    checked = []
    declared = []
    for rule in _rules():
        rule(exp)
        checked.append(rule.__name__.strip("_"))
    noises = [(one, noise_multiplier(one.event)) for one in declarations(exp)]
    certified = [one for one, noise in noises if noise is not None and math.isfinite(noise)]
    noise = measured_noise(exp, senders(certified)) if certified else {}
    for declaration, multiplier in noises:
        if multiplier is None:
            declared.append(f"{declaration}, {type(declaration.event.certified).__name__}")
        elif math.isfinite(multiplier):
            check_noise(exp, declaration, multiplier, noise)
            checked.append(str(declaration))
    check_independence(noise)
    return ConformanceReport(tuple(dict.fromkeys(checked)), tuple(dict.fromkeys(declared)))


def _rules() -> tuple[Callable[[Experiment], None], ...]:
    """All rules, in the order of their cost. The docstring of each says what it checks."""
    return _weights, _rounds, _stability, _file


def _weights(exp: Experiment) -> None:
    """The weights of a unit are never negative and add up to at most 1."""
    weighting = exp.algo.contributors.weighting
    rng = np.random.default_rng(0)
    for most in (1, 5, 2000):
        counts = rng.integers(0, most + 1, (4, 4))
        weights = weighting.weights(counts)
        demand(
            weights.shape == counts.shape,
            f"weights of shape {weights.shape} for counts of {counts.shape}",
        )
        worst = weights.max() if weighting.own_units else weights.sum(axis=0).max()
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


def _file(exp: Experiment) -> None:
    """Units of the file move what is given to the noise by at most what certificates charge."""
    for largest in distances(exp, users=NEIGHBOURS, records=NEIGHBOURS):
        demand(not largest.exceeds, f"from the file to the noise: {largest}")


def _round(prepared: PreparedRun, number: int) -> np.ndarray:
    result = prepared.run_round(prepared.queries(number), prepared.state)
    demand(result.aborted is None, f"round {number} has no sum: {result.aborted}")
    prepared.state = result.state
    return prepared.algo.output(result.state)
