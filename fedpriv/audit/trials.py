"""The choice of the most promising attack, and its trials."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.audit.attack import Attack, prepared_attack
from fedpriv.audit.canary_run import with_noise_of
from fedpriv.audit.candidates import candidates
from fedpriv.audit.families import sampling_of
from fedpriv.rounds.plan import Plan
from fedpriv.settings.experiment import Experiment

Scores = dict[str, tuple[np.ndarray, np.ndarray]]
"""By observer: scores (n, metrics) without and (m, metrics) with the canary, in the order of their
draw (`Attack.metrics`)."""

PILOT_RUNS = 2**39
"""Number of the first run of a pilot."""
MIN_TRIALS = 8
"""Trials with and without the canary, whatever time they take."""
MIN_PILOT_TRIALS = 3
"""The same for a pilot."""
MAX_PILOT_TRIALS = 20
"""Trials of a pilot if time allows, even if the audit itself has fewer."""
PILOT_SHARE = 0.2
"""Share of an audit's time and trials that compares all attacks. The pilots prove nothing."""
INTERVAL_WIDTH = 5.6
"""How far n trials each leave a bound of mu below mu, times sqrt(n): two limits of 2.24 standard
errors of normal quantiles, each 1.25 / sqrt(n)."""


@dataclass(frozen=True)
class Effort:
    """How long an audit may take.

    seconds: time for all trials; at least `MIN_TRIALS` run in any case.
    trials: most trials with the canary, and most without.
    """

    seconds: float
    trials: int


def trials(attack: Attack, effort: Effort, first: int, fewest: int = MIN_TRIALS) -> Scores:
    """Run until the time is up or there are enough trials, which never depends on scores.

    first: number of the first run, the seed of its noise and samples.
    """
    end = time.monotonic() + effort.seconds
    runs = [attack.scores(first)]
    counts = np.bincount(runs[0][0], minlength=2)  # runs without and with the canary
    while counts.min() < effort.trials and (counts.min() < fewest or time.monotonic() < end):
        runs.append(attack.scores(first + len(runs)))
        counts += np.bincount(runs[-1][0], minlength=2)
    present = np.concatenate([coins for coins, _ in runs])
    found = {}
    for name in runs[0][1]:
        scores = np.concatenate([scores[name] for _, scores in runs])
        found[name] = scores[~present][: effort.trials], scores[present][: effort.trials]
    return found


def chosen_attack(
    exp: Experiment, plan: Plan, events: list[Event], effort: Effort, colluding: int
) -> Attack:
    """The attack on the unit of `events` that promises the largest bound within `effort`.

    plan: the plan of the audited run.
    """
    replaces = events[0].adjacency == REPLACE
    first = events[0]
    groups = candidates(exp, plan, first.unit, replaces=replaces, user_group=first.group)
    change = with_noise_of(plan)
    sampling = sampling_of(events)
    best: tuple[float, Attack] | None = None
    for group in groups:
        attacks = [
            prepared_attack(one, change, colluding, rounds=exp.options.rounds, sampling=sampling)
            for one in group
        ]
        longest = max(attacks, key=lambda attack: attack.length)
        if best is None and _is_slow(longest, effort, len(groups)):
            return longest
        for attack in attacks:
            if attack is not longest:
                attack.close()
        bound, error = _promise(longest, effort, len(groups))
        # The best of several small pilots is mostly the luckiest. A later attack must be better
        # beyond doubt.
        if best is None or bound - 2 * error > best[0]:
            if best is not None:
                best[1].close()
            best = bound, longest
        else:
            longest.close()
    assert best is not None
    return best[1]


def _is_slow(attack: Attack, effort: Effort, groups: int) -> bool:
    """Whether pilots of the other groups would take the time of the trials."""
    begin = time.monotonic()
    attack.scores(PILOT_RUNS)
    pilots = 2 * MIN_PILOT_TRIALS * groups * (time.monotonic() - begin)
    return pilots > PILOT_SHARE * effort.seconds


def _promise(attack: Attack, effort: Effort, attacks: int) -> tuple[float, float]:
    """The bound of mu to expect within `effort`, on average over observers, and its standard error.

    Both come from a pilot.
    """
    begin = time.monotonic()
    share = PILOT_SHARE / attacks
    pilot = Effort(effort.seconds * share, max(MAX_PILOT_TRIALS, math.ceil(effort.trials * share)))
    scores = trials(attack, pilot, PILOT_RUNS, MIN_PILOT_TRIALS)
    counted = min(len(sample) for pair in scores.values() for sample in pair)
    expected = min(counted * effort.seconds / (time.monotonic() - begin), effort.trials)
    effects = [max(map(_distance, absent.T, present.T)) for absent, present in scores.values()]
    effect = float(np.mean(effects))
    error = math.sqrt((2 + effect**2 / 4) / counted)
    return effect - INTERVAL_WIDTH / math.sqrt(expected), error


def _distance(absent: np.ndarray, present: np.ndarray) -> float:
    """The distance of two samples' means in standard deviations; at most 100."""
    gap = abs(present.mean() - absent.mean())
    spread = math.sqrt((absent.var() + present.var()) / 2)
    return min(100.0, float(gap / spread)) if spread else 100.0 * bool(gap)
