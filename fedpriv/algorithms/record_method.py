"""Base of methods that noise clipped gradients of single records, calibrated for a target epsilon.

Protected are records, and users of at most k training records. k is fixed independently of the
data, and further records of a user do not train. The certificate of a user is that of a group of k
records.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from fedpriv.accountants.events import REPLACE
from fedpriv.algorithms.base import Algorithm, require_plain_sgd, require_target
from fedpriv.certificates.request import Target
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.data.flags import select
from fedpriv.errors import require
from fedpriv.rounds.contributors import Contributors, Silos
from fedpriv.rounds.plan import Federation, Plan

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class RecordMethod(Algorithm, ABC):
    """A method whose silos send noised vectors made of clipped gradients.

    clip: bound on one record's gradient.
    noise_multiplier: noise relative to clip, for calibration=given.
    calibration: given: use `noise_multiplier`; paper: the noise for which the paper's formula gives
        `epsilon` at `delta` after `rounds` rounds; certified: the noise for which the certificate
        does.
    epsilon: target of calibration=paper and calibration=certified.
    rounds: number of rounds.
    delta: delta of the target.
    records_per_user: k, largest number of training records of a user, over all silos; further
        records do not train. The certified noise is then for a user's `epsilon`: k records move a
        release k times as far as one. None: no certificate for users, as in the papers.
    """

    clip: float
    noise_multiplier: float
    calibration: str
    epsilon: float
    rounds: int
    delta: float
    records_per_user: int | None = None

    def __post_init__(self) -> None:
        k = self.records_per_user
        allowed = "a positive integer, or null for no user's guarantee"
        require(k is None or k >= 1, "algo.records_per_user", k, allowed)
        require_target(self.calibration, self.epsilon, self.delta)

    idle_with_target: ClassVar[tuple[str, ...]] = ("noise_multiplier", "epsilon")

    def for_target(self, epsilon: float) -> Self:
        allowed = "certified, because accountant.target chooses the noise"
        require(self.calibration == "certified", "algo.calibration", self.calibration, allowed)
        return replace(self, epsilon=epsilon)

    @property
    def solves_epsilon(self) -> bool:
        return self.calibration == "certified"

    @property
    def contributors(self) -> Contributors:
        return Silos()

    @property
    def queries_need_allocation(self) -> bool:
        return True

    @property
    def isolated(self) -> bool:
        """Whether what a record drops is independent of other records."""
        return True

    @property
    def adjacency(self) -> str:
        """How neighbouring data sets differ."""
        return REPLACE

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        """A record and, unless k is None, a user of at most k records."""
        k = self.records_per_user
        if k is None:
            return (Target("record", self.adjacency),)
        replaced = self.adjacency == REPLACE
        how = "are replaced by as many" if replaced else "are all removed, or added"
        rests_on = (
            f"at most {k} records of a user train, over all silos",
            f"a user's records {how}",
        )
        unchanged = ("a replaced record keeps its owner and its silo",) if replaced else ()
        record = Target("record", self.adjacency, assumptions=unchanged)
        return record, Target("user", self.adjacency, k, rests_on)

    def check(self, plan: Plan) -> None:
        allowed = "given, because this mechanism adds no noise"
        for parameters in plan.query_parameters.values():
            noisy = self.calibration == "given" or parameters.mechanism.clips
            require(noisy, "algo.calibration", self.calibration, allowed)
        require_plain_sgd(plan)
        # The loss of a single record is not defined, so it has no gradient to clip.
        allowed = "another for this data set, whose loss compares records"
        single = plan.federation.records_per_draw == 1
        require(single, "algo", type(self).__name__.lower(), allowed)

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        from fedpriv.training.network_uses import check_record_gradients

        check_record_gradients(network, data.shape, text=data.text, isolated=self.isolated)

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        """The allocation in which each user trains on at most k records, over all silos."""
        k = self.records_per_user
        return allocation if k is None else select(allocation, k)
