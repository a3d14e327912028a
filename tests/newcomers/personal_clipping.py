"""Personal clipping: a part of the users has a bound, and so an epsilon, of its own."""

from dataclasses import dataclass

from newcomers.dp_fedavg import MyDpFedAvg

from fedpriv.rounds.contributors import Users
from fedpriv.rounds.user_groups import UserGroup


@dataclass(frozen=True)
class MyPersonalClipping(MyDpFedAvg):
    careful: float = 0.5  # share of the users who have a quarter of the bound

    label = "my personal clipping"

    @property
    def contributors(self):
        groups = (
            UserGroup("careful", 0.25, share=self.careful),
            UserGroup("others", 1.0, share=1 - self.careful),
        )
        return Users(rate=self.rate, groups=groups)

    def global_update(self, state, query, total, plan):
        expected = self.rate * self.contributors.whole(plan.federation, query.round)
        return state.with_params(state.params + total.vector / expected)
