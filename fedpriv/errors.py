"""Errors that a user can correct, reported in one line.

Whatever a person can correct by changing a key, a file or a folder is a `FedprivError`. The command
line prints its text and exits with 2. Any other exception is a defect of fedpriv and keeps its
traceback.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class FedprivError(Exception):
    """An error that the user can correct. Its text is one line: what is wrong, what is allowed."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text and the fields: what the constructor was given may not travel."""
        return Exception.__new__, (type(self), *self.args), vars(self)


class ConfigError(FedprivError):
    """A configuration key with a value that is not allowed, None as null, which a person types."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key}={'null' if value is None else value}: {allowed}")


class DataError(FedprivError):
    """A data file that is missing, truncated or malformed; the text names the file."""


class AggregationAbortedError(FedprivError):
    """An exchange that ended without a sum. The round releases nothing, and the run continues."""


class SilenceError(AggregationAbortedError):
    """The exchange ended because the parties `names` sent nothing."""

    names: frozenset[str] = frozenset()

    def __init__(self, text: str, names: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.names = frozenset(names)


class RefusedError(AggregationAbortedError):
    """A party refused what it was asked: it has answered that before, or its own settings do not
    allow it."""


class MisfitError(AggregationAbortedError):
    """The exchange ended because of a wrong message. An altered message of the set-up may have left
    parties with different keys, so the next query starts with another set-up."""


class FedprivWarning(RuntimeWarning):
    """What a person should know now. Commands print its text in one line."""


def require(condition: bool, key: str, value: object, allowed: str) -> None:
    """Raise `ConfigError` for `key` unless `condition` holds; `allowed` says what is."""
    if not condition:
        raise ConfigError(key, value, allowed)


def require_positive(group: str, component: object, *names: str) -> None:
    """Raise `ConfigError` unless these settings of a component of config group `group` are positive
    and finite."""
    for name in names:
        value = getattr(component, name)
        require(0 < value < math.inf, f"{group}.{name}", value, "a positive number")
