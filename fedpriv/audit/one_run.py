"""The audit in one run: coins decide which of many canaries are there, and what observers see tells
the coins.

Parties, messages, bounds, noise shares and sums are those of the run (`fedpriv.audit.watch`). What
an observer sees, less what it would see without canaries and without noise, is projected on each
canary's direction; scores of all rounds add up. As in every audit the observer knows everything but
the coins, the noise, and the sample where it is hidden from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.audit.audit import CONFIDENCE, AuditRow, Subject, audit_row, subjects
from fedpriv.audit.crowd import Crowd, crowd
from fedpriv.audit.families import sampling_of
from fedpriv.audit.guessing import best_number, guess_bound
from fedpriv.audit.one_shot import estimated_epsilon
from fedpriv.audit.watch import Seen, Watched, noised_like, silent, unsampled, without_noise
from fedpriv.audit.worlds import pools
from fedpriv.errors import AggregationAbortedError, require
from fedpriv.settings.experiment import Experiment

QUICK_CANARIES = 400
THOROUGH_CANARIES = 2000


def audit_in_one_run(exp: Experiment, canaries: int, *, colluding: int = 1) -> list[AuditRow]:
    """Attack every unit that certificates speak of, with so many canaries in one run for each unit.

    colluding: curious silos that share what they know. Raises ConfigError where the run has too few
        such units, or where they cannot be told apart.
    """
    found = []
    for subject in subjects(exp, colluding):
        allowed = (
            "a method that bounds units one by one: the canaries of a silo would share its only "
            "bound"
        )
        require(not pools(exp, subject.run), "--one-run", exp.algo.label, allowed)
        people = crowd(exp, subject.unit, subject.adjacency, wanted=canaries, colluding=colluding)
        coins = exp.streams.generator("one-run audit: coins").random(len(people.canaries)) < 0.5
        signals = _listen(exp, people, subject, coins, colluders=_colluders(exp, colluding))
        for row in subject.rows:
            heard = signals[row.observer]
            family = subject.family(row.observer)
            delta = exp.accountant.delta
            bound = guess_bound(
                heard.scores,
                coins,
                n_guesses=best_number(
                    len(coins), row.certified, delta=delta, confidence=CONFIDENCE
                ),
                delta=delta,
                confidence=CONFIDENCE,
                family=family,
            )
            found.append(
                audit_row(
                    exp, row, bound, family, estimated_epsilon(heard.projections, coins, delta)
                )
            )
    return found


@dataclass
class Heard:
    """By canary (m,): the sum of projections on its direction, and of the scores by which coins are
    guessed."""

    projections: np.ndarray
    scores: np.ndarray


def _listen(
    exp: Experiment,
    people: Crowd,
    subject: Subject,
    coins: np.ndarray,
    *,
    colluders: tuple[str, ...],
) -> dict[str, Heard]:
    """What each observer has heard of each canary after all rounds of one run."""
    revise = noised_like(subject.run)
    sampling = sampling_of(subject.events)
    seed = exp.options.seed
    with (
        Watched(people.canaries, revise, colluders) as run,
        Watched(people.canaries, silent(revise), colluders) as twin,
    ):
        lengths = _lengths(exp, people, twin) if sampling else {}
        heard = {
            row.observer: Heard(np.zeros(len(coins)), np.zeros(len(coins))) for row in subject.rows
        }
        state = run.restart(coins, seed)
        algo = run.prepared.algo
        twin.restart(np.zeros_like(coins), seed)
        for number in range(1, exp.options.rounds + 1):
            for query in run.prepared.queries(number):
                try:
                    total, seen = run.exchange(query, state)
                    quiet = twin.exchange(without_noise(query), state)[1]
                except AggregationAbortedError:
                    continue
                for name, ear in heard.items():
                    found = _projections(people, seen[name] - quiet[name], total.silos, run)
                    if name in sampling:
                        rate, noise = sampling[name]
                        ratio = (found / lengths[name] - 0.5) / noise**2
                        ear.scores += np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)
                    else:
                        found = (
                            found
                            if query.sampled is None
                            else found * query.sampled[people.canaries.users]
                        )
                        ear.scores += found
                    ear.projections += found
                state = algo.global_update(state, query, total, run.prepared.plan)
    return heard


def _projections(
    people: Crowd, rest: np.ndarray, silos: tuple[str, ...], run: Watched
) -> np.ndarray:
    """(m,): what is left of a query (k, size), one vector a silo or their sum, along each canary's
    direction; 0 for canaries in none of the silos, and nothing of messages of silos without the
    canary."""
    places = [run.prepared.silos.index(name) for name in silos]
    holds = people.holders[:, places]
    along = people.directions @ rest.T
    return np.asarray(
        (along * (holds if len(rest) == len(silos) else holds.any(axis=1, keepdims=True))).sum(
            axis=1
        )
    )


def _lengths(exp: Experiment, people: Crowd, twin: Watched) -> dict[str, float]:
    """By observer, how far a canary's presence moves what it sees: the median of a round without
    noise, of coins that have nothing to do with those of the audit."""
    coins = exp.streams.generator("one-run audit: lengths").random(len(people.canaries)) < 0.5

    def first(present: np.ndarray) -> tuple[tuple[str, ...], Seen]:
        state = twin.restart(present, exp.options.seed)
        total, seen = twin.exchange(unsampled(without_noise(twin.prepared.queries(1)[0])), state)
        return total.silos, seen

    (silos, there), (_, absent) = first(coins), first(np.zeros_like(coins))
    moved = {
        name: _projections(people, there[name] - absent[name], silos, twin)[coins] for name in there
    }
    return {name: float(np.median(along)) for name, along in moved.items()}


def _colluders(exp: Experiment, colluding: int) -> tuple[str, ...]:
    silos = exp.allocator.n_silos
    return tuple(f"silo{silo}" for silo in range(silos - min(colluding, silos), silos))
