"""Your own method: user-level private federated averaging with a decaying server step.

Every user trains alone by the recipe. The framework clips each user's change to `clip`, adds the
noise and states the certificate. You decide what is asked for, and what is done with the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require
from fedpriv.rounds.contributors import Users
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State
from fedpriv.training.description import Recipe


@dataclass(frozen=True)
class OwnMethod(Algorithm):
    """Unit: user, adjacency: add/remove.

    clip: bound on one user's change.
    noise_multiplier: deviation of the noise on the sum, relative to clip.
    local_epochs: passes over a user's records in a round.
    batch_size: records of a local step.
    local_lr: size of a local step.
    global_lr: size of the first step along the mean change.
    decay: factor of the step from one round to the next.
    """

    clip: float
    noise_multiplier: float
    local_epochs: int
    batch_size: int
    local_lr: float
    global_lr: float
    decay: float = 0.98

    def __post_init__(self) -> None:
        require(0 < self.decay <= 1, "algo.decay", self.decay, "above 0, at most 1")

    label = "Own method"
    contributors = Users()  # each user has a vector in each silo, of weight 1 / silos

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(params, {"step": np.array([self.global_lr])})

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        recipe = Recipe(self.local_epochs, self.batch_size, self.local_lr)
        return (Request(SumNoise(), recipe=recipe),)  # all silos share the noise of the sum

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        federation = plan.federation
        mean = total.vector * federation.n_silos / (federation.n_users * len(total.silos))
        step = state.slots["step"]
        return state.with_params(state.params + step * mean, step=step * self.decay)
