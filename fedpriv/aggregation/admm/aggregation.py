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

import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fedpriv.accountants.events import RELEASED_MODEL, SILO
from fedpriv.aggregation.admm.knowledge import first_leak
from fedpriv.aggregation.admm.peer import AdmmPeer
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.base import (
    AbortPolicy,
    Aggregation,
    CohortSize,
    HelperProtocol,
    require_setting,
)
from fedpriv.aggregation.weighted import PINNED
from fedpriv.encoding.fixed_point import FixedPoint, check_ring
from fedpriv.errors import ConfigError, require
from fedpriv.rounds.plan import Federation, Observer, ThreatModel
from fedpriv.rounds.weighting import Weighting
from fedpriv.topology.design import designed
from fedpriv.topology.groups import Partitions, check, group_sizes, partition
from fedpriv.topology.randomised import ROLLBACK, randomised

if TYPE_CHECKING:
    from fedpriv.mechanisms.base import Mechanism

LEAST_GROUP = 3
"""In a group of two no third peer could compare what the leader told its member."""
LEAST_PENALTY = 1e-100
CONSTRUCTIONS = ("designed", "randomised", "printed")


@dataclass(frozen=True)
class Admm(Aggregation):
    """Averages without a server.

    topology: all, or groups of `group_size`. Some groups have one peer more if peers are left over;
        without such a partition, all.
    group_size: peers in a group.
    groups: designed, or the paper's randomised construction, with rollback (randomised) or as
        printed.
    group_seed: public seed of the randomised construction.
    preset: iterations and penalty by name; null: `iterations`, `rho`, `decay` and `period`.
    iterations: most iterations.
    rho: penalty of the first iterations.
    decay: factor on the penalty after every `period` iterations.
    period: iterations between two such changes.
    tolerance: stop early when no coordinate of z moves by more.
    average: equal, or by records.
    masking: hide messages inside groups, which then stay the same.
    range: public bound on masked numbers.
    least_peers: fewest peers that a run continues with, in new groups, when others stay silent;
        null: all of them are needed.
    colluders: how many peers may combine what they see.
    smallest_width: narrowest interval that a single message may leave for a coordinate.
    beyond_safe: run even where colluders determine another peer's message, or where a message
        leaves less than `smallest_width`.
    """

    topology: str = "groups"
    group_size: int = 3
    groups: str = "designed"
    group_seed: int = 0
    preset: str | None = "tuned_2"
    iterations: int | None = None
    rho: float = 1.0
    decay: float = 1.0
    period: int = 1
    tolerance: float | None = None
    average: str = "equal"
    masking: bool = False
    range: float = 1e5
    least_peers: int | None = None
    colluders: int = 1
    smallest_width: float = 0.1
    beyond_safe: bool = False

    def __post_init__(self) -> None:
        own = self.iterations is not None and self.iterations >= 1
        counted = own if self.preset is None else self.iterations is None
        at_least = f"{LEAST_GROUP} or more"
        for key, holds, allowed in (
            ("topology", self.topology in ("all", "groups"), "all or groups"),
            ("group_size", self.group_size >= LEAST_GROUP, at_least),
            ("groups", self.groups in CONSTRUCTIONS, " or ".join(CONSTRUCTIONS)),
            ("preset", self.preset in (None, *PRESETS), f"null or one of {', '.join(PRESETS)}"),
            ("iterations", counted, "null with a preset, else a positive number of iterations"),
            (
                "tolerance",
                self.tolerance is None or self.tolerance > 0,
                "a positive number, or null",
            ),
            ("average", self.average in ("equal", "records"), "equal or records"),
            (
                "least_peers",
                self.least_peers is None or self.least_peers >= LEAST_GROUP,
                f"{at_least}, or null",
            ),
            ("colluders", self.colluders >= 1, "a positive number of peers"),
            ("smallest_width", self.smallest_width >= 0, "zero or more"),
        ):
            require_setting(self, key, holds, allowed)
        check_ring(64, self.range)
        last = self.penalty.at(self.most_iterations)
        allowed = f"such that rho stays above {LEAST_PENALTY:g}"
        require_setting(self, "decay", last > LEAST_PENALTY, allowed)

    @property
    def helpers(self) -> tuple[str, ...]:
        return ()

    @property
    def penalty(self) -> Penalty:
        """rho of each iteration."""
        if self.preset is None:
            return Penalty(self.rho, self.decay, self.period)
        return PRESETS[self.preset][1]

    @property
    def most_iterations(self) -> int:
        """Number of iterations, unless `tolerance` ends them earlier."""
        return PRESETS[self.preset][0] if self.preset is not None else self.iterations or 0

    def partitions(self, n: int) -> Partitions:
        """The groups of n peers by iteration; after the last partition the first one returns."""
        sizes = group_sizes(n, self.group_size)
        if self.topology == "all" or sizes is None:
            return (partition([range(n)]),)
        found = designed(n, self.group_size)
        if self.groups != "designed":
            rollback = ROLLBACK if self.groups == "randomised" else None
            found = randomised(sizes, random.Random(self.group_seed), rollback=rollback)
            check(found, n, sizes)
        # Sums of several groups that overlap would determine single messages.
        return found[:1] if self.masking else found

    def cohort_size(self, n_invited: int) -> CohortSize:
        allowed = f"needs {LEAST_GROUP} or more silos, not {n_invited}"
        require(n_invited >= LEAST_GROUP, "aggregation", "admm", allowed)
        if not self.beyond_safe:
            self._require_safe(n_invited)
        return CohortSize(n_invited)

    @property
    def abort_policy(self) -> AbortPolicy:
        return AbortPolicy(
            never_repeats=True, continues_with=self._continues_with, fewest=self.least_peers
        )

    def _continues_with(self, n_peers: int) -> bool:
        if self.least_peers is None or n_peers < self.least_peers:
            return False
        try:
            self.cohort_size(n_peers)
        except ConfigError:
            return False
        return True

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

    def ring(self, n_silos: int) -> FixedPoint | None:
        """How masked messages become integers; None: they are not masked."""
        return FixedPoint(64, self.range, n_silos) if self.masking else None

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
