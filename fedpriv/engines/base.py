"""Engines: where parties run and how their messages travel.

The network is synchronous. In every step the parties that have mail wake; their messages arrive in
the next step. A party may send nothing; a party that waits for it finds its name missing from the
mail. When no message is on its way, every waiting party wakes with empty mail: nobody will answer.
A party also wakes with empty mail after `PATIENCE` steps without mail, so that others who go on
sending cannot keep it waiting.

>>> from fedpriv.engines.inprocess import InProcess
>>> from fedpriv.parties.party import Participant, PartySpec
>>> class Adder(PartySpec, Participant):
...     def open(self, memory):
...         return self
...     def take_part(self, task):
...         if task is None:
...             mail = yield {}
...             return sum(mail.values())
...         yield {"server": task}
>>> with InProcess().open({"a": Adder(), "b": Adder(), "server": Adder()}, {}) as session:
...     session.run({"a": 1, "b": 2, "server": None})["server"]
3
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv.errors import AggregationAbortedError, MisfitError, require
from fedpriv.parties.party import PATIENCE, Mail, Memory, PartySpec
from fedpriv.parties.traffic import Letter, Traffic

if TYPE_CHECKING:
    from fedpriv.engines.study import Study

STRAGGLING = 10_000
"""Steps after a party's return without another return. Parties that still go on then count as lost.
An honest party never waits so long."""


@dataclass(frozen=True)
class Returned:
    """A party's last answer: what it learned."""

    learned: Any


Answer = Mail | Returned
"""What a party answers: messages, and then it waits; or its last answer."""


class Network:
    """Delivers messages; this one delivers everything in the next step."""

    @property
    def faithful(self) -> bool:
        """Whether every message arrives as the object that was sent, or not at all. Parties of one
        process then need not sign their messages for each other."""
        return type(self) is Network

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        """The letters that arrive after `step`, in which `letters` were sent."""
        return letters

    @property
    def pending(self) -> bool:
        """Whether messages of earlier steps are still on their way."""
        return False


class Session(AbstractContextManager["Session"], ABC):
    """The running parties of a run. Leaving it ends everything that was started for them."""

    network: Callable[[], Network] = Network
    """Creates a network for each exchange."""

    refusals: dict[str, AggregationAbortedError]
    """By party that refuses this exchange, and is absent from it: what it says."""

    simulated: str = ""
    """What its parties leave out that parties of their own would do: a line; empty: nothing."""

    @abstractmethod
    def begin(self, tasks: Mapping[str, Any]) -> None:
        """Give each named party its task of the next exchange. The last exchange is dropped."""

    @abstractmethod
    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        """Give each named party its mail, None the first time, and return its answer. The answer is
        None for a party that was lost, or refuses. Raises what else a party raises."""

    @property
    @abstractmethod
    def lost(self) -> frozenset[str]:
        """Parties that are gone, and their memory with them."""

    def why_lost(self, name: str) -> str:
        """Why a lost party is gone, in one line."""
        return "silent"

    @abstractmethod
    def reopen(self, memories: Mapping[str, Memory]) -> None:
        """Create the named parties again, each from its last checkpoint. Their other memory is
        lost, so all parties must repeat the set-up."""

    @abstractmethod
    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        """Checkpoints of the named parties; lost parties are missing."""

    @abstractmethod
    def close(self) -> None:
        """End every party."""

    def elapsed(self, seconds: Iterable[float]) -> float:
        """Wall-clock seconds of several parties' computations: their sum if they run one after the
        other, the longest if they run in parallel."""
        return sum(seconds)

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(self, tasks: Mapping[str, Any], traffic: Traffic | None = None) -> dict[str, Any]:
        """Deliver messages until every party with a task has returned. Return what each party
        learned, by name. Lost parties are missing, and so are parties that refuse or never end.

        traffic: counts messages; `messages.encode` must then accept each of them.

        Raises what else a party raises, and RuntimeError when parties neither send nor return. If
        nothing comes of it because a party refuses, raises its refusal.
        """
        self.refusals = {}
        present = {name: task for name, task in sorted(tasks.items()) if name not in self.lost}
        self.begin(present)
        network = self.network()
        recorded = traffic is not None and traffic.transcript is not None
        try:
            with self.exchanging(watched=recorded or not network.faithful):
                learned = _deliver(self, network, list(present), traffic)
        except MisfitError:
            raise
        except AggregationAbortedError as abort:
            raise next(iter(self.refusals.values()), abort) from None
        if self.refusals and not learned:
            raise next(iter(self.refusals.values()))
        return learned

    def exchanging(self, *, watched: bool) -> AbstractContextManager[object]:
        """Context of one exchange.

        watched: whether somebody may read or change messages on their way.
        """
        return nullcontext()


@dataclass(frozen=True)
class Engine(ABC):
    """Opens sessions.

    addresses: names of the arguments that say where it connects, reads or writes.
    journals: folder in which each silo keeps its journal of a study; None: in memory.
    roster: file with all parties' verification keys, on each party's machine; None: every process
        makes new keys for all.
    keys: folder with a party's private key, on its machine. Only together with `roster`.
    """

    addresses: ClassVar[tuple[str, ...]] = ("roster", "keys")
    journals: ClassVar[str | None] = None

    @property
    def published(self) -> Study | None:
        """The study whose organisations hold the records; None: this process loads them."""
        return None

    roster: str | None = field(default=None, kw_only=True)
    keys: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for key, other in (("roster", "keys"), ("keys", "roster")):
            both = getattr(self, key) is not None or getattr(self, other) is None
            allowed = f"a path, with engine.{other}={getattr(self, other)}"
            require(both, f"engine.{key}", getattr(self, key), allowed)

    def check(self, device: str) -> None:  # noqa: B027
        """Raise ConfigError if this engine cannot run here, or not with training on `device`."""

    @abstractmethod
    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        """Create every party.

        specs: by name.
        memories: the last checkpoints by name; parties without one start without memory.
        """


SILENCES = 8
"""How often all parties may wake with empty mail while nobody sends or returns. An honest party
ends at the second time."""


def _deliver(
    session: Session, network: Network, names: list[str], traffic: Traffic | None
) -> dict[str, Any]:
    learned: dict[str, Any] = {}
    waiting = dict.fromkeys(names, 0)  # step of each party's last wake-up
    mail: dict[str, Mail | None] = dict.fromkeys(names)  # a generator starts with None
    silence = False
    step = 0
    ended = None
    idle = 0
    while waiting:
        letters = []
        before = len(waiting)
        waiting |= dict.fromkeys(mail, step)
        for name, answer in session.wake(mail).items():
            if isinstance(answer, Returned):
                learned[name] = answer.learned
            elif answer is not None:
                letters += [
                    Letter(step, name, receiver, message) for receiver, message in answer.items()
                ]
                continue
            del waiting[name]
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
