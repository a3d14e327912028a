"""The audit in one run: coins decide which of many canaries are present, and an attacker guesses
the coins from what an observer sees.

Parties, messages, bounds, noise shares and sums are those of the run.
Subtract from an observation what a run without canaries and noise shows, and project the rest on
each canary's direction. Scores of all rounds are summed. As in every audit, the observer knows
everything but the coins, the noise, and the sample if it is hidden from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.audit.audit import CONFIDENCE, AuditRow, Evidence, Subject, audited
from fedpriv.audit.bounds import guess_bound
from fedpriv.audit.canary_run import CanaryRun, noiseless, with_noise_of, without_randomness
from fedpriv.audit.candidates import bounds_whole_silos, in_group, most_in_group
from fedpriv.audit.epsilon_estimate import estimated_epsilon
from fedpriv.audit.families import sampling_of
from fedpriv.audit.guessing import best_number
from fedpriv.audit.orthogonal_canaries import OrthogonalCanaries, orthogonal_canaries
from fedpriv.audit.progress import AuditProgress
from fedpriv.audit.trials import Effort
from fedpriv.errors import require
from fedpriv.runs.epsilon_forecast import with_solved_noise
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.observation import Observations, observed_round, without_plan_noise

QUICK_CANARIES = 400
THOROUGH_CANARIES = 4000
"""Enough to prove half of a certificate of 8."""
PREMISE_EFFORT = Effort(40.0, 500)
"""Time and noise values for the premises, which are measured in short runs of their own."""


def audit_in_one_run(
    exp: Experiment,
    canaries: int,
    *,
    colluding: int = 1,
    progress: AuditProgress | None = None,
) -> list[AuditRow]:
    """Attack every type of unit that certificates describe, in one run each.

    canaries: number of canaries in a run.
    colluding: number of curious silos that share what they know.
    progress: shows what is done; None: nothing.

    Raises ConfigError if the run has too few units, or if canaries would share a bound.
    """
    progress = progress or AuditProgress(quiet=True)
    exp = with_solved_noise(exp)
    delta = exp.accountant.delta

    def attack(subject: Subject, share: Effort) -> Evidence:
        require(
            not bounds_whole_silos(exp, subject.plan),
            "--one-run",
            exp.algo.label,
            "a method that bounds units one by one; this one bounds a silo's whole update, "
            "which its canaries would share",
        )
        wanted = int(min(canaries, most_in_group(exp, subject.group)))
        progress.stage(f"{subject.unit}: canaries")
        known = orthogonal_canaries(
            exp, subject.unit, subject.adjacency, wanted=wanted, colluding=colluding
        )
        known = in_group(known, subject.group)
        coins = exp.streams.generator("one-run audit: coins").random(len(known)) < 0.5
        progress.stage(f"{subject.unit}: one run with {len(known)} canaries")
        scores, projections = _signals(exp, known, subject, coins, colluding, progress)

        def evidence(row: EpsilonRow) -> dict[str, Any]:
            family = subject.family(row.observer)
            settings: dict[str, Any] = {"delta": delta, "confidence": CONFIDENCE, "family": family}
            number = best_number(len(coins), row.certified, **settings)
            bound = guess_bound(scores[row.observer], coins, n_guesses=number, **settings)
            estimate = estimated_epsilon(projections[row.observer], coins, delta, CONFIDENCE)
            return {
                "bound": bound,
                "family": family,
                "estimate": estimate.epsilon,
                "estimate_low": estimate.low,
                "estimate_high": estimate.high,
            }

        return evidence

    return audited(exp, attack, PREMISE_EFFORT, colluding, progress)


def _signals(
    exp: Experiment,
    known: OrthogonalCanaries,
    subject: Subject,
    coins: np.ndarray,
    colluding: int,
    progress: AuditProgress,
) -> tuple[Observations, Observations]:
    """By observer, after all rounds of one run: the scores (m,) from which coins are guessed, and
    the sums (m,) of projections on the canaries' directions."""
    change = with_noise_of(subject.plan)
    silos = exp.allocator.n_silos
    colluders = tuple(f"silo{silo}" for silo in range(silos - min(colluding, silos), silos))
    sampling = sampling_of(subject.events)
    seed = exp.options.seed
    scores = {row.observer: np.zeros(len(coins)) for row in subject.rows}
    projections = {name: np.zeros(len(coins)) for name in scores}
    with (
        CanaryRun(known, change, colluders) as run,
        CanaryRun(known, without_plan_noise(change), colluders) as quiet_run,
    ):
        lengths = _lengths(exp, known, quiet_run) if sampling else {}
        state = run.enter(coins, seed)
        quiet_run.enter(np.zeros_like(coins), seed)
        for number in range(1, exp.options.rounds + 1):
            for difference in observed_round(run, quiet_run, number, state):
                state = difference.state
                for name in scores:
                    x = _projections(known, difference.vectors[name], difference.silos, run)
                    hidden = sampling.get(name)
                    unit = x / lengths[name] if hidden else x
                    ratios = difference.ratios(unit, known.users, hidden)
                    scores[name] += ratios
                    projections[name] += x if hidden else ratios
            progress.round(number, exp.options.rounds)
    return scores, projections


def _projections(
    known: OrthogonalCanaries, rest: np.ndarray, silos: tuple[str, ...], run: CanaryRun
) -> np.ndarray:
    """(m,): projections of vectors (k, size) on the canaries' directions.

    rest: one vector for each of the silos, or their sum. A canary without records in a silo gets
        nothing from that silo's vector.
    """
    holds: np.ndarray = known.holders[:, [run.prepared.silos.index(name) for name in silos]]
    if len(rest) != len(silos):
        holds = np.asarray(holds.any(axis=1, keepdims=True))
    own = rest[:, : known.directions.shape[1]]  # without the marks of a bound that adapts
    return np.asarray((known.directions @ own.T * holds).sum(axis=1))


def _lengths(exp: Experiment, known: OrthogonalCanaries, quiet_run: CanaryRun) -> dict[str, float]:
    """By observer: the median change of an observation by a canary's presence.

    Measured in a noiseless round with coins that are independent of those of the audit.
    """
    coins = exp.streams.generator("one-run audit: lengths").random(len(known)) < 0.5
    query = quiet_run.prepared.queries(1)[0]
    present, absent = (
        noiseless(quiet_run, who, 1, without_randomness, trial=exp.options.seed)[query.serial]
        for who in (coins, np.zeros_like(coins))
    )
    silos = tuple(quiet_run.prepared.silos[place] for place in query.invited)
    moved = {
        name: _projections(known, present[name] - absent[name], silos, quiet_run)
        for name in present
    }
    return {name: float(np.median(x[coins])) for name, x in moved.items()}
