"""Engines: where the parties live and how their messages travel.

The network is synchronous: in every step the parties that have mail wake, and what they send
arrives in the next step. A party that has nothing to say stays silent; whoever counts on it sees
its name missing from the mail. When no message is under way, every waiting party wakes with empty
mail, which is how it learns that nobody will answer. It also does after `PATIENCE` steps in which
nothing came for it, so that nobody who goes on talking keeps others waiting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fedpriv.parties.party import PATIENCE, Mail, Memory, PartySpec
from fedpriv.parties.traffic import Letter, Traffic

STRAGGLING = 10_000
"""Steps after somebody's return in which nobody else's follows: whoever still goes on is left
behind, as if it were lost. Each wait of an honest party ends long before."""


@dataclass(frozen=True)
class Sent:
    """A party's answer to being woken: messages, and it waits."""

    messages: Mail


@dataclass(frozen=True)
class Returned:
    """A party's last answer: what it has learned."""

    learned: Any


class Network:
    """The way from sender to receiver; this one delivers everything at once."""

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        """What arrives in the step after `step`, in which `letters` were sent."""
        return letters

    @property
    def pending(self) -> bool:
        """Whether messages of earlier steps are still under way."""
        return False


class Session(AbstractContextManager["Session"], ABC):
    """The parties' life, as long as the run. Leaving it ends everything that was started for
    them.
    """

    network: Callable[[], Network] = Network
    """Makes a fresh network for each exchange."""

    @abstractmethod
    def begin(self, tasks: Mapping[str, Any]) -> None:
        """Give each named party its task of the next exchange; whatever was left of the last one is
        dropped."""

    @abstractmethod
    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        """Give each named party its mail (None the first time) and return each one's answer, None
        for one that is gone without an answer and will not come back. Raises what a party
        raises."""

    @property
    @abstractmethod
    def lost(self) -> frozenset[str]:
        """Parties that are gone, with their memory."""

    @abstractmethod
    def reopen(self, memories: Mapping[str, Memory]) -> None:
        """Make the named parties anew, each from its last checkpoint. What they knew beside it is
        lost, so that the set-up must be repeated with everybody."""

    @abstractmethod
    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        """What the named parties give out to be kept; those that are lost are missing."""

    @abstractmethod
    def close(self) -> None:
        """End every party."""

    def elapsed(self, seconds: Iterable[float]) -> float:
        """How long computations of several parties take together: one after the other, or the
        longest if they run side by side."""
        return sum(seconds)

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(self, tasks: Mapping[str, Any], traffic: Traffic | None = None) -> dict[str, Any]:
        """Deliver messages until every party with a task has returned; returns what each one has
        learned, by name. A party that was lost before or on the way is missing, and one that never
        ends.

        traffic: counts what is sent; then every message must be one that `messages.encode` takes.
        Raises whatever a party raises, and RuntimeError when parties go on without sending or
        returning.
        """
        present = {name: task for name, task in sorted(tasks.items()) if name not in self.lost}
        self.begin(present)
        return _deliver(self, self.network(), list(present), traffic)


@dataclass(frozen=True)
class Engine(ABC):
    """Opens sessions."""

    def check(self, device: str) -> None:  # noqa: B027
        """Raise ConfigError when this engine cannot run here, or not with parties that train on
        `device`."""

    @abstractmethod
    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        """Make every party.

        memories: the last checkpoints; parties without one start afresh.
        """


SILENCES = 8
"""Times that everybody may be told of silence and nobody speak or end: a party that has said
something and then waits for something else ends at the second."""


def _deliver(
    session: Session, network: Network, names: list[str], traffic: Traffic | None
) -> dict[str, Any]:
    learned: dict[str, Any] = {}
    waiting = dict.fromkeys(names, 0)  # the step in which each was woken last
    mail: dict[str, Mail | None] = dict.fromkeys(
        names
    )  # a generator's first wake-up carries nothing
    silence = False
    step = 0
    ended = None
    idle = 0
    while waiting:
        letters = []
        before = len(waiting)
        waiting |= dict.fromkeys(mail, step)
        for name, answer in session.wake(mail).items():
            if isinstance(answer, Sent):
                letters += [
                    Letter(step, name, receiver, message)
                    for receiver, message in answer.messages.items()
                ]
                continue
            del waiting[name]
            if isinstance(answer, Returned):
                learned[name] = answer.learned
        if traffic is not None:
            for letter in letters:
                traffic.record(letter)
        if len(waiting) < before:
            ended = step
        if ended is not None and step - ended > STRAGGLING:
            break
        arriving: dict[str, Mail] = {}
        for letter in network.carry(step, letters):
            if letter.receiver in waiting:
                arriving.setdefault(letter.receiver, {})[letter.sender] = letter.message
        under_way = bool(arriving) or network.pending
        idle = (
            idle + 1 if silence and not letters and not under_way and len(waiting) == before else 0
        )
        if idle > SILENCES:
            raise RuntimeError(f"no message under way, but {', '.join(waiting)} go on waiting")
        silence = not under_way
        mail = {name: {} for name, woken in waiting.items() if silence or step - woken >= PATIENCE}
        mail.update(arriving)
        step += 1
    return learned
