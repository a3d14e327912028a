"""Methods of one query: the sum of one vector of each user, made of parts of known length.

With m parts each is multiplied by 1 / sqrt(m), or, for Laplace noise, by 1 over the sum of their
L1 norms. A mean of vectors is no longer than the longest, so that no user's vector is longer than 1
and clipping changes none. The certificate rests on the framework's bound. Everything after the sum
is post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.parts import Count, Part, Placed
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.contributors import HomeWeighting, Users
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

BLOCK = 2**22
"""Numbers of a block of records' vectors."""
ROUNDING = 1e-12
"""By how much vectors are shorter than their bound, so that rounding clips none."""


@dataclass(frozen=True, kw_only=True)
class SumsOfParts(Algorithm):
    """Private sums over users, once.

    clip: bound on a user's vector; 1.
    noise_multiplier: standard deviation of the noise on a sum; with Laplace noise its scale.
    """

    clip: float
    noise_multiplier: float

    releases_model = False

    @abstractmethod
    def parts(self) -> list[tuple[str, int, Part]]:
        """All parts in the order of their coordinates: column, its number, and what is summed."""

    def check(self, plan: Plan) -> None:
        clip, mechanism = plan.mechanism.clip, plan.mechanism
        kept = mechanism.mixing is None and not mechanism.marks
        name = type(mechanism).__name__.lower()
        allowed = "gaussian or discrete_gaussian, or laplace: intervals know its noise"
        require(kept, "mechanism", name, allowed)
        require(clip == 1, "algo.clip", clip, "1, since no user's vector is longer")
        removed = mechanism.norm == 1 and plan.parameters.n_most is not None
        require(not removed, "mechanism", name, "gaussian: parts of the noise are removed")
        allowed = "an aggregation that sums, such as plain: intervals know the noise of a sum"
        require(plan.sums, "algo", self.label.lower(), allowed)
        plan.parameters.check_noise()

    @cached_property
    def placed(self) -> tuple[Placed, ...]:
        """All parts with their coordinates."""
        found: list[Placed] = []
        for column, place, part in self.parts():
            start = found[-1].here.stop if found else 0
            found.append(Placed(column, place, part, slice(start, start + part.size)))
        return tuple(found)

    @property
    def size(self) -> int:
        """Number of coordinates of a user's vector."""
        return int(self.placed[-1].here.stop)

    def share(self, mechanism: Mechanism) -> float:
        """The factor of each part, with which no vector is longer than the mechanism's bound."""
        if mechanism.norm == 1:
            return (1 - ROUNDING) / math.fsum(one.part.longest for one in self.placed)
        return (1 - ROUNDING) / math.sqrt(len(self.placed))

    @property
    def contributors(self) -> Users:
        return Users(HomeWeighting())

    def last_round(self, federation: Federation) -> int | None:
        return 1

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(np.zeros(self.size))

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(SumNoise(), size=self.size),)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {}

    def values(self, silo: Silo, down: Mapping[str, np.ndarray], rows: slice) -> np.ndarray:
        """The values (n, columns) of the silo's records `rows`, NaN where there is none. Each row
        is made of its record alone."""
        return np.asarray(silo.data.x[rows].cpu().numpy())

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return LocalJob(self._blocks(silo, down, self.share(query.mechanism)))

    def _blocks(self, silo: Silo, down: Mapping[str, np.ndarray], share: float) -> Computation:
        """The users' vectors times `share`, in blocks of whole users."""
        import torch

        data = silo.data
        most = max(1, BLOCK // self.size)
        first = 0
        while first < len(data.users):
            last = int(np.searchsorted(data.starts, data.starts[first] + most, side="right")) - 1
            last = max(first + 1, last)
            starts = data.starts[first : last + 1]
            x = self.values(silo, down, slice(int(starts[0]), int(starts[-1])))
            vectors = self.vectors(x, starts - starts[0])
            yield Contributions(data.users[first:last], torch.from_numpy(vectors * share))
            first = last

    def vectors(self, x: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The vectors (k, size) of k users, before they are multiplied by `share`. Each is made of
        the user's rows alone, by sums in their order.

        x: (n, columns) values, NaN where there is none.
        starts: (k + 1,): user i owns rows starts[i]:starts[i + 1].
        """
        found = np.zeros((len(starts) - 1, self.size))
        for _, place, part, here in self.placed:
            counts = isinstance(part, Count)  # also a user without a value
            known = np.ones(len(x), dtype=bool) if counts else np.isfinite(x[:, place])
            rows = np.zeros((len(x), part.size))
            rows[known] = part.vectors(x[known, place])
            sums = np.add.reduceat(rows, starts[:-1], axis=0)
            number = np.add.reduceat(known.astype(np.int64), starts[:-1])
            found[:, here] = sums / np.maximum(number, 1)[:, None]
        return found

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(total.vector * self.silos(plan))

    def silos(self, plan: Plan) -> int:
        """What a sum is multiplied by, so that each pair of a user and a silo counts 1."""
        return 1

    def table(self, state: State, plan: Plan) -> list[dict[str, Any]]:
        share = self.share(plan.mechanism)
        noise = plan.mechanism.spread(plan.n_summed) * self.silos(plan) / share
        rows: list[dict[str, Any]] = []
        for column, _, part, here in self.placed:
            for found in part.estimates(state.params[here] / share, noise):
                rows.append({"column": column, **found._asdict()})
        return rows
