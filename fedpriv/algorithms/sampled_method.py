"""Base of gradient methods that draw a new batch for each query."""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fedpriv.algorithms.base import require_one_of
from fedpriv.algorithms.gradient_method import GradientMethod
from fedpriv.algorithms.gradient_queries import DIFFERENCE, GRADIENT
from fedpriv.certificates.sampling import SAMPLING, Batches, paper_batch
from fedpriv.errors import require, require_positive
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Plan


@dataclass(frozen=True)
class SampledMethod(GradientMethod, ABC):
    """Base of methods that draw a new batch for each query.

    sampling: without_replacement; poisson (adjacency is then add/remove); or with_replacement, as
        in the paper's programs, which is hardly private.
    """

    sampling: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, sampling=SAMPLING)

    @property
    def batches(self) -> Batches:
        return SAMPLING[self.sampling]()

    def size(self, name: str, records: int) -> int:
        return min(records, self.batch_size or paper_batch(records, self.rounds))


@dataclass(frozen=True)
class DifferenceMethod(SampledMethod, ABC):
    """Base of methods that release gradients and gradient differences.

    difference_noise: noise multiplier of differences relative to that of gradients, for
        calibration=given.
    gradient_share: part of the certified budget, in zCDP, that gradients spend; differences spend
        the rest.
    """

    difference_noise: float
    gradient_share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("algo", self, "difference_noise")
        share = self.gradient_share
        require(
            0 < share < 1, "algo.gradient_share", share, "a number between 0 and 1, excluding both"
        )

    rounds_alike = False

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        noise = mechanism.noise_multiplier * self.difference_noise
        return {
            GRADIENT: mechanism,
            DIFFERENCE: mechanism.with_noise(noise) if noise else mechanism,
        }

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        given = self.calibration == "given"
        names = ["difference_noise"] if not given else []
        names += ["gradient_share"] if self.calibration != "certified" else []
        reason = f"algo.calibration={self.calibration}"
        return {**super().idle_keys(plan), **dict.fromkeys(names, reason)}

    def share(self, name: str) -> float:
        return {GRADIENT: self.gradient_share, DIFFERENCE: 1 - self.gradient_share}[name]

    @cached_property
    def _asked(self) -> Counter[str]:
        """How often a run asks for each query."""
        rounds = range(1, self.rounds + 1)
        return Counter(name for round in rounds for name in self.query_names(round))

    def overcounted(self, name: str) -> float:
        # The paper claims the whole epsilon for each query name, and again for all names together.
        return self.counted(name) / (self._asked[name] * len(self._asked))
