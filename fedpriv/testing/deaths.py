"""Parties that die in the middle of an exchange: they say nothing more, and their memory is gone.
Some can be started again at once, some later, some never.

>>> from dataclasses import replace
>>> from fedpriv.runtime import prepare
>>> from fedpriv.testing import experiment
>>> exp = experiment("algo=fedavg", "preset.n_users=8", "preset.local_epochs=1")
>>> with prepare(replace(exp, engine=Mortal((Death("silo1", exchange=1, wake=1),)))) as run:
...     run.run_round(run.queries(1), run.state).aborted
'no message from silo1'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpriv.engines.base import Answer, Engine, Session
from fedpriv.engines.inprocess import InProcessSession
from fedpriv.parties.party import Mail, Memory, PartySpec


@dataclass(frozen=True)
class Death:
    """When a party dies.

    party: its name.
    exchange: number of the exchange in the session, from 0.
    wake: how often the party has been woken in this exchange before. It dies instead of answering;
        if its part ends earlier, it dies before its memory is stored.
    back: first exchange before which it can be started again; None: never.
    """

    party: str
    exchange: int
    wake: int
    back: int | None = 0

    def lasts(self, exchange: int) -> bool:
        """Whether the party cannot be started before this exchange."""
        return self.exchange < exchange and (self.back is None or exchange < self.back)


@dataclass(frozen=True)
class Mortal(Engine):
    """One process whose parties die at these moments."""

    deaths: tuple[Death, ...] = ()

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        return MortalSession(specs, memories, self.deaths)


class MortalSession(InProcessSession):
    """Parties in this process, some of which die."""

    def __init__(
        self,
        specs: Mapping[str, PartySpec],
        memories: Mapping[str, Memory],
        deaths: Iterable[Death] = (),
    ) -> None:
        self.restart(deaths)
        super().__init__(specs, memories)

    def restart(self, deaths: Iterable[Death]) -> None:
        """Count exchanges from 0 again, with other deaths."""
        self.deaths = tuple(deaths)
        self.exchange = -1
        self.wakes: Counter[str] = Counter()

    @property
    def lost(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(self.specs) - set(self.participants)

    def reopen(self, memories: Mapping[str, Memory]) -> None:
        """Those that can be started again."""
        away = {death.party for death in self.deaths if death.lasts(self.exchange + 1)}
        super().reopen({name: memories[name] for name in memories.keys() - away})

    def begin(self, tasks: Mapping[str, Any]) -> None:
        self.exchange += 1
        self.wakes.clear()
        super().begin(tasks)

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        dead = [
            name
            for name in mail
            if any(death.wake == self.wakes[name] for death in self._due(name))
        ]
        for name in dead:
            self.participants.pop(name).close()
        self.wakes.update(mail.keys())
        living = {name: letters for name, letters in mail.items() if name not in dead}
        return super().wake(living) | dict.fromkeys(dead)

    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        living = set(names) - self.lost
        for name in living:
            if any(death.wake >= self.wakes[name] for death in self._due(name)):
                self.participants.pop(name).close()
        return super().checkpoints(living - self.lost)

    def _due(self, name: str) -> list[Death]:
        return [one for one in self.deaths if (one.party, one.exchange) == (name, self.exchange)]
