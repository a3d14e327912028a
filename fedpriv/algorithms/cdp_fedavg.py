"""CDP-FedAvg: some devices a round take noisy local steps, and their models are averaged under secure aggregation.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning, Algorithm 1, and the
DP-SGD that it is compared with. Symbols: n -> Federation.n_silos, r -> cohort, m -> Federation.silo_records,
tau -> local_steps, gamma -> batch_size, eta -> local_lr, G -> clip, sigma -> clip * noise_multiplier (the standard
deviation of the noise on a batch's mean gradient), T -> rounds, C_i -> the rounds that device i takes part in.

Privacy: unit record, adjacency replace (the number of records and the batches' sizes are public); a record lives on one
device, so every device is a scope, charged for the rounds that it takes part in. What is certified of a round is the
better of two bounds, both of Gaussian releases:

  local   every noisy step by itself: at most e = ceil(tau / floor(m / gamma)) of them see the record, each a mean
          gradient that moves by 2G / gamma under noise sigma. Holds for every loss and every observer.
  sum     the last steps' noise alone: whatever came before, the sum over h silos whose noise the observer does not know
          is Gaussian with variance h (eta sigma)^2, and the record moves it by at most Lambda e eta 2G / gamma. Holds
          for observers of the sum, and where Lambda, the factor by which later steps can spread two models apart, is
          known: 1 for tau = 1, max(1, eta beta - 1)^(tau - 1) for convex beta-smooth losses. beta needs a public bound
          on the features' norm, so the term needs `feature_norm`.

The paper divides the local bound's rho by r instead (Theorem 1): it credits the noise of the other devices' earlier
steps, which their training may contract, and takes 2 eta tau G / gamma for the change of a device's model, which its
training may amplify. Its DP-SGD divides by n, though only r devices add noise. `fedpriv.theory.hu_counterexamples` has
losses for which the claims are false.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS, REPLACE, Event
from fedpriv.aggregation.base import Aggregation, Total
from fedpriv.algorithms.base import Algorithm, Contributions, Federation, Local, Plan, Tally, Update
from fedpriv.algorithms.exposure import Exposure, spread, touches
from fedpriv.algorithms.participation import PARTICIPATION
from fedpriv.algorithms.silo_unit import SiloAlgorithm, require_gradients_of_records
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import gaussian_noise, zcdp_noise
from fedpriv.streams import Streams

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.aggregation.fixed_point import Grid

CALIBRATIONS = ("none", "paper", "certified")


@dataclass(frozen=True)
class CdpFedAvg(SiloAlgorithm):
    """Algorithm 1. A silo's message is the change of its model, which tells as much as the model.

    batch_size: None for floor(m / local_steps), one pass a round. cohort: None for all silos.
    participation: uniform, or balanced so that silos differ by at most one in the rounds they take part in.
    feature_norm: records are scaled down to this L2 norm before training, a public bound; None leaves them.
    calibration: none takes `noise_multiplier`; paper and certified instead the noise for which the paper's formula, or
    the exact certificate of what `observer` sees, gives `epsilon` after `rounds` rounds, at `delta`.
    """

    local_steps: int
    batch_size: int | None
    local_lr: float
    clip: float
    noise_multiplier: float
    cohort: int | None
    participation: str
    feature_norm: float | None
    calibration: str
    epsilon: float
    observer: str
    rounds: int
    delta: float

    def __post_init__(self) -> None:
        size, cohort, norm = self.batch_size, self.cohort, self.feature_norm
        require(self.local_steps >= 1, "algo.local_steps", self.local_steps, "a positive integer")
        require(size is None or size >= 1, "algo.batch_size", size, "a positive integer, or null for one pass a round")
        require(0 < self.local_lr < math.inf, "algo.local_lr", self.local_lr, "a positive number")
        require(cohort is None or cohort >= 1, "algo.cohort", cohort, "a positive number of silos, or null for all")
        require(
            self.participation in PARTICIPATION, "algo.participation", self.participation, " or ".join(PARTICIPATION)
        )
        require(
            norm is None or 0 < norm < math.inf, "algo.feature_norm", norm, "a positive bound, or null to scale nothing"
        )
        require(self.calibration in CALIBRATIONS, "algo.calibration", self.calibration, ", ".join(CALIBRATIONS))
        require(0 < self.epsilon < math.inf, "algo.epsilon", self.epsilon, "a positive number")
        require(self.observer in OBSERVERS, "algo.observer", self.observer, ", ".join(OBSERVERS))

    @property
    def label(self) -> str:
        return f"CDP-FedAvg tau={self.local_steps}"

    @property
    def plans_from_allocation(self) -> bool:
        return True

    @property
    def plans_alike(self) -> bool:
        return self.cohort is None

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:
        silos = federation.n_silos
        fits = self.cohort is None or self.cohort <= silos
        require(fits, "algo.cohort", self.cohort, f"at most {silos}, the number of silos")
        mechanism.check_inside_training()
        bounded = self.calibration == "none" or mechanism.clips
        require(bounded, "algo.calibration", self.calibration, "none, because this mechanism adds no noise")
        _, code = self.agree(federation, mechanism, aggregation)
        mechanism.check_grid(1, code, self.local_lr)

    def cohort_size(self, federation: Federation) -> int:
        return self.cohort or federation.n_silos

    def message_bound(self, federation: Federation, mechanism: Mechanism, covered: int) -> float:
        return self.local_steps * self.local_lr * (mechanism.clip + mechanism.noise_bound(1))

    def settle(self, allocation: Allocation, data: DataSet) -> tuple[Algorithm, Allocation]:
        require_gradients_of_records(data)
        smallest = int(allocation.counts().sum(axis=1).min())
        allowed = f"at most {smallest}, the records of the smallest silo"
        require(self.batch_size is None or self.batch_size <= smallest, "algo.batch_size", self.batch_size, allowed)
        return self, allocation

    def _batch(self, records: int) -> int:
        return self.batch_size or max(1, records // self.local_steps)

    def invited(self, round: int, federation: Federation, streams: Streams) -> tuple[int, ...]:
        """The silos of a round."""
        draw = PARTICIPATION[self.participation]
        return draw(round, federation.n_silos, self.cohort_size(federation), streams)

    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        covered, code = self.agree(federation, mechanism, aggregation)
        cohort = self.invited(round, federation, streams)
        events = [
            self._event(observer, silo, federation, mechanism, aggregation, covered, code)
            for silo in cohort
            for observer in OBSERVERS
        ]
        return Plan(round, cohort, None, tuple(events), covered, code, streams)

    def _event(
        self,
        observer: str,
        silo: int,
        federation: Federation,
        mechanism: Mechanism,
        aggregation: Aggregation,
        covered: int,
        code: Grid | None,
    ) -> Event:
        records = federation.silo_records[silo]
        rounding = mechanism.rounding(code, federation.n_parameters) / self.local_lr
        exposed = self.exposure(observer, records, federation, aggregation, covered, rounding)
        return Event(
            observer,
            "record",
            REPLACE,
            mechanism.event(exposed.moved, exposed.hidden),
            self._claim(records, federation, mechanism, aggregation, covered),
            f"silo{silo}",
            (
                *mechanism.assumptions(code),
                *aggregation.assumptions,
                "the number of a silo's records is public",
                "who takes part when is public and does not depend on data",
                *self._delta_warning(min(federation.silo_records)),
                *exposed.why,
            ),
        )

    def exposure(
        self,
        observer: str,
        records: int,
        federation: Federation,
        aggregation: Aggregation,
        covered: int,
        rounding: float = 0.0,
    ) -> Exposure:
        """The better of the two bounds for a record of a silo of `records`; rounding adds to how far it moves them."""
        size = self._batch(records)
        touched = touches(records, size, self.local_steps)
        local = math.sqrt(touched) * (2 / size + rounding)
        if observer == "server" and not aggregation.hides_messages:
            return Exposure(local, 1, ("the server sees every silo's noised message",))
        factor, reason = spread(self.local_steps, self.local_lr, federation.loss, self.feature_norm)
        # A silo knows its own noise if it takes part; alone, the silo in question is the only one.
        hidden, curious = covered, ()
        if observer == "silo":
            hidden, curious = max(1, covered - 1), ("one silo subtracts its own noise and does not collude",)
        why = (f"the last steps' noise of {hidden} silos hides the sum", reason, *curious)
        whole = Exposure(factor * touched * 2 / size + rounding, hidden, why)
        if whole.gap < local:
            return whole
        unknown = (f"no better bound for the sum: {reason}",) if math.isinf(factor) else ()
        return Exposure(local, 1, ("only the silo's own noise counts", *unknown))

    def _delta_warning(self, records: int) -> tuple[str, ...]:
        """Such a delta allows a mechanism that now and then publishes a record."""
        return (f"delta={self.delta:g} is above 1 / {records}^2",) if self.delta > records**-2 else ()

    def claimed_rho(
        self, records: int, federation: Federation, noise_multiplier: float, covered: int, hidden: bool
    ) -> float:
        """What the paper takes for the rho of one round: Theorem 1, with secure aggregation (`hidden`) or without.

        The theorem is for whole passes, tau a multiple of m / gamma; the formula is taken as it stands for others too.
        """
        batch_noise = noise_multiplier**2 * self._batch(records)
        return 2 * self.local_steps / (records * batch_noise * (covered if hidden else 1))

    def _claim(
        self, records: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, covered: int
    ) -> DpEvent | None:
        if not mechanism.clips:
            return None
        from dp_accounting import NonPrivateDpEvent

        from fedpriv.accountants.zcdp import ZcdpClaim

        noise = mechanism.noise_multiplier
        if not noise:
            return NonPrivateDpEvent()
        return ZcdpClaim(self.claimed_rho(records, federation, noise, covered, aggregation.hides_messages))

    def calibrated(
        self, mechanism: Mechanism, federation: Federation, aggregation: Aggregation, streams: Streams
    ) -> Mechanism:
        if self.calibration == "none":
            return mechanism
        taken = Counter(silo for t in range(self.rounds) for silo in self.invited(t + 1, federation, streams))
        covered = aggregation.min_cohort(self.cohort_size(federation))
        needed = []
        for silo, rounds in taken.items():
            records = federation.silo_records[silo]
            if self.calibration == "paper":
                rho = rounds * self.claimed_rho(records, federation, 1.0, covered, aggregation.hides_messages)
                needed.append(zcdp_noise(rho, self.epsilon, self.delta))
            else:
                gap = self.exposure(self.observer, records, federation, aggregation, covered).gap
                needed.append(gaussian_noise(gap * math.sqrt(rounds), self.epsilon, self.delta))
        return replace(mechanism, noise_multiplier=max(needed))

    def local_update(self, local: Local, plan: Plan, theta: np.ndarray) -> Update:
        # The last step's noise is the message's noise share: it alone is certain to reach the sum as it was drawn.
        rng = local.streams.secret("last noise", plan.round, local.name)
        last = -local.mechanism.noise_share(len(theta), 1, rng, self.local_lr, plan.code)
        tally = Tally()
        return Update(self._train(local, plan, theta, tally), last, tally)

    def _train(self, local: Local, plan: Plan, theta: np.ndarray, tally: Tally) -> Iterator[Contributions]:
        import torch

        from fedpriv.training.clipped import clipped_gradients
        from fedpriv.training.noisy_sgd import NoisySgd, noisy_sgd, scaled_to

        data, mechanism, streams = local.data, local.mechanism, local.streams
        x = data.x if self.feature_norm is None else scaled_to(data.x, self.feature_norm)
        rng = streams.secret("noise", plan.round, local.name)
        change = noisy_sgd(
            clipped_gradients(local.model, local.task, mechanism.clip, tuple(x.shape[1:])),
            theta,
            x,
            data.y,
            NoisySgd(self.local_steps, self._batch(len(x)), self.local_lr),
            lambda size: mechanism.noise_share(size, 1, rng),
            streams.generator("batches", plan.round, local.name),
            streams.torch_seed("dropout", plan.round, local.name),
            tally,
        )
        yield Contributions(np.array([local.silo]), torch.from_numpy(change).unsqueeze(0).to(x.device))

    def global_update(self, theta: np.ndarray, total: Total, federation: Federation) -> np.ndarray:
        return theta + total.vector / len(total.parties)


@dataclass(frozen=True)
class DistributedDpSgd(CdpFedAvg):
    """The paper's baseline: one noisy step a round. Its claim divides by the number of all silos."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.local_steps == 1, "algo.local_steps", self.local_steps, "1; algo=cdp_fedavg takes several")

    @property
    def label(self) -> str:
        return "DP-SGD"

    def claimed_rho(
        self, records: int, federation: Federation, noise_multiplier: float, covered: int, hidden: bool
    ) -> float:
        return 2 / (federation.n_silos * (noise_multiplier * self._batch(records)) ** 2)
