"""The settings of private weighting that all parties share, and the record counts that it can
serve: 1 <= N_u <= N_max for every user, though nobody knows N_u.

A total above N_max may not divide C_LCM, and would decrypt to a garbage number as large as n. That
would be too late: the server would already hold a function of the counts without noise. So each
silo bounds its own part before it sends anything. If it refuses, all parties see that some user has
many records there.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from fedpriv.aggregation.base import Aggregation, require_setting
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.util.installed import how_to_install


class CountsRefusedError(AggregationAbortedError):
    """Record counts that cannot be served. The set-up ends and nothing is released. Honest counts
    never change, so the first set-up fails, and with it the run. Later set-ups fail only if a party
    lies."""


def require_extra() -> None:
    """Raise ConfigError, in one line that says what to install, unless gmpy2 and phe are there.
    Loads neither."""
    if find_spec("gmpy2") is None or find_spec("phe") is None:
        needed = f"needs gmpy2 and phe: {how_to_install('private-weighting')}"
        raise ConfigError("aggregation", "private_weighting", needed)


VARIANTS = ("sound", "paper")


@dataclass(frozen=True)
class PrivateWeightingSettings(Aggregation):
    """Sums with weights n_su / N_u, under Paillier's encryption.

    key_bits: length of the Paillier modulus.
    n_max: cap on a user's records over all silos; costs grow with it.
    precision: binary digits after the point.
    count_cap: larger counts of a user in a silo are cut to it; null: a silo with more than
        floor(n_max / silos) refuses.
    oblivious: hide the sample of users from the server too.
    variant: sound; or paper: without dither and re-randomising, to show what that reveals.
    """

    key_bits: int = 3072
    n_max: int = 500
    precision: int = 24
    count_cap: int | None = None
    oblivious: bool = False
    variant: str = "sound"

    def __post_init__(self) -> None:
        require_extra()
        for key, holds, allowed in (
            ("key_bits", self.key_bits >= 256, "256 or more; 3072 for real use"),
            ("n_max", self.n_max >= 1, "a positive number of records"),
            ("variant", self.variant in VARIANTS, " or ".join(VARIANTS)),
        ):
            require_setting(self, key, holds, allowed)

    def count_limit(self, n_silos: int) -> int:
        """Most records of a user that may count in one silo, so that the user has at most `n_max`
        in all. Raises ConfigError if there is no such number, or if the cap lies above it."""
        most = self.n_max // n_silos
        allowed = f"{n_silos} or more: one record of a user in each silo"
        require_setting(self, "n_max", most >= 1, allowed)
        if self.count_cap is None:
            return most
        allowed = f"null, or 1 to {most}: aggregation.n_max={self.n_max} over {n_silos} silos"
        require_setting(self, "count_cap", 1 <= self.count_cap <= most, allowed)
        return self.count_cap
