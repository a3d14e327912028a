"""The audit in one run: coins decide which of many canaries are there, and what observers see tells the coins.

Parties, messages, bounds, noise shares and sums are those of the run (`fedpriv.audit.watch`). What an observer sees,
less what it would see without canaries and without noise, is projected on each canary's direction; scores of all rounds
add up. As in every audit the observer knows everything but the coins, the noise, and the sample where it is hidden from
it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.audit.audit import CONFIDENCE, AuditRow, Subject, audit_row, noised_like, subjects
from fedpriv.audit.crowd import Crowd, crowd
from fedpriv.audit.families import sampling_of
from fedpriv.audit.guessing import best_number, guess_bound
from fedpriv.audit.one_shot import estimated_epsilon
from fedpriv.audit.watch import Revise, Seen, Watched, silent, watched, without_noise
from fedpriv.config import Experiment
from fedpriv.errors import AggregationAbortedError, require
from fedpriv.query import Query
from fedpriv.weighting import OwnWeighting

QUICK_CANARIES, THOROUGH_CANARIES = 400, 2000


def audit_in_one_run(exp: Experiment, canaries: int, *, colluding: int = 1) -> list[AuditRow]:
    """Attack every unit that certificates speak of, with so many canaries in one run for each unit. colluding: curious
    silos that share what they know. Raises ConfigError where the run has too few such units, or where they cannot be
    told apart."""
    found = []
    for subject in subjects(exp, colluding):
        for query in exp.algo.queries(1, subject.run):
            pooled = query.enforced and exp.algo.unit_weighting == OwnWeighting()
            allowed = "a method that bounds units one by one: the canaries of a silo would share its only bound"
            require(not pooled, "--one-run", exp.algo.label, allowed)
        people = crowd(exp, subject.unit, subject.adjacency, wanted=canaries, colluding=colluding)
        coins = exp.streams.generator("one-run audit: coins").random(len(people.directions)) < 0.5
        signals = _listen(people, subject, coins, colluding)
        for row in subject.rows:
            heard, family, delta = signals[row.observer], subject.families[row.observer], exp.accountant.delta
            bound = guess_bound(
                heard.scores,
                coins,
                n_guesses=best_number(len(coins), row.certified, delta=delta, confidence=CONFIDENCE),
                delta=delta,
                confidence=CONFIDENCE,
                family=family,
            )
            found.append(audit_row(exp, row, bound, family, estimated_epsilon(heard.projections, coins, delta)))
    return found


@dataclass
class Heard:
    """By canary (m,): the sum of projections on its direction, and of the scores by which coins are guessed."""

    projections: np.ndarray
    scores: np.ndarray


def _listen(people: Crowd, subject: Subject, coins: np.ndarray, colluding: int) -> dict[str, Heard]:
    """What each observer has heard of each canary after all rounds of one run."""
    exp, revise, sampling = people.exp, noised_like(subject.run), sampling_of(subject.events)
    lengths = _lengths(people, revise) if sampling else {}
    with ExitStack() as stack:
        run, twin = (
            stack.enter_context(watched(people.world(who), noise, exp.options.seed, _colluders(exp, colluding)))
            for who, noise in ((coins, revise), (None, silent(revise)))
        )
        heard = {row.observer: Heard(np.zeros(len(coins)), np.zeros(len(coins))) for row in subject.rows}
        state, algo = run.simulation.state, run.simulation.algo
        for number in range(1, exp.options.rounds + 1):
            for query in run.simulation.queries(number):
                try:
                    total, seen = run.exchange(query, state)
                    quiet = twin.exchange(_quiet(query), state)[1]
                except AggregationAbortedError:
                    continue
                for name, ear in heard.items():
                    found = _projections(people, seen[name] - quiet[name], total.silos, run)
                    if name in sampling:
                        rate, noise = sampling[name]
                        ratio = (found / lengths[name] - 0.5) / noise**2
                        ear.scores += np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)
                    else:
                        found = found if query.sampled is None else found * query.sampled[people.users]
                        ear.scores += found
                    ear.projections += found
                state = algo.global_update(state, query, total, run.simulation.deployment)
    return heard


def _projections(people: Crowd, rest: np.ndarray, silos: tuple[str, ...], run: Watched) -> np.ndarray:
    """(m,): what is left of a query (k, size), one vector a silo or their sum, along each canary's direction; 0 for
    canaries in none of the silos, and nothing of messages of silos without the canary."""
    places = [run.simulation.silos.index(name) for name in silos]
    holds = people.holders[:, places]
    along = people.directions @ rest.T
    return np.asarray((along * (holds if len(rest) == len(silos) else holds.any(axis=1, keepdims=True))).sum(axis=1))


def _lengths(people: Crowd, revise: Revise) -> dict[str, float]:
    """By observer, how far a canary's presence moves what it sees: the median of a round without noise, of coins that
    have nothing to do with those of the audit."""
    exp = people.exp
    coins = exp.streams.generator("one-run audit: lengths").random(len(people.directions)) < 0.5

    def first(who: np.ndarray | None) -> tuple[Watched, tuple[str, ...], Seen]:
        with watched(people.world(who), silent(revise), exp.options.seed, ()) as run:
            total, seen = run.exchange(without_noise(run.simulation.queries(1)[0]), run.simulation.state)
        return run, total.silos, seen

    (run, silos, there), (_, _, absent) = first(coins), first(None)
    moved = {name: _projections(people, there[name] - absent[name], silos, run)[coins] for name in there}
    return {name: float(np.median(along)) for name, along in moved.items()}


def _quiet(query: Query) -> Query:
    """The query with its noise taken away, and the same users sampled."""
    return replace(query, mechanism=query.mechanism.with_noise(0.0))


def _colluders(exp: Experiment, colluding: int) -> tuple[str, ...]:
    silos = exp.allocator.n_silos
    return tuple(f"silo{silo}" for silo in range(silos - min(colluding, silos), silos))
