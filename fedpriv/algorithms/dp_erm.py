"""DP-ERM: every silo descends noisily on its own model, and now and then a random part of the silos average theirs.

Huang: A federated algorithm for privacy-preserving empirical risk minimization, Algorithm 1. Symbols: m ->
Federation.n_silos, n_j -> Federation.silo_records, K -> local_steps, T -> rounds * local_steps, E -> Plan.covered (with
aggregation=secagg its `cohort`), G -> clip, lambda -> strong_convexity, L -> smoothness, gamma -> `offset`,
eta_t -> `rate`, sigma -> clip * noise_multiplier / n_j (noise=paper: / n_(1)), bar-theta_j -> Local.kept["model"].

A round is K steps and one average. J_j is the mean loss of silo j's records plus lambda/2 |theta|^2; a step goes along
the mean of the records' clipped gradients plus lambda theta plus noise. Silos in the sum go on from the average, the
others from their own model, as printed; with `broadcast_all` everybody goes on from the average (Theorem 4 needs it).
A round without a sum leaves every silo where it was before.

Privacy: unit record, adjacency replace (numbers of records are public); a record lives in one silo, so silos are
scopes. What is certified of a round is the better of two bounds, both of Gaussian releases:

  local   every step by itself: silo j's mean gradient moves by 2G / n_j under its own noise sigma. Everything that ever
          leaves the silo is made of these K outputs a round and of other silos' messages, whatever was synchronised,
          so this holds for every loss and every observer.
  sum     the last steps' noise alone. Given everything before it, the sum over E silos, h of which keep their noise
          from the observer, is Gaussian with variance h (eta sigma)^2, eta the rate of the round's last step. A record
          moves the sum by at most K eta 2G / n_j: step i moves the silo's model by eta_i 2G / n_j, every later step t
          shrinks that by 1 - eta_t lambda (for losses that are convex and beta-smooth when clipped, and
          eta_t <= 2 / (beta + 2 lambda)), and with eta_t = 2 / (lambda (t + gamma)) the product of these factors with
          eta_i is at most eta. With K = 1 there is no later step, and it holds for every loss.

The sum bound takes it that all steps since the silo's model was last public lie in this round. That is so if everybody
goes on from the average. As printed it is not: a silo left out for k rounds brings k K steps, under the noise of one,
into the sum, and who is left out is not known when the round is planned. So it counts only with `broadcast_all`, or
when the sum covers all silos; and never for an observer who sees single messages. Secure aggregation alone adds
nothing, and silos that happen to be left out are charged like the others.

The paper claims (epsilon, delta) for a sigma that is m times too small (Theorem 1): see `fedpriv.theory.huang`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS, REPLACE, Event
from fedpriv.aggregation.base import Aggregation, Total
from fedpriv.algorithms.base import Algorithm, Contributions, Federation, Kept, Local, Plan, Tally, Update
from fedpriv.algorithms.exposure import Exposure
from fedpriv.algorithms.silo_unit import SiloAlgorithm, require_gradients_of_records
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import zcdp_noise
from fedpriv.mechanisms.huang import paper_noise
from fedpriv.streams import Streams

if TYPE_CHECKING:
    from dp_accounting import DpEvent


NOISE = ("given", "paper", "sound")


@dataclass(frozen=True)
class DpErm(SiloAlgorithm):
    """Algorithm 1. A silo's message is its model.

    smoothness: L, of every silo's J_j, the regulariser included. It sets the rates; Theorem 4 needs it to be true.
    noise: given takes `noise_multiplier`, relative to clip / n_j; paper takes equation (2), the same for all silos;
    sound makes every silo's own `rounds` * K steps (epsilon, delta)-DP by zCDP.
    fewest: n_(1), records of the smallest silo; known after the allocation.
    """

    local_steps: int
    strong_convexity: float
    smoothness: float
    clip: float
    noise_multiplier: float
    noise: str
    broadcast_all: bool
    epsilon: float
    rounds: int
    delta: float
    fewest: int = 1

    def __post_init__(self) -> None:
        convexity, smooth = self.strong_convexity, self.smoothness
        require(self.local_steps >= 1, "algo.local_steps", self.local_steps, "a positive integer")
        require(0 < convexity < math.inf, "algo.strong_convexity", convexity, "a positive number")
        require(
            convexity <= smooth < math.inf, "algo.smoothness", smooth, f"algo.strong_convexity={convexity:g} or more"
        )
        require(self.noise in NOISE, "algo.noise", self.noise, ", ".join(NOISE))
        require(0 < self.epsilon < math.inf, "algo.epsilon", self.epsilon, "a positive number")

    @property
    def label(self) -> str:
        return f"DP-ERM K={self.local_steps}"

    @property
    def plans_from_allocation(self) -> bool:
        return True

    @property
    def offset(self) -> float:
        """gamma, which keeps the rates below 1 / (4 L) and K of them within a factor of 2."""
        return max(8 * self.smoothness / self.strong_convexity - 1, self.local_steps)

    def rate(self, step: int) -> float:
        """eta_t of step t = 1, 2, ..., counted over all rounds."""
        return 2 / (self.strong_convexity * (step + self.offset))

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:
        mechanism.check_inside_training()
        noisy = self.noise == "given" or mechanism.clips
        require(noisy, "algo.noise", self.noise, "given, because this mechanism adds no noise")

    def settle(self, allocation: Allocation, data: DataSet) -> tuple[Algorithm, Allocation]:
        require_gradients_of_records(data)
        return replace(self, fewest=int(allocation.counts().sum(axis=1).min())), allocation

    def calibrated(
        self, mechanism: Mechanism, federation: Federation, aggregation: Aggregation, streams: Streams
    ) -> Mechanism:
        steps = self.rounds * self.local_steps
        if self.noise == "paper":
            needed = paper_noise(steps, federation.n_silos, self.epsilon, self.delta)
            mechanism = replace(mechanism, noise_multiplier=needed)
        elif self.noise == "sound":
            # A step at noise multiplier 1 moves the mean by two standard deviations: rho = 2.
            mechanism = replace(mechanism, noise_multiplier=zcdp_noise(2 * steps, self.epsilon, self.delta))
        _, code = self.agree(federation, mechanism, aggregation)
        mechanism.check_grid(1, code, self.rate(steps) / max(federation.silo_records))
        return mechanism

    def message_bound(self, federation: Federation, mechanism: Mechanism, covered: int) -> float:
        # A step goes to a point between the old model and -(gradient + noise) / lambda; initial weights are below 1.
        noise = mechanism.noise_bound(1, 1 / self.fewest)
        return 1 + (mechanism.clip + noise) / self.strong_convexity

    def noised_for(self, records: int) -> int:
        """The number of records that a silo's noise is sized for."""
        return self.fewest if self.noise == "paper" else records

    def _synchronised(self, covered: int, silos: int) -> bool:
        """Whether every silo goes on from the average after a round."""
        return self.broadcast_all or covered == silos

    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        covered, code = self.agree(federation, mechanism, aggregation)
        slowest = self.rate(max(round, self.rounds) * self.local_steps)
        rounding = mechanism.rounding(code, federation.n_parameters) / slowest
        events = []
        for silo, records in enumerate(federation.silo_records):
            claimed = self._claim(records, federation, mechanism)
            for observer in OBSERVERS:
                exposed = self._exposure(observer, records, federation, aggregation, covered, rounding)
                seen = mechanism.event(exposed.moved, exposed.hidden)
                rests_on = (*mechanism.assumptions(code), "the number of a silo's records is public", *exposed.why)
                events.append(Event(observer, "record", REPLACE, seen, claimed, f"silo{silo}", rests_on))
        return Plan(round, tuple(range(federation.n_silos)), None, tuple(events), covered, code, streams)

    def _exposure(
        self,
        observer: str,
        records: int,
        federation: Federation,
        aggregation: Aggregation,
        covered: int,
        rounding: float,
    ) -> Exposure:
        """The better of the two bounds for a record of a silo of `records`, in units of what its noise is made for."""
        step, rounded = 2 * self.noised_for(records) / records, rounding * self.noised_for(records)
        local, whole = math.sqrt(self.local_steps) * (step + rounded), self.local_steps * step + rounded
        hidden = covered - 1 if observer == "silo" else covered
        lacking = self._what_the_sum_lacks(observer, federation, aggregation, covered)
        if lacking:
            return Exposure(local, 1, (f"only the silo's own noise counts: {lacking}",))
        if whole >= local * math.sqrt(hidden):
            return Exposure(local, 1, ("only the silo's own noise counts, which hides more than the sum does",))
        convex = () if self.local_steps == 1 else ("the clipped losses are convex and smooth for any record",)
        alone = ("one silo subtracts its own noise and does not collude",) if observer == "silo" else ()
        return Exposure(whole, hidden, (f"the last steps' noise of {hidden} silos hides the sum", *convex, *alone))

    def _what_the_sum_lacks(
        self, observer: str, federation: Federation, aggregation: Aggregation, covered: int
    ) -> str | None:
        """Why the sum bound does not hold for this observer; None if it does."""
        if observer == "server" and not aggregation.hides_messages:
            return "the server sees every silo's message"
        if not self._synchronised(covered, federation.n_silos):
            return "silos that are left out carry earlier steps into later sums"
        if self.local_steps == 1:
            return None
        if federation.loss is None:
            return "the clipped loss is not known to be convex"
        if not self.rate(1) <= 2 / (federation.loss.smoothness(math.inf) + 2 * self.strong_convexity):
            return "the steps are too long for the loss, or the features' norm has no public bound"
        return None

    def _claim(self, records: int, federation: Federation, mechanism: Mechanism) -> DpEvent | None:
        """Theorem 1 turned around: the epsilon for which equation (2) gives this silo's sigma."""
        if not mechanism.clips:
            return None
        from dp_accounting import NonPrivateDpEvent

        from fedpriv.accountants.zcdp import LeadingTermClaim

        if not mechanism.noise_multiplier:
            return NonPrivateDpEvent()
        noise = mechanism.noise_multiplier * self.fewest / self.noised_for(records)
        return LeadingTermClaim(2 * self.local_steps / (federation.n_silos * noise) ** 2)

    def local_update(self, local: Local, plan: Plan, theta: np.ndarray) -> Update:
        # The last step's noise is the message's noise share: it alone is certain to reach the sum as it was drawn.
        rng = local.streams.secret("last noise", plan.round, local.name)
        last = self.rate(plan.round * self.local_steps)
        share = last / self.noised_for(len(local.data.x))
        noise = -local.mechanism.noise_share(len(theta), 1, rng, share, plan.code)
        alone = not self._synchronised(plan.covered, len(plan.cohort))
        tally, kept = Tally(), {} if alone else None
        return Update(self._train(local, plan, local.kept.get("model", theta), noise, tally, kept), noise, tally, kept)

    def _train(
        self, local: Local, plan: Plan, start: np.ndarray, last_noise: np.ndarray, tally: Tally, kept: Kept | None
    ) -> Iterator[Contributions]:
        import torch

        from fedpriv.training.clipped import clipped_gradients
        from fedpriv.training.dp_sgd import seeded_dropout

        x, y, mechanism, streams = local.data.x, local.data.y, local.mechanism, local.streams
        gradients = clipped_gradients(local.model, local.task, mechanism.clip, tuple(x.shape[1:]))
        rng = streams.secret("noise", plan.round, local.name)
        model, before = start.astype(np.float64), (plan.round - 1) * self.local_steps
        with seeded_dropout(x.device, streams.torch_seed("dropout", plan.round, local.name)):
            for step in range(1, self.local_steps + 1):
                at = torch.from_numpy(model).to(x.device, torch.float32)
                mean = gradients.sum(at, x, y, tally).cpu().numpy() / len(x)
                rate = self.rate(before + step)
                model -= rate * (mean + self.strong_convexity * model)
                if step < self.local_steps:
                    model -= rate * mechanism.noise_share(len(model), 1, rng, 1 / self.noised_for(len(x)))
        if kept is not None:
            kept["model"] = model + last_noise
        yield Contributions(np.array([local.silo]), torch.from_numpy(model).unsqueeze(0).to(x.device))

    def global_update(self, theta: np.ndarray, total: Total, federation: Federation) -> np.ndarray:
        return total.vector / len(total.parties)

    def keep(self, kept: dict[str, Kept], total: Total) -> dict[str, Kept]:
        return {name: own for name, own in kept.items() if name not in total.parties}
