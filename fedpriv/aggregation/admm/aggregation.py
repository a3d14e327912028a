"""Averages that peers compute among themselves, without a server, by ADMM.

B. Jeon, S. M. Ferdous, M. R. Rahman, A. Walid, Privacy-preserving decentralized aggregation for
federated learning ("SecureD-FL", INFOCOM workshops 2021), Algorithms 1 to 3.

    symbol          here                      meaning
    n, s            invited silos, group_size
    Pi, t_g         `partitions`, their number
    w_k             a peer's message          its weighted, noised contributions
    rho             penalty                   public; may change from iteration to iteration
    I               iterations, or fewer within `tolerance`
    x, lambda, z    `Averaging`               lambda^0 is uniform on [0, 1), fresh each time

In iteration i a peer sends y = x + lambda / rho to the others of its group. One member of each
group sends the group's share of z to those of the other groups. They pass it on inside their
groups. The total is n z, so that it covers every invited peer with equal weights. With
average=records it is n times the mean, weighted by how many records each peer has.

Trust.

- Peers follow the protocol and are curious. What they see determines the others' messages exactly
  after few iterations, whatever the paper says (`knowledge`), and closely before that
  (`Penalty.widths`). A certificate against a peer therefore counts each message as seen, and rests
  on the sender's own noise share alone. Without noise nothing is certified.
- With `masking` additive shares hide the messages inside a group. The groups' sums stay visible.
- The vector of an aborted aggregation is never sent again. Whole silos train one epoch more for
  each such query in a row, noise is new, and a peer refuses to send the very same vector. The next
  model is then a new unknown. If it hardly differs, both aggregations together reveal it nearly as
  well as a repetition would.
- With `least_peers` the run continues without peers that stay silent. The noise shares of the
  remaining peers are larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fedpriv.accountants.events import RELEASED_MODEL, SILO
from fedpriv.aggregation.admm.knowledge import first_leak
from fedpriv.aggregation.admm.peer import AdmmPeer
from fedpriv.aggregation.admm.settings import LEAST_GROUP, AdmmSettings
from fedpriv.aggregation.base import (
    CohortSize,
    HelperProtocol,
    require_setting,
)
from fedpriv.aggregation.weighted import PINNED
from fedpriv.errors import ConfigError, require
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.plan import Federation, Observer, ThreatModel

if TYPE_CHECKING:
    from fedpriv.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Admm(AdmmSettings):
    """Averages without a server.

    Its settings are those of `AdmmSettings`.
    """

    helpers = ()

    def cohort_size(self, n_invited: int) -> CohortSize:
        allowed = f"needs {LEAST_GROUP} or more silos, not {n_invited}"
        require(n_invited >= LEAST_GROUP, "aggregation", "admm", allowed)
        if not self.beyond_safe:
            self._require_safe(n_invited)
        return CohortSize(n_invited)

    never_repeats = True

    @property
    def fewest(self) -> int | None:
        return self.least_peers

    def _require_safe(self, n: int) -> None:
        """Raise ConfigError for settings that need `beyond_safe`."""
        leak = _first_leak(self, n)
        if leak is not None:
            paper = 2 * len(self.partitions(n)) - 1
            raise ConfigError(
                "aggregation",
                "admm",
                f"after {self.most_iterations} iterations {self.colluders} of {n} peers determine "
                f"another's vector; {leak - 1} are safe (the paper says {paper}), or set "
                "aggregation.masking=true; aggregation.beyond_safe=true runs them",
            )
        width = min(self.penalty.widths(self.most_iterations))
        wide = self.masking or width >= self.smallest_width
        allowed = f"at most {width:.2g}, the interval that a message leaves; or beyond_safe=true"
        require_setting(self, "smallest_width", wide, allowed)

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> None:
        everybody = n_summed == federation.n_silos
        allowed = "needs every silo in every round: nobody would send the others the model"
        require(everybody, "aggregation", "admm", allowed)
        bounded = self.average == "records" and mechanism.clips
        require_setting(self, "average", not bounded, "equal where contributions are bounded")

    def threat_model(self) -> ThreatModel:
        counts = "peers show each other their record counts"
        released = Observer(RELEASED_MODEL, sees_sample=False)
        peer = Observer(SILO, sees_messages=True, sees_counts=counts, own_shares=1)
        assumptions = (
            "peers follow the protocol",
            "a peer's messages are taken for determined by what other peers see",
            PINNED,
        )
        return ThreatModel((released, peer), learners=(), assumptions=assumptions)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> AdmmPeer:
        return AdmmPeer(name, silos, weighting, self)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> HelperProtocol:
        raise ValueError(f"admm has no helper {name}")


@cache
def _first_leak(admm: Admm, n: int) -> int | None:
    return first_leak(
        admm.partitions(n),
        admm.penalty,
        admm.most_iterations,
        colluders=admm.colluders,
        masked=admm.masking,
    )
