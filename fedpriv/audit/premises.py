"""What a certificate assumes of noise and samples, measured on the run's own path.

A certificate of many releases rests on more than one round:

- Noise: in every round, an observer faces at least as much noise as that round's event says,
  relative to the distance by which one unit moves the release. What the observer knows of the noise
  is subtracted first. That is measured in the directions of all canaries together, and in the
  coordinate with the least noise for what a canary moves there.
- Independence: the noise of one silo in one round says nothing about any other noise.
- Repetition: a round that is done again after a resume has the same bits, so that it is charged
  once. With noise of the operating system it is charged again, and its noise must be fresh.
- Inclusion: a unit is in a sample no more often than the event says, independently in each round.

Each is a test of a hypothesis, on runs with canaries. A measurement can refute a certificate. It
proves no epsilon.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

import numpy as np
from scipy.stats import binom, chi2, pearsonr

from fedpriv.accountants.events import Event
from fedpriv.audit.attack import Attack, Serial
from fedpriv.audit.observation import ObservedRun, noiseless, observed_round, without_noise
from fedpriv.certificates.request import turn_of
from fedpriv.parties.party import silo_name
from fedpriv.rounds.state import State
from fedpriv.testing.event_parameters import inclusion, noise_multiplier

LEVEL = 1e-4
"""Probability that the premises of a certificate that holds raise an alarm, over all of them."""
MAX_VALUES = 4000
"""Noise values of a round: a standard deviation is then known to 1.1 %."""
MIN_RUNS = 8
"""Runs that are measured, whatever time they take."""
MAX_NOISES = 60
"""Most noises, of rounds and silos, that are compared pair by pair."""
FIRST_RUN = 2**38
"""Number of the first run, the seed of its noise and samples."""
VISIBLE = 0.01
"""Share of the longest canary that counts as more than rounding."""


@dataclass(frozen=True)
class Premise:
    """One assumption of a certificate, measured.

    observer: the observer; "" for an assumption of every observer's certificate.
    name: what is measured, and where.
    measured: the measured value.
    assumed: the value that the certificate assumes.
    chance: probability of a measurement as bad as this one if the assumption holds.
    tests: number of measurements that share `LEVEL`.
    """

    observer: str
    name: str
    measured: float
    assumed: float
    chance: float
    tests: int = 1

    @property
    def alarm(self) -> bool:
        """Whether the measurement refutes the assumption."""
        return self.chance * self.tests < LEVEL

    def __str__(self) -> str:
        return (
            f"{self.name}: measured {self.measured:.4g}, the certificate assumes {self.assumed:.4g}"
        )


@dataclass
class _Noises:
    """Noises in the directions of canaries, in units of the longest canary.

    seen: the noise that hides canaries, by observer and query.
    coordinates: the noise of each coordinate that a canary moves, in units of the longest such move
        of any canary, by observer and query.
    of_silos: a silo's own noise, by query and silo, and by the number of the run: a silo is not in
        every sum.
    """

    seen: dict[tuple[str, Serial], list[np.ndarray]] = field(
        default_factory=lambda: defaultdict(list)
    )
    coordinates: dict[tuple[str, Serial], list[np.ndarray]] = field(
        default_factory=lambda: defaultdict(list)
    )
    of_silos: dict[tuple[Serial, str], dict[int, np.ndarray]] = field(
        default_factory=lambda: defaultdict(dict)
    )


def premises(
    attack: Attack, events: Mapping[Serial, list[Event]], *, seconds: float, values: int
) -> list[Premise]:
    """Measure what the certificates of one unit assume.

    attack: the canaries, and what they contribute to each query.
    events: the events of each query that describe the unit.
    seconds: time for the runs; `MIN_RUNS` are measured in any case.
    values: number of noise values of a round; `MAX_VALUES` are enough.
    """
    silo = attack.canaries.silo
    own = {serial: [e for e in group if _describes(e, silo)] for serial, group in events.items()}
    wanted = min(values, MAX_VALUES)
    runs = max(MIN_RUNS, -(-wanted // len(attack.canaries)))
    with ExitStack() as stack:
        quiet = stack.enter_context(attack.noiseless_run())
        found = [
            *_inclusion(attack, quiet, own, seconds, runs),
            *_noise(attack, quiet, own, seconds, runs),
        ]
    return [replace(premise, tests=len(found)) for premise in found]


def _describes(event: Event, silo: int | None) -> bool:
    """Whether an event describes units of this silo; None: only events of all silos do. Canaries
    that take turns have the first."""
    if turn_of(event.scope) is not None:
        return turn_of(event.scope) == 0
    here = event.scope.partition("/")[0]
    return not here or (silo is not None and here == silo_name(silo))


def _numbers(seconds: float, runs: int) -> Iterator[int]:
    """The numbers of up to `runs` runs within a time."""
    end = time.monotonic() + seconds
    for number in range(runs):
        if number >= MIN_RUNS and time.monotonic() > end:
            return
        yield FIRST_RUN + number


# -- noise -----------------------------------------------------------------------------------------


def _noise(
    attack: Attack,
    quiet: ObservedRun,
    events: Mapping[Serial, list[Event]],
    seconds: float,
    runs: int,
) -> Iterator[Premise]:
    noises = _Noises()
    change = 0.0
    for number in _numbers(seconds, runs):
        change = max(change, _run(attack, quiet, number, noises))
    for (observer, serial), parts in noises.seen.items():
        known = np.stack(noises.coordinates[observer, serial])
        yield from _enough(observer, serial, np.concatenate(parts), known, events.get(serial, []))
    yield from _independence(noises.of_silos)
    if not attack.system:
        chance = 0.0 if change > VISIBLE else 1.0
        yield Premise("", "change of a round that is done again", change, 0.0, chance)


def _run(attack: Attack, quiet: ObservedRun, trial: int, noises: _Noises) -> float:
    """Add the noise of a run without canaries, whose last round is done again.

    Returns by how much the repeated round differs, in units of the longest canary.
    """
    run = attack.run
    nobody = np.zeros(len(attack.canaries), dtype=bool)
    state = run.restart(nobody, trial)
    quiet.restart(nobody, trial)
    for number in range(1, attack.rounds + 1):
        checkpoints = run.prepared.arrays(state), quiet.prepared.arrays(state)
        state, last = _round(attack, quiet, number, state, noises, trial=trial)
    again = run.resume(checkpoints[0])
    quiet.resume(checkpoints[1])
    # Fresh noise of a repeated round is charged, and measured, as that of a further round.
    noises = noises if attack.system else _Noises()
    _, repeated = _round(attack, quiet, attack.rounds, again, noises, trial=trial, again=True)
    return max(
        (float(np.abs(last[key] - repeated[key]).max()) for key in last.keys() & repeated.keys()),
        default=0.0,
    )


def _round(
    attack: Attack,
    quiet: ObservedRun,
    number: int,
    state: State,
    noises: _Noises,
    *,
    trial: int,
    again: bool = False,
) -> tuple[State, dict[tuple[str, Serial], np.ndarray]]:
    """Add the noise of a round. Returns the state after it, and the noise by observer and query.

    trial: number of the run.
    again: whether the round is done for the second time; its queries then count as further ones.
    """
    found: dict[tuple[str, Serial], np.ndarray] = {}
    for difference in observed_round(attack.run, quiet, number, state):
        serial, state = difference.query.serial, difference.state
        for name, noise in difference.vectors.items():
            x = attack.projected(name, serial, noise)
            if x is not None:
                found[name, serial] = x
                noises.seen[name, serial].append(x)
                alone = attack.coordinates(name, serial, noise, VISIBLE)
                noises.coordinates[name, serial].append(alone)
        place = (serial[0], ~serial[1]) if again else serial
        for name in difference.silos:
            own = attack.run.taps[name].message - quiet.taps[name].message
            x = attack.projected_sum(serial, own)
            if x is not None and np.any(x):
                noises.of_silos[place, name][trial] = x
    return state, found


def _enough(
    observer: str,
    serial: Serial,
    x: np.ndarray,
    coordinates: np.ndarray,
    events: list[Event],
) -> Iterator[Premise]:
    """Whether noise is as an event says.

    x: (n,) in units of the distance that a unit moves.
    coordinates: (runs, m) of single coordinates, each in units of the distance that a unit moves
        it. An observer who looks at one alone learns no more than from all of them.
    """
    declared = [noise for e in events if e.observer == observer and (noise := noise_multiplier(e))]
    finite = [noise for noise in declared if math.isfinite(noise)]
    if not finite or len(finite) < len(declared):
        return
    needed = max(finite)
    chance = float(chi2.cdf((x**2).sum() / needed**2, len(x)))
    name = f"noise of round {serial[0]} over the distance that a unit moves it"
    yield Premise(observer, name, float(np.sqrt(np.mean(x**2))), needed, chance)
    runs, numbers = coordinates.shape
    least = float((coordinates**2).sum(axis=0).min())
    chance = min(1.0, numbers * float(chi2.cdf(least / needed**2, runs)))
    name = f"noise of round {serial[0]} in one coordinate, over the distance that a unit moves it"
    yield Premise(observer, name, math.sqrt(least / runs), needed, chance)


def _independence(
    noises: Mapping[tuple[Serial, str], Mapping[int, np.ndarray]],
) -> Iterator[Premise]:
    """Whether noises (n,) of queries and silos, by run, are uncorrelated."""
    found = list[tuple[float, float, str]]()
    for one, other in combinations(list(noises)[:MAX_NOISES], 2):
        runs = [run for run in noises[one] if run in noises[other]]
        if not runs:
            continue
        x, y = (np.concatenate([noises[key][run] for run in runs]) for key in (one, other))
        if len(x) == len(y) >= 4 and x.std() > 0 and y.std() > 0:
            r, chance = pearsonr(x, y)
            found.append((float(chance), abs(float(r)), f"{_place(one)} and {_place(other)}"))
    if found:
        chance, r, places = min(found)
        chance = min(1.0, len(found) * chance)
        yield Premise("", f"correlation of the noise of {places}", r, 0.0, chance)


def _place(key: tuple[Serial, str]) -> str:
    (round, place), silo = key
    again = " done again" if place < 0 else ""
    return f"{silo} in round {round}{again}"


# -- inclusion -------------------------------------------------------------------------------------


def _inclusion(
    attack: Attack,
    quiet: ObservedRun,
    events: Mapping[Serial, list[Event]],
    seconds: float,
    runs: int,
) -> Iterator[Premise]:
    """Whether canaries are in samples as often as events say, and afresh in each round."""
    drawn = {
        serial: least
        for serial, group in events.items()
        if (least := min(map(inclusion, group), default=(1.0, 1)))[0] < 1
    }
    if not drawn:
        return
    counts = _counts(attack, quiet, drawn, seconds, runs)
    for serial, found in counts.items():
        rate, draws = drawn[serial]
        name = f"share of round {serial[0]}'s draws that take a unit"
        yield _too_often("", name, int(found.sum()), len(found) * draws, rate)
        name = f"share of round {serial[0]}'s samples that include a unit"
        ever = -math.expm1(draws * math.log1p(-rate))
        yield _too_often("", name, int((found > 0).sum()), len(found), ever)
    numbers = sorted(counts)
    for one, other in pairwise(numbers):
        if len(counts[one]) != len(counts[other]):
            continue
        often = [_more_than_half(*drawn[serial]) for serial in (one, other)]
        both = (counts[one] >= often[0][0]) & (counts[other] >= often[1][0])
        chance = often[0][1] * often[1][1]
        name = f"share of units that are often drawn in rounds {one[0]} and {other[0]}"
        yield _too_often("", name, int(both.sum()), len(both), chance)


def _more_than_half(rate: float, draws: int) -> tuple[int, float]:
    """The smallest number of draws, from 1 on, that at most half of all units reach, and the share
    of units that reach it."""
    least = next(n for n in range(1, draws + 2) if binom.sf(n - 1, draws, rate) <= 0.5)
    return least, float(binom.sf(least - 1, draws, rate))


def _too_often(observer: str, name: str, hits: int, draws: int, rate: float) -> Premise:
    """Whether hits are more frequent than a rate allows."""
    chance = float(binom.sf(hits - 1, draws, rate)) if hits <= draws else 0.0
    return Premise(observer, name, hits / draws, rate, chance)


def _counts(
    attack: Attack,
    quiet: ObservedRun,
    drawn: Mapping[Serial, tuple[float, int]],
    seconds: float,
    runs: int,
) -> dict[Serial, np.ndarray]:
    """How often canaries contribute to each sampled query, (n,) for all canaries of all runs."""
    contributions: dict[Serial, list[np.ndarray]] = defaultdict(list)
    for number in _numbers(seconds, runs):
        for serial, x in _contributions(attack, quiet, number).items():
            if serial in drawn:
                contributions[serial].append(x)
    found = {}
    for serial, parts in contributions.items():
        x = np.abs(np.concatenate(parts))
        # A unit that is drawn several times contributes several times as much. The smallest step
        # between two contributions is one draw.
        steps = np.diff(np.sort(np.append(x, 0.0)))
        smallest = min(steps[steps > VISIBLE], default=1.0)
        found[serial] = np.round(x / smallest).astype(int)
    return found


def _contributions(attack: Attack, quiet: ObservedRun, trial: int) -> dict[Serial, np.ndarray]:
    """What canaries contribute to each query of one noiseless run, (n,) in units of the longest.
    Every round begins with the first state."""
    present, absent = (
        noiseless(
            quiet, np.full(len(attack.canaries), there), attack.rounds, without_noise, trial=trial
        )
        for there in (True, False)
    )
    found = {}
    for serial, seen in present.items():
        by_observer = (
            attack.projected(name, serial, vectors - absent[serial][name])
            for name, vectors in seen.items()
        )
        visible = next((x for x in by_observer if x is not None), None)
        if visible is not None:
            found[serial] = visible
    return found
