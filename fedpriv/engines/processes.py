"""One operating-system process for each party, on this machine.

Parties are generators, which cannot be moved, so the processes are forked once the parties exist; each then runs its
own. All that passes between processes are encoded messages through this process, in the same steps as in one process.
A party computes on one thread; results are those of one process to the bit where that too computes on one.

A party whose process dies, or takes longer than the timeout over a step, is silent for the others from then on. No
process outlives the exchange.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector, SelectorKey
from typing import TYPE_CHECKING, NoReturn

from fedpriv.engines.base import Engine, Host, Mail, Returned, Sent
from fedpriv.engines.frames import RoundTrip, read_frame, write_frame
from fedpriv.engines.inprocess import answer
from fedpriv.engines.messages import decode, encode
from fedpriv.errors import ConfigError, FedprivError, require

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party


@dataclass(frozen=True)
class Processes(Engine):
    """A process a party. timeout: seconds that a step may take, local training included."""

    timeout: float = 60.0

    def __post_init__(self) -> None:
        require(0 < self.timeout < math.inf, "engine.timeout", self.timeout, "a positive number of seconds")

    def check(self, device: str) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise ConfigError("engine", "processes", "this system cannot fork; allowed: inprocess")
        if device != "cpu":
            raise ConfigError("device", device, "a forked process cannot use it; with engine=processes allowed: cpu")

    @contextmanager
    def host(self, parties: dict[str, Party]) -> Iterator[Host]:
        children = _Children(self.timeout)
        try:
            for name, party in parties.items():
                children.start(name, party)
            yield children
        finally:
            children.end()


class _Children:
    """This side of all processes. A channel is a socket whose other end only the party's process has."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.processes: dict[str, multiprocessing.process.BaseProcess] = {}
        self.channels: dict[str, socket.socket] = {}

    def start(self, name: str, party: Party) -> None:
        self.channels[name], theirs = socket.socketpair()
        self.channels[name].setblocking(False)
        # A child must not hold our ends: it could not see them close when this process dies.
        args = (party, theirs, list(self.channels.values()), os.getpid())
        with theirs:
            self.processes[name] = multiprocessing.get_context("fork").Process(target=_live, args=args, daemon=True)
            self.processes[name].start()

    def end(self) -> None:
        for channel in self.channels.values():
            channel.close()
        started = [process for process in self.processes.values() if process.pid is not None]
        for process in started:
            process.kill()
        for process in started:
            process.join()

    def wake(self, mail: dict[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        replies = self._replies({name: encode(letters) for name, letters in mail.items()})
        return {name: _read(name, replies[name]) if name in replies else None for name in sorted(mail)}

    def _replies(self, mail: dict[str, bytes]) -> dict[str, bytes]:
        """Bring everybody's mail and wait for the replies; who does not reply in time is killed."""
        replies: dict[str, bytes] = {}
        deadline = time.monotonic() + self.timeout
        with DefaultSelector() as selector:
            for name, content in mail.items():
                trip = RoundTrip(self.channels[name], content)
                selector.register(trip.channel, EVENT_READ | EVENT_WRITE, (name, trip))
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, events in selector.select(left):
                    name, trip = key.data
                    try:
                        _advance(selector, key, events)
                    except (EOFError, OSError):
                        self._lose(name, "its process died")
                        selector.unregister(trip.channel)
                        continue
                    if trip.reply is not None:
                        replies[name] = trip.reply
                        selector.unregister(trip.channel)
            for key in selector.get_map().values():
                self._lose(key.data[0], f"no answer within engine.timeout={self.timeout:g} seconds")
        return replies

    def _lose(self, name: str, why: str) -> None:
        self.processes[name].kill()
        warnings.warn(f"{name} is silent from now on: {why}", RuntimeWarning, stacklevel=2)


def _advance(selector: DefaultSelector, key: SelectorKey, events: int) -> None:
    _, trip = key.data
    if events & EVENT_WRITE:
        trip.write()
        if not trip.unsent:
            selector.modify(trip.channel, EVENT_READ, key.data)
    if events & EVENT_READ:
        trip.read()


def _read(name: str, reply: bytes) -> Sent | Returned:
    kind, *content = decode(reply)
    if kind == "raised":
        _raise(name, *content)
    return {"sent": Sent, "returned": Returned}[kind](*content)


def _raise(name: str, ancestry: list[str], text: str, trace: str) -> NoReturn:
    """What a party raised, as its own class if it is a FedprivError that this process knows, else a RuntimeError."""
    known = {_title(cls): cls for cls in _family(FedprivError)}
    cls = next((known[title] for title in ancestry if title in known), None)
    if cls is None:
        error: Exception = RuntimeError(f"{name}: {ancestry[0]}: {text}")
    else:
        error = cls.__new__(cls, text)  # its __init__ may want other arguments than its text
    error.add_note(trace)
    raise error


def _family(cls: type) -> Iterator[type]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


def _title(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _live(party: Party, channel: socket.socket, foreign: list[socket.socket], parent: int) -> NoReturn:
    """A child's life: answer mail until the party has returned or raised, or the parent is gone."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
        _die_with(parent)
        for other in foreign:
            other.close()
        _compute_on_one_thread()
        going = True
        while going:
            going, reply = _answer(party, decode(read_frame(channel)))
            write_frame(channel, reply)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # nothing of the parent's that was copied here may be flushed or finalised


def _answer(party: Party, mail: Mail | None) -> tuple[bool, bytes]:
    """Whether the party goes on, and its encoded reply."""
    try:
        said = answer(party, mail)
        if isinstance(said, Sent):
            return True, encode(("sent", said.messages))
        return False, encode(("returned", said.learned))
    except Exception as error:
        texts = (str(error), traceback.format_exc())
        ancestry = [_title(cls) for cls in type(error).__mro__]
        return False, encode(("raised", ancestry, *(text.encode(errors="replace").decode() for text in texts)))


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; where it cannot, the process ends at its next message."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _compute_on_one_thread() -> None:
    """Worker threads do not survive a fork, and a library that waits for its own would wait for ever."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for libraries yet to be loaded
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
