"""ULDP-NAIVE: federated averaging with clipped silo updates and much noise.

Kato et al., Uldp-FL (PVLDB 2024), Algorithm 1. Symbols: C -> clip, sigma -> noise_multiplier, S -> Federation.n_silos,
eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B -> batch_size.

The paper takes C * S for the change that one user can cause in the sum. A silo's update is one vector made of
everybody's records, so without a user it can be any other vector of the C-ball: up to 2C away, in every silo. The
sensitivity is 2 * C * S, and what is certified always uses it. `sensitivity` chooses what the noise is made for.

Privacy: unit user, adjacency add/remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.aggregation.base import Aggregation
from fedpriv.algorithms.base import Federation, Local, Plan
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.streams import Streams

if TYPE_CHECKING:
    from fedpriv.aggregation.fixed_point import Grid

PER_SILO = {"paper": 1.0, "sound": 2.0}
"""Change of one silo's clipped update that the noise is made for, in units of C."""


@dataclass(frozen=True)
class UldpNaive(FedAvg):
    """Each silo clips its whole update to C; noise on the sum: sigma * C * S (paper) or sigma * 2 * C * S (sound)."""

    clip: float
    noise_multiplier: float
    sensitivity: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sensitivity in PER_SILO, "algo.sensitivity", self.sensitivity, " or ".join(PER_SILO))

    @property
    def label(self) -> str:
        return "ULDP-NAIVE"

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:
        mechanism.check_grid(*self.agree(federation, mechanism, aggregation))

    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        covered, code = self.agree(federation, mechanism, aggregation)
        events = self.events(federation, mechanism, covered, code)
        return Plan(round, tuple(range(federation.n_silos)), None, events, covered, code, streams)

    def message_bound(self, federation: Federation, mechanism: Mechanism, covered: int) -> float:
        return mechanism.clip + mechanism.noise_bound(covered, PER_SILO[self.sensitivity] * covered)

    def noise(self, local: Local, plan: Plan, size: int) -> np.ndarray:
        rng = local.streams.secret("noise", plan.round, local.name)
        sensitivity = PER_SILO[self.sensitivity] * plan.covered
        return local.mechanism.noise_share(size, plan.covered, rng, sensitivity, plan.code)

    def events(
        self, federation: Federation, mechanism: Mechanism, covered: int, code: Grid | None
    ) -> tuple[Event, ...]:
        """What one round shows to whom, when the sum covers `covered` silos. The silos' single messages together tell
        as much as their sum: each may move by 2C under 1/S of the variance."""
        moved = PER_SILO["sound"] * covered + mechanism.rounding(code, federation.n_parameters)
        shortfall = moved / (PER_SILO[self.sensitivity] * covered)
        whole = mechanism.event(sensitivity=shortfall)
        others = (covered - 1) / covered
        own = mechanism.event(sensitivity=shortfall, shares=others)
        claimed = mechanism.event() if mechanism.clips else None
        base = (
            *mechanism.assumptions(code),
            "a user can move every silo's update by 2 * clip",
            "all noise shares are present",
            "semi-honest parties",
        )
        subtracts = "one silo subtracts its own noise share and does not collude"
        return (
            Event("released model", "user", ADD_REMOVE, whole, claimed, assumptions=base),
            Event("server", "user", ADD_REMOVE, whole, claimed, assumptions=base),
            Event("silo", "user", ADD_REMOVE, own, claimed, assumptions=(*base, subtracts)),
        )
