"""What the parties of one exchange have sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fedpriv.engines.messages import size_of


class Letter(NamedTuple):
    """A message on its way, sent in `step` (the first is 0)."""

    step: int
    sender: str
    receiver: str
    message: Any


class Traffic:
    """Messages and bytes by sender, counted when they are sent, whether or not they arrive.

    keep: keep the letters too, as `transcript`, in the order they were sent (within a step, by sender).
    """

    def __init__(self, keep: bool = False) -> None:
        self.messages: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.transcript: list[Letter] | None = [] if keep else None

    def open(self, parties: Iterable[str]) -> None:
        """Name the parties, so that those who send nothing are counted as well."""
        for name in parties:
            self.messages.setdefault(name, 0)
            self.bytes.setdefault(name, 0)

    def record(self, letter: Letter) -> None:
        """Count a letter. Raises MessageError when its message has no encoding."""
        self.messages[letter.sender] += 1
        self.bytes[letter.sender] += size_of(letter.message)
        if self.transcript is not None:
            self.transcript.append(letter)

    def rows(self, round: int, phase: str) -> list[dict[str, Any]]:
        """Lines of traffic.csv."""
        return [
            {"round": round, "phase": phase, "party": name, "messages": count, "bytes": self.bytes[name]}
            for name, count in self.messages.items()
        ]
