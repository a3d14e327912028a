"""The parties of a run as actors of Ray."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray

from fedpriv.engines.base import Answer, Returned, Session
from fedpriv.engines.bundles import MARK, bundled, unbundled
from fedpriv.engines.descriptions import describe
from fedpriv.engines.party_host import PartyFailure, raise_failure
from fedpriv.engines.ray_cluster import CONNECTION
from fedpriv.engines.ray_party import HEAD, PIECE, PartyProcess, batches
from fedpriv.errors import require
from fedpriv.parties.messages import LIMIT, decode, encode
from fedpriv.parties.party import Mail, Memory, PartySpec

STARTING = 600.0
"""Seconds for starting the processes and creating the parties. On a small machine they load their
libraries one after the other."""

REPLIES: dict[str, dict[str, type]] = {
    "open": {"done": type(None)},
    "begin": {"done": type(None)},
    "wake": {"returned": object},
    "checkpoint": {"done": dict},
}
"""Names of the replies to each request, with the type of their content. Any request may be answered
by an exception, and wake by a bundle of messages."""

AT_ONCE = 64
"""Pieces of a reply that are requested at once."""


class RaySession(Session):
    """One actor per party, created from its description alone. Arguments: see `RayEngine`."""

    def __init__(
        self,
        specs: Mapping[str, PartySpec],
        memories: Mapping[str, Memory],
        *,
        address: str | None,
        timeout: float,
        cpus: float,
        gpus: float,
        threads: int,
    ) -> None:
        self.specs = dict(specs)
        self.timeout = timeout
        self.threads = threads
        self.actors: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        CONNECTION.enter(address)
        self.closed = False
        try:
            _require_resources(len(specs), cpus, gpus)
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
            remote: Any = ray.remote  # its annotations leave out options of actors
            self.actor_class = remote(concurrency_groups={"watch": 1}, **options)(PartyProcess)
            self.reopen({name: memories.get(name, {}) for name in specs})
            if self.reasons:
                name, why = min(self.reasons.items())
                raise RuntimeError(f"{name} could not be started: {why}")
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(self.reasons)

    def why_lost(self, name: str) -> str:
        return self.reasons[name]

    def elapsed(self, seconds: Iterable[float]) -> float:
        return max(seconds, default=0.0)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            for actor in self.actors.values() if ray.is_initialized() else ():
                ray.kill(actor)
        finally:
            self.actors.clear()
            CONNECTION.leave()

    def reopen(self, memories: Mapping[str, Memory]) -> None:
        for name in memories:
            if name in self.actors:
                ray.kill(self.actors[name])
            self.reasons.pop(name, None)
            self.actors[name] = self.actor_class.remote()
        place = (os.getcwd(), [os.path.abspath(entry) for entry in sys.path], self.threads)
        self._replies(
            {name: self.actors[name].prepare.remote(*place) for name in memories}, STARTING
        )
        requests = {
            name: encode((describe(self.specs[name], name), dict(memories[name])))
            for name in memories
        }
        self._ask("open", requests, STARTING)

    def begin(self, tasks: Mapping[str, Any]) -> None:
        self._ask("begin", {name: encode(task) for name, task in tasks.items()}, self.timeout)

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        requests = {
            name: b"" if letters is None else bundled(letters) for name, letters in mail.items()
        }
        said = self._ask("wake", requests, self.timeout)
        answers: dict[str, Answer | None] = dict.fromkeys(sorted(mail))
        for name, (kind, content) in said.items():
            answers[name] = Returned(content) if kind == "returned" else content
        return answers

    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        memories = self._ask("checkpoint", dict.fromkeys(names, b""), self.timeout)
        return {name: memory for name, (_, memory) in memories.items()}

    def _ask(
        self, verb: str, requests: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[str, Any]]:
        """Each party's reply to its request; lost parties are missing. Raises the exception of the
        first party, by name, that raises one."""
        pending = {}
        for name, request in requests.items():
            if name not in self.reasons:
                *early, last = batches(request)
                for pieces in early:
                    self.actors[name].take.remote(verb, *pieces)
                pending[name] = self.actors[name].serve.remote(verb, *last)
        replies = {}
        for name, start in sorted(self._replies(pending, timeout).items()):
            raw = self._rest(name, start, timeout)
            if raw is None:
                continue
            try:
                replies[name] = _reply(verb, raw, len(self.specs))
            except ValueError as error:
                self._lose(name, f"its reply cannot be read ({error})")
        for name, (outcome, content) in replies.items():
            if outcome == "raised":
                raise_failure(name, content)
        return replies

    def _replies(self, pending: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The results of one call to each party. A party that is silent for `timeout` seconds, and
        not busy, is lost."""
        results: dict[str, Any] = {}
        calls = {ref: name for name, ref in pending.items()}
        probes = dict[Any, str]()
        silence = dict.fromkeys(pending, 0.0)
        tick = min(1.0, timeout / 4)
        while calls:
            began = time.monotonic()
            ready, _ = ray.wait([*calls], num_returns=len(calls), timeout=tick)
            passed = min(tick, time.monotonic() - began)  # without the time that this process slept
            for ref in ready:
                name = calls.pop(ref)
                answered, result = self._result(name, ref)
                if answered:
                    results[name] = result
            for name in calls.values():
                silence[name] += passed
            for name in self._busy(probes):
                silence[name] = 0.0
            for ref, name in list(calls.items()):
                if silence[name] > timeout:
                    self._lose(name, f"no answer within engine.timeout={self.timeout:g} seconds")
                if name in self.reasons:
                    del calls[ref]
            unasked = set(calls.values()) - set(probes.values())
            probes |= {self.actors[name].patience.remote(): name for name in unasked}
        return results

    def _busy(self, probes: dict[Any, str]) -> set[str]:
        """The parties that answer that they are busy. Removes answered probes from `probes`."""
        ready, _ = ray.wait([*probes], num_returns=len(probes), timeout=0) if probes else ([], [])
        names = [(probes.pop(ref), ref) for ref in ready]
        return {name for name, ref in names if self._result(name, ref) == (True, True)}

    def _rest(self, name: str, start: bytes, timeout: float) -> bytes | None:
        """The whole reply that begins with `start`; None if the party is lost over it. The
        announced length is compared with the limit, one message for each party, before anything is
        requested, and the pieces are compared with that length."""
        length = int.from_bytes(start[:HEAD], "little")
        parts = [start[HEAD:]]
        places = range(PIECE, length, PIECE)
        most = LIMIT * len(self.specs)
        if length > most or len(parts[0]) != min(PIECE, length):
            self._lose(
                name,
                f"a reply that claims {length} bytes (at most {most}) and begins with "
                f"{len(parts[0])}",
            )
            return None
        for first in range(0, len(places), AT_ONCE):
            refs = [
                self.actors[name].give.remote(place) for place in places[first : first + AT_ONCE]
            ]
            answered, pieces = self._result(name, refs, timeout)
            if not answered:
                return None
            if any(len(piece) > PIECE for piece in pieces):
                break
            parts += pieces
        if sum(map(len, parts)) == length:
            return b"".join(parts)
        self._lose(name, f"a reply that does not have the {length} bytes that it should have")
        return None

    def _result(self, name: str, refs: Any, timeout: float | None = None) -> tuple[bool, Any]:
        """Whether there is a result, and the result; a party without one is lost."""
        try:
            return True, ray.get(refs, timeout=timeout)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.GetTimeoutError:
            self._lose(name, f"no answer within engine.timeout={self.timeout:g} seconds")
        except ray.exceptions.RayError as error:
            self._lose(name, f"its process died ({_reason(error)})")
        return False, None

    def _lose(self, name: str, why: str) -> None:
        if name not in self.reasons:
            self.reasons[name] = why
            ray.kill(self.actors[name])
            warnings.warn(f"{name} is silent from now on: {why}", RuntimeWarning, stacklevel=2)


def _reply(verb: str, raw: bytes, parties: int) -> tuple[str, Any]:
    """A party's answer. Raises ValueError, or MessageError, for bytes that no `PartyProcess`
    sends."""
    if verb == "wake" and raw[:1] == MARK:
        return "sent", unbundled(raw, parties)
    reply = decode(raw)
    types = {"raised": PartyFailure} | REPLIES[verb]
    if type(reply) is not tuple or len(reply) != 2 or type(reply[0]) is not str:
        raise ValueError("not a name and a content")
    name, content = reply
    if name not in types or not isinstance(content, types[name]):
        raise ValueError(f"{name[:20]!r} with {type(content).__name__} to {verb}")
    return name, content


def _require_resources(parties: int, cpus: float, gpus: float) -> None:
    resources: Callable[[], dict[str, float]] = ray.cluster_resources
    present = resources()
    for key, resource, each in (("cpus", "CPU", cpus), ("gpus", "GPU", gpus)):
        needed, available = parties * each, present.get(resource, 0.0)
        allowed = f"all parties need {needed:g} {resource}s, and Ray has {available:g}"
        require(needed <= available, f"engine.{key}_per_party", each, allowed)


def _reason(error: Exception) -> str:
    """Why an actor died, in one line."""
    exit_type = re.search(r"Worker exit type: (\w+)", str(error))
    return exit_type[1] if exit_type else str(error).strip().split("\n")[-1]
