"""Scores that say whether a canary was in a run, from what each observer saw.

Subtract from an observation what a run without canaries and noise shows, and project the rest on a
canary's direction. The result is Gaussian with mean 0 or the canary's length, and it is the
statistic of the likelihood ratio. Where users are sampled and the observer does not see the sample,
the ratio is that of the mixture; under Laplace noise, it is a sum over coordinates. Scores of
several rounds and queries are summed. Single rounds have scores of their own, which tell more where
one round lacks noise.

Each canary of a run is one trial. It enters by its own coin and contributes to its own coordinates,
where the noise is independent of the noise elsewhere, as certificates of Gaussian noise say. For
each canary, presence and absence are thus neighbours, whatever the other coins are. Runs have
independent noise, samples and keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.audit.canary import Canaries
from fedpriv.audit.canary_run import CanaryRun, noiseless, without_randomness
from fedpriv.testing.event_parameters import inclusion
from fedpriv.testing.observation import (
    Difference,
    Observations,
    PlanChange,
    observed_round,
    without_plan_noise,
)

Serial = tuple[int, int]
"""A query's round and its index in the round."""

ALL_ROUNDS = "all rounds"
"""The metric of a certificate that holds: the sum of the scores of all rounds."""
NOISELESS_RUNS = 20
"""Most noiseless runs that search for the canary where a sum covers a random part of the silos or
of the records."""


@dataclass(frozen=True)
class Reference:
    """What the attacker knows of one query beforehand, by observer, without noise.

    directions: (k, silos, d), the contribution of each canary.
    quiet: (silos, d), the observation without canaries.
    """

    directions: Observations
    quiet: Observations

    @property
    def length(self) -> float:
        """The shortest canary's length, for the observer who sees most of it."""
        return float(self.lengths.min())

    @property
    def lengths(self) -> np.ndarray:
        """(k,): the canaries' lengths, for the observer who sees most of them."""
        squares = [(vectors**2).sum(axis=(1, 2)) for vectors in self.directions.values()]
        return np.asarray(np.sqrt(np.max(squares, axis=0)))

    def or_longer(self, other: Reference) -> Reference:
        """This reference, with those canaries from `other` that are longer there."""
        longer = (other.lengths > self.lengths)[:, None, None]
        directions = {
            name: np.where(longer, other.directions[name], own)
            for name, own in self.directions.items()
        }
        return Reference(directions, self.quiet)


@dataclass
class Attack:
    """Canaries, what the attacker knows of them beforehand, and the runs that they enter.

    canaries: the experiment with its canaries.
    rounds: rounds of each run.
    run: the attacked run.
    quiet_run: run without canaries and noise, from the same parameters; None if observations do not
        depend on the parameters.
    references: what is known of each query beforehand.
    sampling: by observer who does not see the sample, the sampling rate q and the noise s in units
        of a canary's length.
    """

    canaries: Canaries
    rounds: int
    run: CanaryRun
    quiet_run: CanaryRun | None
    references: dict[Serial, Reference]
    sampling: dict[str, tuple[float, float]]

    @property
    def length(self) -> float:
        """The shortest canary's length in the first round, for the observer who sees most of it."""
        return self.references[min(self.references)].length

    @property
    def single_rounds(self) -> tuple[int, ...]:
        """The rounds that have a score of their own: the first two, one in the middle, the last."""
        last = self.rounds
        return tuple(sorted({1, min(2, last), (last + 1) // 2, last})) if last > 1 else ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """What each score of a canary adds up."""
        return (ALL_ROUNDS, *(f"round {number}" for number in self.single_rounds))

    def close(self) -> None:
        """End the runs."""
        for run in (self.run, self.quiet_run):
            if run is not None:
                run.session.close()

    def scores(self, trial: int) -> tuple[np.ndarray, Observations]:
        """Run all rounds once.

        Returns which canaries were present, (k,) bool, and by observer each canary's scores
        (k, m), one for each of `metrics`.
        """
        present = np.random.default_rng(trial).random(len(self.canaries)) < 0.5
        state = self.run.enter(present, trial)
        if self.quiet_run:
            self.quiet_run.enter(np.zeros_like(present), trial)
        observers = self.references[min(self.references)].directions
        shape = len(present), len(self.metrics)
        scores = {name: np.zeros(shape) for name in observers}
        known = {serial: reference.quiet for serial, reference in self.references.items()}
        for number in range(1, self.rounds + 1):
            adds = np.array([True, *(number == one for one in self.single_rounds)])
            for difference in observed_round(self.run, self.quiet_run or known, number, state):
                for name in scores:
                    scores[name] += self._ratios(name, difference)[:, None] * adds
                state = difference.state
        return present, scores

    def _ratios(self, name: str, difference: Difference) -> np.ndarray:
        directions = self.references[difference.query.serial].directions[name]
        if difference.query.mechanism.norm == 1:
            rest = difference.vectors[name]
            return np.asarray((np.abs(rest) - np.abs(rest - directions)).sum(axis=(1, 2)))
        squares = (directions**2).sum(axis=(1, 2))
        products = (directions * difference.vectors[name]).sum(axis=(1, 2))
        x = products / np.where(squares, squares, 1.0)
        sampling = self.sampling.get(name)
        ratios = difference.ratios(x, self.canaries.users, sampling)
        if sampling is not None:
            return ratios
        # A round tells as much as the square of the canary's length in it.
        others = (reference.directions[name] for reference in self.references.values())
        most = np.max([(one**2).sum(axis=(1, 2)) for one in others], axis=0)
        return np.asarray(ratios * squares / np.where(most, most, 1.0))


def prepared_attack(
    canaries: Canaries,
    change: PlanChange,
    colluding: int,
    *,
    rounds: int,
    sampling: dict[str, tuple[float, float]],
) -> Attack:
    """Prepare an attack: noiseless rounds show how the canaries change each observation."""
    silos = range(canaries.allocation.n_silos)
    names = tuple(f"silo{silo}" for silo in silos if silo != canaries.silo)
    colluders = names[len(names) - min(colluding, len(names)) :]
    quiet_run = CanaryRun(canaries, without_plan_noise(change), colluders)
    # Other units may train on different records in each round. If there are none, one round shows
    # all rounds.
    alike = canaries.original.rounds_alike
    shown = 1 if canaries.alone and alike else rounds
    nobody = np.zeros(len(canaries), dtype=bool)
    without = noiseless(quiet_run, nobody, shown, without_randomness)
    # A single round has only one state to start from.
    moved = {}
    if rounds > 1:
        moved = noiseless(quiet_run, nobody, min(2, shown), without_randomness, shift=1.0)
    adapts = any(query.mechanism.marks for query in quiet_run.prepared.queries(1)) or any(
        not np.allclose(seen[name], without[serial][name], rtol=1e-6, atol=1e-9)
        for serial, seen in moved.items()
        for name in seen
    )
    references = _references(canaries, quiet_run, without, shown)
    if alike:
        references = _longest_of_rounds(references)
    for number in range(shown + 1, rounds + 1):
        references |= {(number, index): references[shown, index] for _, index in [*references]}
    if not adapts:
        quiet_run.session.close()
    run = CanaryRun(canaries, change, colluders)
    return Attack(canaries, rounds, run, quiet_run if adapts else None, references, sampling)


def _longest_of_rounds(references: dict[Serial, Reference]) -> dict[Serial, Reference]:
    """Each query's canaries as in the round in which they are longest, for rounds that differ in
    their samples alone."""
    best: dict[int, Reference] = {}
    for (_, index), found in references.items():
        best[index] = best.get(index, found).or_longer(found)
    return {
        serial: Reference(best[serial[1]].directions, own.quiet)
        for serial, own in references.items()
    }


def _references(
    canaries: Canaries, quiet_run: CanaryRun, without: dict[Serial, Observations], rounds: int
) -> dict[Serial, Reference]:
    """What is known of each query of the rounds. without: observations without canaries."""
    queries = quiet_run.prepared.queries(1)
    marks = queries[0].mechanism.marks  # canaries share them, so they are nobody's own
    mask = np.pad(canaries.mask(queries[0].size - marks), ((0, 0), (0, marks)))[:, None, :]
    chosen = any(
        query.n_summed < len(query.invited)
        or any(inclusion(event)[0] < 1 for event in query.events)
        for query in queries
    )
    everybody = np.ones(len(canaries), dtype=bool)
    found: dict[Serial, Reference] = {}
    for trial in range(NOISELESS_RUNS if chosen else 1):
        every = noiseless(quiet_run, everybody, rounds, without_randomness, trial=trial)
        for serial, seen in every.items():
            quiet = without[serial]
            directions = {name: (seen[name] - quiet[name]) * mask for name in seen}
            new = Reference(directions, quiet)
            found[serial] = found.get(serial, new).or_longer(new)
        if all(reference.length > 0 for reference in found.values()):
            break
    return found
