"""Base of methods that noise clipped gradients of single records, calibrated for a target epsilon.

Protected are records, and users of at most k training records. k is fixed independently of the
data, and further records of a user do not train. The certificate of a user is that of a group of k
records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from fedpriv.accountants.events import REPLACE
from fedpriv.algorithms.base import (
    CALIBRATIONS,
    Algorithm,
    require_counts,
    require_one_of,
)
from fedpriv.certificates.request import ObservedRelease, Target
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import DataSet
from fedpriv.data.flags import select
from fedpriv.errors import require, require_positive
from fedpriv.rounds.contributors import Silos
from fedpriv.rounds.plan import Federation, Plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent
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
        require_counts(self, "records_per_user")
        require_one_of(self, calibration=CALIBRATIONS)
        require_positive("algo", self, "epsilon")
        require(0 < self.delta < 1, "algo.delta", self.delta, "a number between 0 and 1")

    idle_with_target: ClassVar[tuple[str, ...]] = ("noise_multiplier", "epsilon")

    def for_target(self, epsilon: float) -> Self:
        allowed = "certified, because accountant.target chooses the noise"
        require(self.calibration == "certified", "algo.calibration", self.calibration, allowed)
        return replace(self, epsilon=epsilon)

    contributors = Silos()

    isolated: ClassVar[bool] = True
    """Whether what a record drops is independent of other records."""

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
        plan.optimizer.require_plain()
        # The loss of a single record is not defined, so it has no gradient to clip.
        allowed = "another for this data set, whose loss compares records"
        single = plan.federation.records_per_draw == 1
        require(single, "algo", type(self).__name__.lower(), allowed)

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        from fedpriv.training.network_checks import check_record_gradients

        check_record_gradients(network, data.shape, text=data.text, isolated=self.isolated)

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        if not view.mechanism.clips:
            return None
        from dp_accounting import NonPrivateDpEvent

        noise = view.mechanism.noise_multiplier
        found = self.claimed(view, noise or 1.0)
        return found if noise or found is None else NonPrivateDpEvent()

    @abstractmethod
    def claimed(self, view: ObservedRelease, noise_multiplier: float) -> DpEvent | None:
        """The event that the paper claims for noise above 0; None: no claim."""

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        """The allocation in which each user trains on at most k records, over all silos."""
        k = self.records_per_user
        return allocation if k is None else select(allocation, k)


@dataclass(frozen=True, kw_only=True)
class BatchMethod(RecordMethod, ABC):
    """A method in which some of the silos use batches.

    batch_size: records of a batch; None: the method's own choice.
    cohort: number of silos in a round; None: all.

    everywhere: whether every silo needs a record to train on.
    """

    batch_size: int | None
    cohort: int | None
    everywhere: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(self, "batch_size", "cohort")

    def check(self, plan: Plan) -> None:
        silos = plan.federation.n_silos
        fits = self.cohort is None or self.cohort <= silos
        require(fits, "algo.cohort", self.cohort, f"at most {silos}, the number of silos")
        super().check(plan)

    def n_invited(self, federation: Federation) -> int:
        return self.cohort or federation.n_silos

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        allocation = super().training_records(allocation, data)
        sizes = allocation.silo_sizes()
        smallest = int(sizes.min())
        allowed = "fewer, or more records: a silo has none to train on"
        require(smallest > 0 or not self.everywhere, "allocator.n_silos", len(sizes), allowed)
        fits = self.batch_size is None or self.batch_size <= smallest
        allowed = f"at most {smallest}, the records of the smallest silo"
        require(fits, "algo.batch_size", self.batch_size, allowed)
        return allocation
