"""Statistics of a silo's contributions, for its own eyes: they are not private."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass
class ContributionStats:
    """units: number of contributions.
    nonfinite: number of contributions with NaN or infinity, which are left out.
    clipped: number of contributions whose norm exceeds the bound.
    norm_sum: sum of the finite norms before bounding.
    """

    units: int = 0
    nonfinite: int = 0
    clipped: int = 0
    norm_sum: float = 0.0

    def __add__(self, other: ContributionStats) -> ContributionStats:
        pairs = zip(astuple(self), astuple(other))
        return ContributionStats(*(own + more for own, more in pairs))
