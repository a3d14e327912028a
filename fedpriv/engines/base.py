"""Engines: where the parties of an exchange run and how their messages travel.

The network is synchronous: in every step the parties that have mail wake, and what they send arrives in the next step.
A party that has nothing to say stays silent; whoever counts on it sees its name missing from the mail. When no message
is under way, every waiting party wakes with empty mail, which is how it learns that nobody will answer.
"""

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

        Raises whatever a party raises, and RuntimeError when parties go on without sending or returning.
        """
