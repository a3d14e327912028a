"""Engines: where the parties of an exchange run and how their messages travel.

The network is synchronous: in every step the parties that have mail wake, and what they send arrives in the next step.
A party that has nothing to say stays silent; whoever counts on it sees its name missing from the mail. When no message
is under way, every waiting party wakes with empty mail, which is how it learns that nobody will answer.

Nothing of a party comes back but its return value: an engine may run it in another process, where whatever it changed
is lost. `reporting` adds to the return value what else must come home.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fedpriv.engines.traffic import Letter, Traffic

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party

Mail = dict[str, Any]
"""Messages by sender for who receives it, by receiver for who sends it."""


@dataclass(frozen=True)
class Sent:
    """A party's answer to being woken: messages, and it waits."""

    messages: Mail


@dataclass(frozen=True)
class Returned:
    """A party's last answer: what it has learned."""

    learned: Any


class Host(Protocol):
    """Running parties."""

    def wake(self, mail: dict[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        """Give each named party its mail (None the first time) and return each one's answer, None for one that is
        gone without an answer and will not come back. Raises what a party raises."""


class Network:
    """The way from sender to receiver; this one delivers everything at once."""

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        """What arrives in the step after `step`, in which `letters` were sent."""
        return letters

    @property
    def pending(self) -> bool:
        """Whether messages of earlier steps are still under way."""
        return False


@dataclass(frozen=True)
class Engine(ABC):
    """Runs the parties of one exchange to their end."""

    def check(self, device: str) -> None:  # noqa: B027
        """Raise ConfigError when this engine cannot run here, or not with parties that train on `device`."""

    @abstractmethod
    def host(self, parties: dict[str, Party]) -> AbstractContextManager[Host]:
        """Where the parties run; on leaving, whatever was started for them has ended."""

    def network(self) -> Network:
        """A fresh network for one exchange."""
        return Network()

    def run(self, parties: dict[str, Party], log: Traffic | None = None) -> dict[str, Any]:
        """Deliver messages until every party has returned; returns what each one has learned, by name. A party that
        was lost on the way is missing.

        log: counts what is sent; then every message must be one that `messages.encode` takes.
        Raises whatever a party raises, and RuntimeError when parties go on without sending or returning.
        """
        if log is not None:
            log.open(parties)
        with self.host(parties) as host:
            return _deliver(host, self.network(), sorted(parties), log)


def _deliver(host: Host, network: Network, names: list[str], log: Traffic | None) -> dict[str, Any]:
    learned: dict[str, Any] = {}
    waiting = dict.fromkeys(names)
    mail: dict[str, Mail | None] = dict.fromkeys(names)  # a generator's first wake-up carries nothing
    silence, step = False, 0
    while waiting:
        letters, before = [], len(waiting)
        for name, answer in host.wake(mail).items():
            if isinstance(answer, Sent):
                letters += [Letter(step, name, receiver, message) for receiver, message in answer.messages.items()]
                continue
            del waiting[name]
            if isinstance(answer, Returned):
                learned[name] = answer.learned
        for letter in letters if log is not None else ():
            log.record(letter)
        arriving: dict[str, Mail] = {}
        for letter in network.carry(step, letters):
            if letter.receiver in waiting:
                arriving.setdefault(letter.receiver, {})[letter.sender] = letter.message
        under_way = bool(arriving) or network.pending
        if silence and not letters and not under_way and len(waiting) == before:
            raise RuntimeError(f"no message under way, but {', '.join(waiting)} go on waiting")
        silence = not under_way
        mail = dict(arriving) if under_way else {name: {} for name in waiting}
        step += 1
    return learned


def reporting(party: Party, report: Callable[[], Any]) -> Party:
    """The same party, which returns (what it has learned, report()), the report made where and when the party ends."""
    learned = yield from party
    return learned, report()
