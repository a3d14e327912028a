"""All parties in this process, in lock step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.engines.base import Engine, Host, Mail, Returned, Sent

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party


@dataclass(frozen=True)
class InProcess(Engine):
    """One process. Within a step parties run in the order of their names, which no result depends on."""

    @contextmanager
    def host(self, parties: dict[str, Party]) -> Iterator[Host]:
        yield _Here(parties)


class _Here:
    def __init__(self, parties: dict[str, Party]) -> None:
        self.parties = parties

    def wake(self, mail: dict[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        return {name: answer(self.parties[name], mail[name]) for name in sorted(mail)}


def answer(party: Party, mail: Mail | None) -> Sent | Returned:
    """Wake one party. Raises what it raises."""
    try:
        return Sent(party.send(mail))
    except StopIteration as end:
        return Returned(end.value)
