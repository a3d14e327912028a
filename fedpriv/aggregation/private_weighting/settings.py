"""The settings of private weighting that all parties share."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from fedpriv.aggregation.base import Aggregation, require_setting
from fedpriv.errors import require


def require_extra() -> None:
    """Raise ConfigError, in one line that says what to install, unless gmpy2 and phe are there.
    Loads neither."""
    require(
        find_spec("gmpy2") is not None and find_spec("phe") is not None,
        "aggregation",
        "private_weighting",
        "needs gmpy2 and phe: pip install 'fedpriv[private-weighting]'",
    )


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
