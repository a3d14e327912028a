"""Runs with canaries: observed runs whose records change from trial to trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedpriv.audit.canary import Canaries
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.state import State
from fedpriv.testing.experiments import with_mechanisms
from fedpriv.testing.observation import Observations, ObservedRun, PlanChange, without_noise


class CanaryRun(ObservedRun):
    """A run of an experiment with canaries, which starts with all parameters zero."""

    def __init__(self, canaries: Canaries, change: PlanChange, colluders: tuple[str, ...]) -> None:
        super().__init__(canaries.experiment, change, colluders)
        self.canaries = canaries
        self.state = self.state.with_params(np.zeros_like(self.state.params))

    def enter(self, present: np.ndarray, trial: int) -> State:
        """Start a fresh run in which the canaries `present` (k,) bool are present."""
        return self.restart(trial, self.canaries.records(present))


def with_noise_of(run: Plan) -> PlanChange:
    """Give a canary experiment the mechanisms of the audited run.

    Noise that is calibrated to the model must be that of the run, not of the canary's model.
    """
    return lambda plan: with_mechanisms(plan, lambda name, _: run.query_parameters[name].mechanism)


def without_randomness(query: Query) -> Query:
    """The query without noise, with all users in the sample."""
    return replace(without_noise(query), sampled=None, user_rate=1.0)


def noiseless(
    run: CanaryRun,
    present: np.ndarray,
    rounds: int,
    change: Callable[[Query], Query],
    *,
    shift: float = 0.0,
    trial: int = 0,
) -> dict[tuple[int, int], Observations]:
    """Observations of each query of a run without noise; every round begins with the first state.

    change: of each query before it is asked.
    shift: by which all initial parameters are moved.
    """
    state = run.enter(present, trial)
    state = state.with_params(state.params + shift)
    return {
        query.serial: run.exchange(change(query), state)[1]
        for number in range(1, rounds + 1)
        for query in run.prepared.queries(number)
    }
