"""Which attack promises most, and its trials."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.audit.attack import Attack, prepared_attack
from fedpriv.audit.families import sampling_of
from fedpriv.audit.watch import noised_like
from fedpriv.audit.worlds import Bounds, candidates
from fedpriv.rounds.plan import Plan

if TYPE_CHECKING:
    from fedpriv.settings.experiment import Experiment

Scores = dict[str, tuple[np.ndarray, np.ndarray]]
"""By observer: scores (n,) without and (m,) with the canary, in the order of their draw."""


@dataclass(frozen=True)
class Effort:
    """How long an audit may take: `seconds` of trials, at most `trials` of each world, at least
    `FEWEST`."""

    seconds: float
    trials: int


FEWEST, FEWEST_IN_PILOT = 8, 3
"""Trials of each world whatever time they take."""
ENOUGH_IN_PILOT = 20
"""Trials of each world in a pilot, where time allows, however few the audit itself has."""
PILOT_SHARE = 0.2
"""Of an audit's time and trials: how much compares attacks, all of them together. It proves
nothing."""
NARROWS = 5.6
"""How far n trials of each world leave a bound of mu below mu itself, times sqrt(n): two limits of
2.24 standard errors of normal quantiles, each 1.25 / sqrt(n)."""


def trials(attack: Attack, effort: Effort, first: int, fewest: int = FEWEST) -> Scores:
    """Runs until the time is up or there are trials enough, which never depends on scores.

    first: the first run's number, from which its noise and samples come.
    """
    end = time.monotonic() + effort.seconds
    scores = _Collected(attack)
    run = first
    while scores.fewest < effort.trials and (scores.fewest < fewest or time.monotonic() < end):
        scores.add(run)
        run += 1
    return scores.arrays(effort.trials)


class _Collected:
    """Scores of an attack's runs by world."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        self.present: list[np.ndarray] = []
        self.scores: list[dict[str, np.ndarray]] = []
        self.counts = np.zeros(2, dtype=int)

    @property
    def fewest(self) -> int:
        return int(self.counts.min())

    def add(self, run: int) -> None:
        present, scores = self.attack.scores(run)
        self.present.append(present)
        self.scores.append(scores)
        self.counts += [int((~present).sum()), int(present.sum())]

    def arrays(self, most: int) -> Scores:
        present = np.concatenate(self.present)
        whole = {
            name: np.concatenate([scores[name] for scores in self.scores])
            for name in self.scores[0]
        }
        return {name: (of[~present][:most], of[present][:most]) for name, of in whole.items()}


def chosen_attack(
    exp: Experiment, plan: Plan, events: list[Event], effort: Effort, colluding: int
) -> Attack:
    """The attack on the unit of `events` that promises the largest bound within `effort`.

    plan: the run's.
    """

    unit = events[0].unit
    replaces = events[0].adjacency == REPLACE
    kinds = candidates(exp, Bounds.of(exp, plan), unit, replaces=replaces)
    revise = noised_like(plan)
    known = sampling_of(events)
    best: tuple[_Promise, Attack] | None = None
    for kind in kinds:
        alike = [
            prepared_attack(one, revise, colluding, rounds=exp.options.rounds, sampling=known)
            for one in kind
        ]
        farthest = max(alike, key=lambda attack: attack.length)
        if best is None and _slow(farthest, effort, len(kinds)):
            return farthest
        for attack in alike:
            if attack is not farthest:
                attack.close()
        promised = _promise(farthest, effort, len(kinds) + 1)
        # The best of several small pilots is mostly the luckiest: later kinds must be better beyond
        # doubt.
        if best is None or promised.bound - 2 * promised.error > best[0].bound:
            if best is not None:
                best[1].close()
            best = promised, farthest
        else:
            farthest.close()
    assert best is not None
    if not plan.streams.system:  # else a round that is begun again is charged again
        resumed = replace(best[1], resumes=True)
        promised = _promise(resumed, effort, len(kinds) + 1)
        best = max(best, (promised, resumed), key=lambda pair: pair[0].bound)
    return best[1]


def _slow(attack: Attack, effort: Effort, kinds: int) -> bool:
    """Whether runs are so long that the pilots of the other kinds would take the time of trials."""
    begin = time.monotonic()
    attack.scores(2**39)
    return 2 * FEWEST_IN_PILOT * kinds * (time.monotonic() - begin) > PILOT_SHARE * effort.seconds


@dataclass(frozen=True)
class _Promise:
    """About which bound of mu to expect, on average over observers, and the standard error."""

    bound: float
    error: float


def _promise(attack: Attack, effort: Effort, attacks: int) -> _Promise:
    """What a pilot says of an attack within `effort`."""
    begin = time.monotonic()
    share = PILOT_SHARE / attacks
    pilot = Effort(effort.seconds * share, max(ENOUGH_IN_PILOT, math.ceil(effort.trials * share)))
    scores = trials(attack, pilot, 2**39, FEWEST_IN_PILOT)
    counted = min(len(sample) for pair in scores.values() for sample in pair)
    expected = min(counted * effort.seconds / (time.monotonic() - begin), effort.trials)
    effect = float(np.mean([_effect(*pair) for pair in scores.values()]))
    return _Promise(
        effect - NARROWS / math.sqrt(expected), math.sqrt((2 + effect**2 / 4) / counted)
    )


def _effect(absent: np.ndarray, present: np.ndarray) -> float:
    """The distance of two samples' means in standard deviations; at most 100."""
    gap = abs(present.mean() - absent.mean())
    spread = math.sqrt((absent.var() + present.var()) / 2)
    return min(100.0, float(gap / spread)) if spread else 100.0 * bool(gap)
