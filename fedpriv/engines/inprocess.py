"""All parties in this process, in lock step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.engines.base import Engine

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party


@dataclass(frozen=True)
class InProcess(Engine):
    """One process: in every step each party that has mail wakes, and its messages arrive in the next step.

    Every party is started once with empty mail; parties run in the order of their names, which no result depends on.
    """

    def run(self, parties: dict[str, Party]) -> dict[str, Any]:
        learned: dict[str, Any] = {}
        waiting = dict(sorted(parties.items()))
        mail: dict[str, dict[str, Any]] = {name: {} for name in waiting}
        started: set[str] = set()
        while mail:
            outgoing: dict[str, dict[str, Any]] = {}
            for name in [name for name in waiting if name in mail]:
                try:
                    sent = waiting[name].send(mail[name] if name in started else None)
                except StopIteration as end:
                    learned[name] = end.value
                    del waiting[name]
                    continue
                started.add(name)
                for receiver, message in sent.items():
                    outgoing.setdefault(receiver, {})[name] = message
            mail = outgoing
        # A sender's last yield leaves it waiting for mail that will never come: it has done its part.
        for name, party in waiting.items():
            party.close()
            learned.setdefault(name, None)
        return learned
