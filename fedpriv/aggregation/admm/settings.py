"""The settings of averages by ADMM, and what follows from them for all peers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.base import Aggregation, require_setting
from fedpriv.encoding.fixed_point import FixedPoint, check_ring
from fedpriv.topology.design import designed
from fedpriv.topology.groups import ROLLBACK, Partitions, check, group_sizes, partition, randomised

LEAST_GROUP = 3
"""In a group of two no third peer could compare what the leader told its member."""
LEAST_PENALTY = 1e-100
CONSTRUCTIONS = ("designed", "randomised", "printed")


@dataclass(frozen=True)
class AdmmSettings(Aggregation):
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

    def ring(self, n_silos: int) -> FixedPoint | None:
        """How masked messages become integers; None: they are not masked."""
        return FixedPoint(64, self.range, n_silos) if self.masking else None
