"""What server and silos of private weighting agree on."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.aggregation.private_weighting.counts import count_limit


@dataclass(frozen=True)
class ProtocolSettings:
    """The settings that parties need; see `PrivateWeighting`."""

    key_bits: int
    n_max: int
    count_cap: int | None
    oblivious: bool
    workers: int
    sound: bool

    def count_limit(self, n_silos: int) -> int:
        """Most records of a user that may count in one silo."""
        return count_limit(self.n_max, self.count_cap, n_silos)
