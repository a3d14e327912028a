"""Whether the packages that Paillier needs are installed."""

from __future__ import annotations

from importlib.util import find_spec

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
