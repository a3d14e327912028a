"""Mistakes a user can make, told in one line.

Everything that a person can mend by changing a key, a file or a folder is a `FedprivError`; the
command line prints its text alone and exits with 2. Any other exception is a defect of fedpriv and
keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable


class FedprivError(Exception):
    """A mistake in the user's hands: one line that says what is wrong and what is allowed."""


class ConfigError(FedprivError):
    """A configuration key holds a value that cannot work."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key}={value}: {allowed}")


class DataError(FedprivError):
    """A data file is missing, truncated or malformed; the text names the file."""


class AggregationAbortedError(FedprivError):
    """An exchange ended without a sum; nothing is released by it, and the run goes on."""


class SilenceError(AggregationAbortedError):
    """It ended because nothing came from some parties, `names`."""

    def __init__(self, text: str, names: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.names = frozenset(names)


class MisfitError(AggregationAbortedError):
    """It ended because of something that was said, not because of silence. Perhaps parties do not
    hold the same keys, since a message of their set-up was altered; so the next query begins with
    another set-up."""


def require(condition: bool, key: str, value: object, allowed: str) -> None:
    """Raise `ConfigError` for `key` unless `condition` holds; `allowed` says which values are."""
    if not condition:
        raise ConfigError(key, value, allowed)
