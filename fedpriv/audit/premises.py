"""What a certificate assumes of distances, noise and samples, measured on the run's own path.

A certificate of many releases rests on more than one round:

- Distance: no unit of the run's file moves what is given to the noise by more than is charged, nor
  does any of a file in which all reach their bounds (`fedpriv.testing.sensitivity`). Canaries have
  records of their own, so no attack sees what reading, allocation and truncation make of the file.
- Noise: in every round, silo and coordinate there is as much as events say, of the right shape, and
  independent of all other noise. What an observer knows is subtracted first. It is measured on the
  run's own data and network (`fedpriv.testing.noise`).
- Repetition: a round that is done again after a resume has the same bits, so that it is charged
  once. With noise of the operating system it is charged again, and its noise must be fresh.
- Inclusion: a unit is in a sample no more often than the event says, independently in each round.
  That is measured on canaries.

Each is a test of a hypothesis. A measurement can refute a certificate. It proves no epsilon.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.stats import binom

from fedpriv.accountants.events import Event
from fedpriv.aggregation.plain import Plain
from fedpriv.audit.attack import Attack, Serial
from fedpriv.audit.canary_run import CanaryRun, noiseless, with_noise_of
from fedpriv.certificates.request import turn_of
from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Plan
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.event_parameters import inclusion
from fedpriv.testing.neighbouring_files import extreme
from fedpriv.testing.noise import noise_premises
from fedpriv.testing.observation import without_noise
from fedpriv.testing.premise import Premise, too_often
from fedpriv.testing.sensitivity import distances, longest_contribution

UNITS = 20
"""Users, and records, that differ in the file, one at a time, if time allows."""
ROUNDED = 1e-4
"""Share of a distance that counts as rounding: accelerators may add in any order."""
MOST_ROUNDS = 30
"""Most rounds whose noise is measured."""
MAX_VALUES = 4000
"""Units whose draws are counted: shares of a half are then known to 0.8 %."""
MIN_RUNS = 8
"""Runs whose draws are counted, whatever time they take."""
FIRST_RUN = 2**38
"""Number of the first of these runs, the seed of its samples."""
VISIBLE = 0.01
"""Share of the longest canary that counts as more than rounding."""

Unit = tuple[str, str, str]
"""Unit, adjacency and group of users of a certificate."""


def file_premises(
    exp: Experiment, plan: Plan, seconds: float, units: int = UNITS
) -> Iterator[tuple[Unit | None, Premise]]:
    """Measure the distances of all units that certificates describe, and the longest contribution;
    None: the premise is about all units.

    plan: plan of the audited run.
    seconds: time for each unit, adjacency and file; one neighbouring file is compared in any case.
    units: users, and records, that differ in each file.
    """
    quick = _fast(exp, plan)
    rounds = min(2, exp.options.rounds)
    for file in (quick, extreme(quick)):
        yield from ((None, one) for one in longest_contribution(file, rounds, ROUNDED))
        for one in distances(file, users=units, records=units, rounds=rounds, seconds=seconds):
            if one.certified:
                yield (one.target.unit, one.target.adjacency, one.group), one.premise(ROUNDED)


def run_noise(
    exp: Experiment, plan: Plan, *, colluding: int, seconds: float, values: int
) -> Iterator[Premise]:
    """Measure the noise of the audited run.

    plan: its plan, in which observers know the shares of `colluding` silos.
    seconds: processor time.
    values: noise values of silos or steps that are enough.
    """
    quick = _fast(exp, plan)
    known = with_noise_of(plan)

    def change(own: Plan) -> Plan:
        same = quick.aggregation == exp.aggregation
        return replace(known(own), threat_model=(plan if same else own).threat_model)

    silos = range(exp.allocator.n_silos)
    colluders = tuple(map(silo_name, silos[-min(colluding, len(silos)) :]))
    rounds = min(exp.options.rounds, MOST_ROUNDS)
    yield from noise_premises(
        quick, change, seconds=seconds, values=values, rounds=rounds, colluders=colluders
    )


def _fast(exp: Experiment, plan: Plan) -> Experiment:
    """The experiment in this process, with sums in the clear where the protocol is slow: they are
    the same."""
    slow = bool(exp.aggregation.estimate(exp.algo.queries(1, plan)[0], plan.federation))
    return replace(exp, engine=InProcess(), aggregation=Plain() if slow else exp.aggregation)


def inclusion_premises(
    attack: Attack, events: Mapping[Serial, list[Event]], *, seconds: float, values: int
) -> Iterator[Premise]:
    """Measure how often canaries are in samples, and whether afresh in each round.

    attack: the canaries, and what they contribute to each query.
    events: the events of each query that describe the unit.
    seconds: time for the runs; `MIN_RUNS` are measured in any case.
    values: number of units whose draws are counted; `MAX_VALUES` are enough.
    """
    silo = attack.canaries.silo
    drawn = {
        serial: least
        for serial, group in events.items()
        if (
            least := min(
                (inclusion(one) for one in group if _describes(one, silo)), default=(1.0, 1)
            )
        )[0]
        < 1
    }
    if not drawn:
        return
    runs = max(MIN_RUNS, -(-min(values, MAX_VALUES) // len(attack.canaries)))
    with attack.noiseless_run() as quiet:
        counts = _counts(attack, quiet, drawn, seconds, runs)
    for serial, found in counts.items():
        rate, draws = drawn[serial]
        name = f"share of round {serial[0]}'s draws that take a unit"
        yield too_often("", name, int(found.sum()), len(found) * draws, rate)
        name = f"share of round {serial[0]}'s samples that include a unit"
        ever = -math.expm1(draws * math.log1p(-rate))
        yield too_often("", name, int((found > 0).sum()), len(found), ever)
    numbers = sorted(counts)
    for one, other in pairwise(numbers):
        if len(counts[one]) != len(counts[other]):
            continue
        often = [_more_than_half(*drawn[serial]) for serial in (one, other)]
        both = (counts[one] >= often[0][0]) & (counts[other] >= often[1][0])
        chance = often[0][1] * often[1][1]
        name = f"share of units that are often drawn in rounds {one[0]} and {other[0]}"
        yield too_often("", name, int(both.sum()), len(both), chance)


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


def _more_than_half(rate: float, draws: int) -> tuple[int, float]:
    """The smallest number of draws, from 1 on, that at most half of all units reach, and the share
    of units that reach it."""
    least = next(n for n in range(1, draws + 2) if binom.sf(n - 1, draws, rate) <= 0.5)
    return least, float(binom.sf(least - 1, draws, rate))


def _counts(
    attack: Attack,
    quiet: CanaryRun,
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


def _contributions(attack: Attack, quiet: CanaryRun, trial: int) -> dict[Serial, np.ndarray]:
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
