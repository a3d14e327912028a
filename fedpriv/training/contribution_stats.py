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

    @property
    def empty(self) -> str | None:
        """Why these contributions teach nothing; None if one of them is finite."""
        if not self.units:
            return "no records took part"
        if self.units == self.nonfinite:
            return "no contribution was finite; lower algo.local_lr or algo.global_lr"
        return None

    def __add__(self, other: ContributionStats) -> ContributionStats:
        pairs = zip(astuple(self), astuple(other))
        return ContributionStats(*(own + more for own, more in pairs))
