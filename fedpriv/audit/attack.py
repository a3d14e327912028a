"""Scores that tell whether a canary was in a run, from what each observer saw of it.

What an observer sees less what would be seen without canaries and without noise, projected on a
canary's direction, is a Gaussian whose mean is 0 or the canary's length; that is the likelihood
ratio's statistic. Under sub-sampling that the observer does not see, the ratio is that of the
mixture. Scores of several rounds and queries add up.

Each canary of a run is a trial: it enters by a coin of its own, shows in coordinates of its own,
and its noise there is independent of that elsewhere, as the certificates of Gaussian noise say. So
for each of them, whatever the others' coins, presence and absence are neighbours; and the runs have
independent noise, samples and keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.audit.canary import Canaries
from fedpriv.audit.watch import Revise, Seen, Watched, silent, unsampled, without_noise
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.query import Query

if TYPE_CHECKING:
    from fedpriv.rounds.state import State

Place = tuple[int, int]
"""A query's round and its place in it."""


@dataclass(frozen=True)
class Look:
    """What is known of one query beforehand, by observer.

    directions: (k, silos, d), what each canary adds.
    quiet: (silos, d), what is seen without canaries; both without noise, from the initial
        parameters.
    """

    directions: Seen
    quiet: Seen


@dataclass
class Attack:
    """Canaries, what an attacker knows of them beforehand, and the runs that they enter.

    twin: runs without noise and canaries beside those of `run`, from the same parameters; None
        where what is seen does not depend on them.
    sampling: by observer, (q, s): canaries enter with probability q, unseen, under noise of s times
        their length.
    resumes: whether each run is killed in its last round and goes on from the last checkpoint, so
        that observers see that round twice. They take the mean of both, which adds nothing where
        both are the same bits.
    """

    canaries: Canaries
    rounds: int
    run: Watched
    twin: Watched | None
    looks: dict[Place, Look]
    sampling: dict[str, tuple[float, float]]
    resumes: bool = False

    @property
    def length(self) -> float:
        """The least of the canaries' lengths in the first round, for whoever sees most of them."""
        return _farthest(self.looks[min(self.looks)])

    def close(self) -> None:
        """End the runs."""
        for watched in (self.run, self.twin):
            if watched is not None:
                watched.session.close()

    def scores(self, trial: int) -> tuple[np.ndarray, Seen]:
        """Which canaries were present, (k,) bool, and by observer each one's score (k,) after all
        rounds of a run."""
        present = np.random.default_rng(trial).random(len(self.canaries)) < 0.5
        state = self.run.restart(present, trial)
        if self.twin:
            self.twin.restart(np.zeros_like(present), trial)
        scores = {name: np.zeros(len(present)) for name in self._observers}
        for number in range(1, self.rounds + 1):
            checkpoint = self.run.prepared.arrays(state)
            after, seen = self._round(number, state)
            if self.resumes and number == self.rounds:
                again = self._round(number, self.run.resume(checkpoint))[1]
                seen = {
                    place: _mean(seen[place], again[place]) for place in seen.keys() & again.keys()
                }
            for query, rest in seen.values():
                for name in scores:
                    scores[name] += self._ratios(name, rest[name], query)
            state = after
        return present, scores

    @property
    def _observers(self) -> list[str]:
        return list(self.looks[min(self.looks)].directions)

    def _round(self, number: int, state: State) -> tuple[State, dict[Place, tuple[Query, Seen]]]:
        """The state after a round, and what is seen of each of its queries beyond what the quiet
        run shows."""
        prepared = self.run.prepared
        seen = {}
        for query in prepared.queries(number):
            try:
                total, shown = self.run.exchange(query, state)
                quiet = self.looks[query.serial].quiet
                if self.twin:
                    quiet = self.twin.exchange(without_noise(query), state)[1]
            except AggregationAbortedError:
                continue
            seen[query.serial] = query, {name: shown[name] - quiet[name] for name in shown}
            state = prepared.algo.global_update(state, query, total, prepared.plan)
        return state, seen

    def _ratios(self, name: str, rest: np.ndarray, query: Query) -> np.ndarray:
        directions = self.looks[query.serial].directions[name]
        squares = (directions**2).sum(axis=(1, 2))
        x = (directions * rest).sum(axis=(1, 2)) / np.where(squares, squares, 1.0)
        if name in self.sampling:
            rate, noise = self.sampling[name]
            ratios: np.ndarray = np.logaddexp(np.log1p(-rate), np.log(rate) + (x - 0.5) / noise**2)
            return ratios
        return x if query.sampled is None else np.where(query.sampled[self.canaries.users], x, 0.0)


def _draws_silos(watched: Watched) -> bool:
    """Whether sums cover a part of the invited silos, drawn in the exchange."""
    return any(query.n_summed < len(query.invited) for query in watched.prepared.queries(1))


def _mean(one: tuple[Query, Seen], other: tuple[Query, Seen]) -> tuple[Query, Seen]:
    return one[0], {name: (one[1][name] + other[1][name]) / 2 for name in one[1]}


def _farthest(look: Look) -> float:
    """The least of the canaries' lengths, for whoever sees most of them."""
    return max(float(np.sqrt((of**2).sum(axis=(1, 2)).min())) for of in look.directions.values())


ATTEMPTS = 5
"""Noiseless runs that look for the canary where a part of the silos is drawn."""


def prepared_attack(
    canaries: Canaries,
    revise: Revise,
    colluding: int,
    *,
    rounds: int,
    sampling: dict[str, tuple[float, float]],
) -> Attack:
    """Look at every round without noise, to learn what the canaries change for whom."""
    names = tuple(
        f"silo{silo}" for silo in range(canaries.allocation.n_silos) if silo != canaries.silo
    )
    colluders = names[len(names) - min(colluding, len(names)) :]

    quiet = Watched(canaries, silent(revise), colluders)
    # What others train on would differ from round to round; where there are none, one round shows
    # them all.
    looked = 1 if canaries.alone and canaries.like.algo.rounds_alike else rounds
    everybody = np.ones(len(canaries), dtype=bool)
    nobody = np.zeros(len(canaries), dtype=bool)
    without = _seen(quiet, nobody, looked, 0.0)
    # A single round has but one state to start from.
    moved = _seen(quiet, nobody, min(2, looked), 1.0) if rounds > 1 else {}
    copies = (
        quiet.prepared.queries(1)[0].size // canaries.x.shape[1]
    )  # SCAFFOLD sends its control variate too
    mask = np.tile(canaries.mask(), copies)[:, None, :]
    looks: dict[Place, Look] = {}
    for _ in range(ATTEMPTS if _draws_silos(quiet) else 1):
        for place, seen in _seen(quiet, everybody, looked, 0.0).items():
            look = Look(
                {name: (seen[name] - without[place][name]) * mask for name in seen}, without[place]
            )
            looks[place] = max(looks.get(place, look), look, key=_farthest)
    looks |= {
        (number, of): looks[looked, of]
        for number in range(looked + 1, rounds + 1)
        for _, of in looks
    }
    adapts = any(
        not np.allclose(seen[name], without[place][name], rtol=1e-6, atol=1e-9)
        for place, seen in moved.items()
        for name in seen
    )
    twin = quiet if adapts else None
    if twin is None:
        quiet.session.close()
    return Attack(canaries, rounds, Watched(canaries, revise, colluders), twin, looks, sampling)


def _seen(watched: Watched, present: np.ndarray, rounds: int, shift: float) -> dict[Place, Seen]:
    """What is seen of each query from initial parameters that are moved by `shift`."""
    state = watched.restart(present, 0)
    state = state.with_params(state.params + shift)
    return {
        query.serial: watched.exchange(unsampled(without_noise(query)), state)[1]
        for number in range(1, rounds + 1)
        for query in watched.prepared.queries(number)
    }
