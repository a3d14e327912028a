"""Engines: where the parties of an exchange run and how their messages travel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party


@dataclass(frozen=True)
class Engine(ABC):
    """Runs the parties of one exchange to their end."""

    @abstractmethod
    def run(self, parties: dict[str, Party]) -> dict[str, Any]:
        """Deliver messages until every party has returned; returns what each one has learned.

        Raises whatever a party raises, and RuntimeError when parties wait for mail that nobody will send.
        """
