"""What happened to the contributions of a silo, for people to look at. Not private."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ContributionStats:
    """units: contributions made.
    nonfinite: left out because they held NaN or infinity.
    clipped: longer than the bound.
    norm_sum: of the finite ones' norms before bounding.
    """

    units: int = 0
    nonfinite: int = 0
    clipped: int = 0
    norm_sum: float = 0.0

    def __add__(self, other: ContributionStats) -> ContributionStats:
        return ContributionStats(
            self.units + other.units,
            self.nonfinite + other.nonfinite,
            self.clipped + other.clipped,
            self.norm_sum + other.norm_sum,
        )
