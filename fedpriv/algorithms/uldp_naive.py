"""ULDP-NAIVE: federated averaging with clipped silo updates and much noise.

Kato et al., Uldp-FL (PVLDB 2024), Algorithm 1. Symbols: C -> clip, sigma -> noise_multiplier, S ->
Federation.n_silos, eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B -> batch_size.

The paper takes C * S as the sensitivity of the sum to one user. A silo's update is one vector,
computed from the records of all of its users. Without one user it can be any other vector of the
C-ball, up to 2C away, in every silo. The sensitivity is therefore 2 * C * S, and the certificate
always uses it. `calibration` chooses the sensitivity that the noise is sized for.

Privacy: unit user, adjacency add/remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.algorithms.base import require_one_of
from fedpriv.algorithms.fedavg import WholeSilo
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import ObservedRelease, Request
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Federation, Plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent

PER_SILO = {"paper": 1.0, "certified": 2.0}
"""Change of one silo's clipped update that the noise is sized for, in units of C."""


@dataclass(frozen=True)
class UldpNaive(WholeSilo):
    """Each silo clips its whole update.

    clip: C, bound on one silo's update.
    noise_multiplier: sigma, noise on the sum relative to the sensitivity of `calibration`.
    calibration: certified (sensitivity 2 * C * S) or paper (C * S).
    """

    clip: float
    noise_multiplier: float
    calibration: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, calibration=PER_SILO)

    label = "ULDP-NAIVE"

    def check(self, plan: Plan) -> None:
        plan.mechanism.check_encoding(plan.n_summed, plan.encoding)

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        return mechanism.clip + mechanism.noise_bound(
            n_summed, PER_SILO[self.calibration] * n_summed
        )

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        per_silo = PER_SILO[self.calibration]
        return (Request(SumNoise(lambda n_summed: per_silo * n_summed)),)

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        return view.mechanism.event() if view.mechanism.clips else None
