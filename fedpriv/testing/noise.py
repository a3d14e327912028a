"""Is there as much noise as events declare, in every round, silo and coordinate, and is it fresh?

Runs with noise are compared with runs that differ in nothing but the noise, and follow the same
states. Measured are what each observer faces, each silo's own noise, and the noise of each step
inside local training. What is declared follows from the events: the noise multiplier times the
distance that the certificate charges (`fedpriv.testing.sensitivity` measures that distance).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from dp_accounting import LaplaceDpEvent
from scipy.special import ndtri

from fedpriv.accountants.events import RELEASED_MODEL, Event
from fedpriv.certificates.request import ObservedRelease, observed_releases
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.charges import charge, noisy_steps
from fedpriv.testing.event_parameters import noise_multiplier
from fedpriv.testing.noise_tests import Noise, Place, independence_tests, scale_tests
from fedpriv.testing.observation import (
    Difference,
    ObservedRun,
    PlanChange,
    observed_round,
    without_plan_noise,
)
from fedpriv.testing.premise import Premise

VALUES = 400_000
"""Noise values of silos or steps that are enough: a standard deviation is then known to 0.11 %."""
MIN_RUNS = 2
"""Runs that are measured, whatever time they take."""
MAX_COORDINATES = 2**13
"""Most coordinates of a vector that are tested: pieces of `PIECE` from all over it."""
PIECE = 64
MAX_STEPS = 128
"""Most local steps of a query that are tested."""
FIRST_RUN = 2**38
"""Number of the first run, the seed of its noise and samples."""
VISIBLE = 0.01
"""Deviations that count as more than rounding."""
FACED, OWN, STEPS, MESSAGES = "noise", "noise of silos", "noise of local steps", "noise of messages"
"""Kinds of noise: what an observer faces, a silo's share, what a local step adds, and what differs
in a message whose noise the event does not give by silo."""


@dataclass(frozen=True)
class Declaration:
    """Noise that an event declares.

    view: what the event describes.
    event: the event.
    whole: standard deviation, or Laplace scale, that the observer faces in a sum; None: the event
        declares none, or none that can be measured there.
    own: that of one silo's noise; None likewise.
    measurable: whether the event is that of Gaussian or Laplace noise.
    whiten: see `Charge`. Measured is then what it makes of all messages, for who knows no noise.
    """

    view: ObservedRelease
    event: Event
    whole: float | None
    own: float | None
    measurable: bool = True
    whiten: Callable[[np.ndarray], np.ndarray] | None = None

    def about(self, query: Query, part: str) -> bool:
        """Whether it describes a silo's part, or "" for any, of a query."""
        silo = self.view.silo
        here = not part or silo is None or silo_name(silo) == part
        return here and self.view.request.name == query.name

    def __str__(self) -> str:
        alone = self.view.observer.sees_messages and self.view.silo is not None
        message = f", message of {silo_name(self.view.silo or 0)}" if alone else ""
        return f"{self.view.request.name}: {self.event.protects}, {self.event.adjacency}{message}"


def declarations(exp: Experiment, plan: Plan, round: int) -> Iterator[Declaration]:
    """What the finite events of a round declare."""
    algo = exp.algo
    targets = algo.targets(plan.federation)
    observers = plan.threat_model.observers
    for request, query in zip(algo.requests(round, plan), algo.queries(round, plan)):
        views = observed_releases(request, plan, algo.contributors, targets, observers, round)
        for view, event in zip(views, query.events, strict=True):
            multiplier = noise_multiplier(event)
            if multiplier == math.inf:
                continue
            charged = charge(request.noise, view)
            laplace = isinstance(event.certified, LaplaceDpEvent)
            if multiplier is None or charged is None or laplace != (charged.norm == 1):
                yield Declaration(view, event, None, None, measurable=False)
            elif charged.whiten is not None:
                faced = None if view.observer.own_shares else 1.0
                yield Declaration(view, event, faced, None, whiten=charged.whiten)
            elif charged.step:
                last = charged.sum / charged.step
                yield Declaration(view, event, None, last if math.isfinite(last) else None)
            else:
                # A unit of k records moves k times as far, under a k-th of the multiplier.
                whole = multiplier * event.group_size * charged.sum / view.target.records
                framework = request.noise.enforced or request.noise.by_silo
                alone = whole * charged.share
                # A sum of Laplace noises is no Laplace noise.
                known = whole if charged.norm == 2 or view.n_summed == 1 else None
                seen = alone if view.observer.sees_messages else known
                yield Declaration(view, event, seen, alone if framework else None)


Vectors = Iterator[tuple[str, str, str, np.ndarray]]
"""Observer, kind, silo or step, and noise (d,)."""


class _Measured:
    """Noise of runs, in units of the declared deviation.

    run, quiet: the runs, with noise and without.
    declared: declarations of each round.
    vectors: by observer and kind: by place and run.
    values: number of values of silos and steps.
    changed: by how much a round that was done again differed.
    """

    def __init__(
        self, run: ObservedRun, quiet: ObservedRun, declared: dict[int, list[Declaration]]
    ) -> None:
        self.run, self.quiet, self.declared = run, quiet, declared
        self.vectors: dict[tuple[str, str], dict[tuple[Place, int], np.ndarray]]
        self.vectors = defaultdict(dict)
        self.values = 0
        self.changed = 0.0

    def add_run(self, number: int, end: float) -> None:
        """Add the noise of a run, whose last round is done again.

        end: processor time at which the run ends, after two rounds.
        """
        run, quiet = self.run, self.quiet
        state = run.restart(number)
        quiet.restart(number)
        for round in self.declared:
            saved = run.prepared.arrays(state), quiet.prepared.arrays(state)
            state, last = self._round(round, number, state)
            if round > 1 and time.process_time() > end:
                break
        again = run.resume(saved[0])
        quiet.resume(saved[1])
        _, repeated = self._round(round, number, again, again=True)
        for key in last.keys() & repeated.keys():
            self.changed = max(self.changed, float(np.abs(last[key] - repeated[key]).max()))

    def _round(
        self, round: int, number: int, state: State, *, again: bool = False
    ) -> tuple[State, dict[tuple[str, Place], np.ndarray]]:
        """The state after a round, and what each observer faces in it."""
        steps: list[np.ndarray] = []
        faced = {}

        def kept(
            total: np.ndarray, deviation: float, draw: Callable[[np.ndarray], np.ndarray]
        ) -> np.ndarray:
            noised = draw(total.copy())
            if deviation:
                steps.append((noised - total) / deviation)
            return noised

        with noisy_steps(kept):
            for difference in observed_round(self.run, self.quiet, round, state):
                state, query = difference.state, difference.query
                rng = np.random.default_rng([number, *query.serial])
                for observer, kind, part, vector in self._vectors(difference, steps, rng):
                    place = Place(query.name, round, part, again)
                    if kind == FACED:
                        faced[observer, Place(query.name, round, part)] = vector
                    # Seeded, a round that is done again has no new noise. Noise of the operating
                    # system is charged, and measured, as that of a further round.
                    if not again or self.run.prepared.plan.streams.system:
                        self.vectors[observer, kind][place, number] = vector[_pieces(len(vector))]
                        self.values += len(vector) * (not observer)
                steps.clear()
        return state, faced

    def _vectors(
        self, difference: Difference, steps: list[np.ndarray], rng: np.random.Generator
    ) -> Vectors:
        """The noises of one query. Those on a grid are spread over its steps."""
        query = difference.query
        unit = query.encoding.unit if query.encoding else 0.0
        spread = unit * (rng.random(query.size) - 0.5)
        known = self.declared[query.round]
        normal = _normal if query.mechanism.norm == 1 else np.asarray
        whiten = next((one.whiten for one in known if one.whiten and one.about(query, "")), None)
        for observer, rows in difference.vectors.items():
            if whiten is not None:
                rows = whiten(rows.sum(axis=0))[None]
            parts = difference.silos if len(rows) > 1 else ("",)
            for part, row in zip(parts, rows):
                whole = [
                    one.whole or 0.0
                    for one in known
                    if one.view.observer.name == observer and one.about(query, part)
                ]
                if any(whole):
                    yield observer, FACED, part, normal((row + spread) / max(whole))
        if whiten or not any(one.measurable and one.about(query, "") for one in known):
            return
        for at, step in enumerate(steps[:: -(-len(steps) // MAX_STEPS) or 1]):
            yield "", STEPS, f"step {at}", step
        for part in difference.silos:
            taps = self.run.taps[part], self.quiet.taps[part]
            share = taps[0].noise - taps[1].noise if taps[0].noise.any() else np.zeros(query.size)
            own = max((one.own or 0.0 for one in known if one.about(query, part)), default=0.0)
            if own:
                yield "", OWN, part, normal((share + spread * share.any()) / own)
            elif not steps:
                yield "", MESSAGES, part, taps[0].message - taps[1].message

    def noises(self, tensors: list[int]) -> Iterator[tuple[str, Noise]]:
        """The noises of each observer, kind and size."""
        for (observer, kind), found in self.vectors.items():
            for size in sorted({len(vector) for vector in found.values()}):
                rows = [one for one in found.items() if len(one[1]) == size]
                keys, vectors = zip(*rows)
                places, runs = zip(*keys)
                x = np.stack(vectors)
                if kind == MESSAGES:
                    x = _scaled(x, [(place.query, place.round) for place in places])
                known = tensors if tensors[-1] == size else [0, size]
                yield observer, Noise(kind, x, np.array(runs), places, known)


def _normal(x: np.ndarray) -> np.ndarray:
    """Laplace noise of scale 1 as unit Gaussians: the values of the same probability."""
    return np.asarray(-np.sign(x) * ndtri(np.exp(-np.abs(x)) / 2))


def _scaled(x: np.ndarray, rounds: list[tuple[str, int]]) -> np.ndarray:
    """Vectors (m, d) with deviation 1 in each of the rounds (m,)."""
    number = {round: at for at, round in enumerate(dict.fromkeys(rounds))}
    at = np.array([number[round] for round in rounds])
    squares = np.bincount(at, np.mean(x**2, axis=1)) / np.bincount(at)
    return np.asarray(x / np.sqrt(np.where(squares, squares, 1.0))[at, None])


def _pieces(size: int) -> np.ndarray:
    """The coordinates of a vector that are tested."""
    if size <= MAX_COORDINATES:
        return np.arange(size)
    starts = np.linspace(0, size - PIECE, MAX_COORDINATES // PIECE).astype(int)
    return np.asarray((starts[:, None] + np.arange(PIECE)).ravel())


def noise_premises(
    exp: Experiment,
    change: PlanChange = lambda plan: plan,
    *,
    seconds: float = math.inf,
    values: int = VALUES,
    rounds: int,
    colluders: tuple[str, ...] = (),
) -> Iterator[Premise]:
    """Measure all noise that the events of the first rounds declare.

    change: change of the run's plan.
    seconds: processor time; `MIN_RUNS`, the later ones of two rounds, are measured in any case.
    values: noise values of silos or steps that are enough.
    rounds: rounds of each run; the last one is done twice.
    colluders: silos that share what they know.
    """
    end = time.process_time() + seconds
    with (
        ObservedRun(exp, change, colluders) as run,
        ObservedRun(exp, without_plan_noise(change), colluders) as quiet,
    ):
        plan = run.prepared.plan
        declared = {
            number: list(declarations(exp, plan, number)) for number in range(1, rounds + 1)
        }
        if not any(declared.values()):
            return
        measured = _Measured(run, quiet, declared)
        number = 0
        while number < MIN_RUNS or (0 < measured.values < values and time.process_time() < end):
            measured.add_run(FIRST_RUN + number, end if number else math.inf)
            number += 1
        noisy = (one for found in declared.values() for one in found if one.measurable)
        if not measured.vectors and any(one.whole or one.own for one in noisy):
            yield Premise("", "share of rounds with noise that came to an end", 0.0, 1.0, 0.0)
            return
        tensors = [0, *accumulate(p.numel() for p in run.prepared.model.parameters())]
        for observer, noise in measured.noises(tensors):
            yield from _tests(observer, noise)
        if not plan.streams.system:
            chance = 0.0 if measured.changed > VISIBLE else 1.0
            name = "change of a round that is done again"
            yield Premise("", name, measured.changed, 0.0, chance)


def _tests(observer: str, noise: Noise) -> Iterator[Premise]:
    """All tests of one noise. What observers face is made of what silos and steps add."""
    if noise.name != MESSAGES:
        yield from scale_tests(noise, observer)
    silent = ~noise.x.any(axis=1)
    if observer not in ("", RELEASED_MODEL):
        return
    if silent.any():
        where = noise.places[int(np.argmax(silent))]
        yield Premise("", f"{noise.name} of {where}", 0.0, 1.0, 0.0)
    else:
        yield from independence_tests(noise)
