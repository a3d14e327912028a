"""The error of a component that breaks a rule of its group."""

from __future__ import annotations


class ConformanceError(AssertionError):
    """A component breaks a rule that every component of its group must satisfy."""


def demand(holds: bool, otherwise: str) -> None:
    """Raise ConformanceError with a message unless a rule holds."""
    if not holds:
        raise ConformanceError(otherwise)
