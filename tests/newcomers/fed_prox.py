"""FedProx (Li et al., MLSys 2020) in whole silos, without privacy."""

from dataclasses import dataclass

from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import NoNoise
from fedpriv.certificates.request import Request
from fedpriv.rounds.contributors import Silos
from fedpriv.training.description import Recipe, Training


@dataclass(frozen=True)
class MyFedProx(Algorithm):
    local_epochs: int = 2
    local_lr: float = 0.1
    mu: float = 0.1

    label = "my FedProx"
    contributors = Silos(pooled=True)

    def requests(self, round, plan):
        return (Request(NoNoise()),)

    def local_update(self, silo, query, down):
        recipe = Recipe(self.local_epochs, 32, self.local_lr, proximal=self.mu)
        return silo.train(query, Training(recipe, down["params"], pooled=True))

    def global_update(self, state, query, total, plan):
        return state.with_params(state.params + total.vector / len(total.silos))
