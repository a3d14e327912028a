"""The messages of one exchange, counted and recorded."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from fedpriv.parties.post import encoded_size


class Letter(NamedTuple):
    """A message on its way.

    step: in which it was sent, from 0.
    sender: name of a party.
    receiver: name of a party.
    message: any message that `parties.messages` can encode.
    """

    step: int
    sender: str
    receiver: str
    message: Any


class Traffic:
    """Messages and bytes by step and sender, counted when they are sent, whether or not they
    arrive.

    keep: whether to record the letters in `transcript`, in the order of sending (within a step, by
        sender).
    """

    def __init__(self, keep: bool = False) -> None:
        self.messages: Counter[tuple[int, str]] = Counter()
        self.bytes: Counter[tuple[int, str]] = Counter()
        self.transcript: list[Letter] | None = [] if keep else None

    def record(self, letter: Letter) -> None:
        """Count a letter. Raises MessageError when its message has no encoding."""
        self.messages[letter.step, letter.sender] += 1
        self.bytes[letter.step, letter.sender] += encoded_size(letter.message)
        if self.transcript is not None:
            self.transcript.append(letter)

    def rows(self, round: int, query: str) -> list[dict[str, Any]]:
        """Rows of traffic.csv; `query` names the exchange."""
        return [
            {"round": round, "query": query, "step": step, "party": name, "messages": count}
            | {"bytes": self.bytes[step, name]}
            for (step, name), count in self.messages.items()
        ]
