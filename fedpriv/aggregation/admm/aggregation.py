"""Averages that peers compute among themselves, without a server, by ADMM.

B. Jeon, S. M. Ferdous, M. R. Rahman, A. Walid, Privacy-preserving decentralized aggregation for
federated learning ("SecureD-FL", INFOCOM workshops 2021), Algorithms 1 to 3.

    symbol          here                      meaning
    n, s            invited silos, group_size
    Pi, t_g         `partitions`, their number
    w_k             a peer's message          its weighted, noised contributions
    rho             penalty                   public, may change from iteration to iteration
    I               iterations, or fewer within `tolerance`
    x, lambda, z    `Averaging`               lambda^0 is uniform on [0, 1), fresh in every
    aggregation

In iteration i a peer sends y = x + lambda / rho to the others of its group. One member of each
group sends the group's share of z to those of the other groups, who pass on what they get. The
total is n z, so that it covers every invited peer with equal weights; with average=records it is n
times the mean weighted by how many records each peer has.

Trust: peers follow the protocol and are curious. What they see determines others' messages exactly
after few iterations, whatever the paper says (`knowledge`), and closely before (`Penalty.widths`);
so whatever is certified against a peer counts each message as seen, and rests on the peer's own
noise share alone: without noise nothing is. Shared masks hide messages inside a group and leave the
groups' sums: see `masking`.

What an aggregation without a sum was about is never sent again: whole silos train an epoch longer
for each such query in a row, noise is new, and a peer refuses the very same vector. The next model
is then another unknown; but where it hardly differs, what is seen of both tells it nearly as well.
Peers that no longer answer are left out on demand, see `least_peers`; the noise shares of those who
are left are larger.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fedpriv.accountants.events import RELEASED_MODEL, SILO
from fedpriv.aggregation.admm.knowledge import first_leak
from fedpriv.aggregation.admm.peer import AdmmPeer, Procedure
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.base import Aggregation
from fedpriv.encoding.fixed_point import FixedPoint, check_ring
from fedpriv.errors import ConfigError, require
from fedpriv.rounds.plan import Observer, ThreatModel
from fedpriv.topology.design import designed
from fedpriv.topology.groups import Partitions, check, group_sizes, partition
from fedpriv.topology.randomised import ROLLBACK, randomised

if TYPE_CHECKING:
    from fedpriv.aggregation.base import HelperProtocol
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.rounds.plan import Federation
    from fedpriv.rounds.weighting import Weighting

LEAST_GROUP = 3
"""In groups of two, nobody is told by a third what it has been told by its leader."""
LEAST_PENALTY = 1e-100
CONSTRUCTIONS = ("designed", "randomised", "printed")


@dataclass(frozen=True)
class Admm(Aggregation):
    """topology: all, or groups of `group_size` (and one more where peers are left over; all where
        there are no such groups).
    groups: designed, or the paper's randomised construction with rollback or as printed, of public
        seed `group_seed`.
    preset: iterations and penalty by name; null: `iterations`, `rho`, `decay` and `period`.
    tolerance: stop early when no coordinate of z has moved by more.
    average: equal, or records.
    masking: hide messages inside groups, which then stay the same, in integers for numbers of size
        up to `range`.
    least_peers: fewest peers that a run goes on with, in groups made anew, when others no longer
        answer; null: all of them have to.
    colluders: how many peers may put together what they see.
    beyond_safe: run even where these determine another's message, or where a single message leaves
        an interval of less than `smallest_width`.
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
        require(
            self.topology in ("all", "groups"),
            "aggregation.topology",
            self.topology,
            "all or groups",
        )
        least = f"{LEAST_GROUP} or more"
        require(self.group_size >= LEAST_GROUP, "aggregation.group_size", self.group_size, least)
        require(
            self.groups in CONSTRUCTIONS,
            "aggregation.groups",
            self.groups,
            " or ".join(CONSTRUCTIONS),
        )
        named = self.preset is None or self.preset in PRESETS
        require(named, "aggregation.preset", self.preset, f"null or one of {', '.join(PRESETS)}")
        own = self.iterations is not None and self.iterations >= 1
        counted = own if self.preset is None else self.iterations is None
        with_preset = "null with a preset, else a positive number of iterations"
        require(counted, "aggregation.iterations", self.iterations, with_preset)
        positive = self.tolerance is None or self.tolerance > 0
        require(positive, "aggregation.tolerance", self.tolerance, "a positive number, or null")
        require(
            self.average in ("equal", "records"),
            "aggregation.average",
            self.average,
            "equal or records",
        )
        fewest = self.least_peers is None or self.least_peers >= LEAST_GROUP
        require(
            fewest, "aggregation.least_peers", self.least_peers, f"{LEAST_GROUP} or more, or null"
        )
        require(
            self.colluders >= 1,
            "aggregation.colluders",
            self.colluders,
            "a positive number of peers",
        )
        require(
            self.smallest_width >= 0,
            "aggregation.smallest_width",
            self.smallest_width,
            "zero or more",
        )
        check_ring(64, self.range)
        last = self.penalty.at(self.most_iterations)
        require(
            last > LEAST_PENALTY,
            "aggregation.decay",
            self.decay,
            f"such that rho stays above {LEAST_PENALTY:g}",
        )

    @property
    def helpers(self) -> tuple[str, ...]:
        return ()

    @property
    def penalty(self) -> Penalty:
        """rho of each iteration."""
        return (
            PRESETS[self.preset][1]
            if self.preset is not None
            else Penalty(self.rho, self.decay, self.period)
        )

    @property
    def most_iterations(self) -> int:
        """How many iterations there are unless `tolerance` ends them before."""
        return PRESETS[self.preset][0] if self.preset is not None else self.iterations or 0

    def partitions(self, n: int) -> Partitions:
        """The groups of n peers, by iteration; after the last the first comes again."""
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

    def n_summed(self, n_invited: int) -> int:
        require(
            n_invited >= LEAST_GROUP,
            "aggregation",
            "admm",
            f"needs {LEAST_GROUP} or more silos, not {n_invited}",
        )
        if not self.beyond_safe:
            self._require_safe(n_invited)
        return n_invited

    @property
    def never_repeats(self) -> bool:
        return True

    def goes_on_with(self, n_silos: int) -> bool:
        """Whether so many are enough, and what is safe among them covers the iterations."""
        if self.least_peers is None or n_silos < self.least_peers:
            return False
        try:
            self.n_summed(n_silos)
        except ConfigError:
            return False
        return True

    def _require_safe(self, n: int) -> None:
        """Raise ConfigError for what `beyond_safe` stands for."""
        leak = _first_leak(self, n)
        if leak is not None:
            paper = 2 * len(self.partitions(n)) - 1
            true = leak - 1
            raise ConfigError(
                "aggregation",
                "admm",
                f"{self.most_iterations} iterations let {self.colluders} of {n} peers determine "
                "another's vector; safe "
                f"are {true} (the paper says {paper}), or masking=true; beyond_safe=true runs them",
            )
        width = min(self.penalty.widths(self.most_iterations))
        if width < self.smallest_width and not self.masking:
            allowed = (
                f"at most {width:.2g}: so closely a message tells a coordinate; or beyond_safe=true"
            )
            raise ConfigError("aggregation.smallest_width", self.smallest_width, allowed)

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> None:
        everybody = n_summed == federation.n_silos
        allowed = "needs every silo in every round: nobody would tell the others the model"
        require(everybody, "aggregation", "admm", allowed)
        weighs = self.average == "records" and mechanism.clips
        require(
            not weighs, "aggregation.average", self.average, "equal where contributions are bounded"
        )

    def threat_model(self) -> ThreatModel:
        counts = "peers show each other their record counts"
        released = Observer(RELEASED_MODEL, sees_sample=False)
        peer = Observer(SILO, sees_messages=True, sees_counts=counts, own_shares=1)
        assumptions = (
            "peers follow the protocol",
            "a peer's messages are taken for determined by what other peers see",
            "the peers' verification keys are genuine",
        )
        return ThreatModel((released, peer), learners=(), assumptions=assumptions)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> AdmmPeer:
        procedure = Procedure(
            topology=self.partitions,
            penalty=self.penalty,
            iterations=self.most_iterations,
            tolerance=self.tolerance,
            by_records=self.average == "records",
            ring=FixedPoint(64, self.range, len(silos)) if self.masking else None,
        )
        return AdmmPeer(name, silos, weighting, procedure)

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
