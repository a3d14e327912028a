"""All parties in this process, in lock step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.engines.base import Engine

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party


@dataclass(frozen=True)
class InProcess(Engine):
    """One process. Within a step parties run in the order of their names, which no result depends on."""

    def run(self, parties: dict[str, Party]) -> dict[str, Any]:
        learned: dict[str, Any] = {}
        waiting = dict(sorted(parties.items()))
        mail: dict[str, dict[str, Any] | None] = dict.fromkeys(waiting)  # a generator's first wake-up carries nothing
        silence = False
        while waiting:
            outgoing: dict[str, dict[str, Any]] = {}
            before = len(waiting)
            for name in [name for name in waiting if name in mail]:
                try:
                    sent = waiting[name].send(mail[name])
                except StopIteration as end:
                    learned[name] = end.value
                    del waiting[name]
                    continue
                for receiver, message in sent.items():
                    outgoing.setdefault(receiver, {})[name] = message
            outgoing = {name: letters for name, letters in outgoing.items() if name in waiting}
            if silence and not outgoing and len(waiting) == before:
                raise RuntimeError(f"no message under way, but {', '.join(waiting)} go on waiting")
            silence = not outgoing
            mail = {name: outgoing.get(name, {}) for name in (waiting if silence else outgoing)}
        return learned
