"""DP-FedAvg (McMahan et al., ICLR 2018): sampled users, clipped changes, noise on the sum."""

from dataclasses import dataclass

from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request
from fedpriv.rounds.contributors import Users
from fedpriv.training.description import Recipe, Training


@dataclass(frozen=True)
class MyDpFedAvg(Algorithm):
    clip: float = 0.3
    noise_multiplier: float = 2.0
    rate: float = 0.5
    local_lr: float = 0.1

    label = "my DP-FedAvg"

    @property
    def contributors(self):
        return Users(rate=self.rate)

    def requests(self, round, plan):
        return (Request(SumNoise()),)

    def local_update(self, silo, query, down):
        return silo.train(query, Training(Recipe(2, 32, self.local_lr), down["params"]))

    def global_update(self, state, query, total, plan):
        expected = self.rate * plan.federation.n_users
        return state.with_params(state.params + total.vector / expected)
