"""The parties of a run as actors of Ray."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import ray

from fedpriv.engines.descriptions import describe
from fedpriv.engines.party_host import HostedSession, aborting, raise_failure, read_reply
from fedpriv.engines.ray_cluster import CONNECTION, Node, Share, nodes
from fedpriv.engines.ray_party import HEAD, PIECE, PartyProcess, batches
from fedpriv.errors import FedprivError, FedprivWarning, RefusedError
from fedpriv.parties.messages import LIMIT, encode
from fedpriv.parties.party import Memory, PartySpec
from fedpriv.util.source_commit import package

PLACING = 20.0
"""Seconds that a cluster gets to find room for a party, and then, beyond `engine.timeout`, to start
its process. Ray takes up to 15 seconds to notice that a node is gone."""

AT_ONCE = 64
"""Pieces of a reply that are requested at once."""


class RaySession(HostedSession):
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
        super().__init__()
        self.specs = dict(specs)
        self.timeout = timeout
        self.threads = threads
        self.share = Share(cpus, gpus)
        self.actors: dict[str, Any] = {}
        self.homes: dict[str, Node] = {}
        self.lacks = False  # whether room was missing at the last look
        CONNECTION.enter(address)
        self.closed = False
        try:
            self.share.require_room(len(specs))
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
            remote: Any = ray.remote  # its annotations leave out options of actors
            self.actor_class = remote(concurrency_groups={"watch": 1}, **options)(PartyProcess)
            self._start({name: memories.get(name, {}) for name in specs})
        except BaseException:
            self.close()
            raise

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
                ray.kill(self.actors.pop(name))
            self.homes.pop(name, None)
            self.reasons.pop(name, None)
        # Helpers, which no run can do without, are described last.
        names = [name for name in reversed(self.specs) if name in memories]
        missing = self._missing(len(names))
        for name in names[len(names) - missing :]:
            self._lose(name, f"no room for it in the cluster, which lacks {self.share.of(missing)}")
        started = [name for name in names if name not in self.reasons]
        self.actors |= {name: self.actor_class.remote() for name in started}
        place = (os.getcwd(), [os.path.abspath(entry) for entry in sys.path], self.threads)
        places = self._prepared(
            {name: self.actors[name].prepare.remote(*place) for name in started}
        )
        known = {node.id: node for node in nodes()} if places else {}
        self.homes |= {name: known[home] for name, home in places.items() if home in known}
        requests = {
            name: encode((describe(self.specs[name], name), dict(memories[name])))
            for name in places
        }
        self._ask("open", requests, starting=True)

    def _prepared(self, calls: Mapping[str, Any]) -> dict[str, str]:
        """The ids of the nodes on which processes have started, by party. Raises FedprivError
        unless every one runs the coordinator's code: another fedpriv may not even know this
        question."""
        own = package()
        try:
            told = self._replies(calls, starting=True)
        except ray.exceptions.RayTaskError as error:
            raise _mixed("a node has another fedpriv") from error
        homes: dict[str, str] = {}
        for name, answer in sorted(told.items()):
            homes[name], code = answer if type(answer) is tuple else ("", "another fedpriv")
            if code != own:
                raise _mixed(f"the node of {name} has {code}")
        return homes

    def _missing(self, wanted: int) -> int:
        """For how many of so many more parties the cluster has no room. Waits for room, but not
        again as long as this is in vain, and for Ray to notice nodes that are gone."""
        parties = wanted + len(self.actors)
        end = time.monotonic() + (0.0 if self.lacks else min(PLACING, self.timeout))
        said = False
        while True:
            CONNECTION.require_head(self.timeout, since=0.0)
            present = nodes()
            answering = [node for node in present if node.answers()]
            missing = min(wanted, int(max(0, parties - self.share.places(answering))))
            self.lacks = missing > 0
            if time.monotonic() >= end or not (missing or len(answering) < len(present)):
                return missing
            if missing and not said:
                warnings.warn(f"waiting for {self.share.of(missing)}", FedprivWarning, stacklevel=3)
                said = True
            time.sleep(0.25)

    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        memories = self._ask("checkpoint", dict.fromkeys(names, b""))
        return {name: memory for name, (_, memory) in memories.items()}

    def _ask(
        self, verb: str, requests: Mapping[str, bytes], *, starting: bool = False
    ) -> dict[str, tuple[str, Any]]:
        """Each party's reply to its request; lost parties are missing, and those that refuse an
        exchange. Raises the exception of the first party, by name, that raises another one."""
        pending = {}
        for name, request in requests.items():
            if name not in self.reasons:
                *early, last = batches(request)
                for pieces in early:
                    self.actors[name].take.remote(verb, *pieces)
                pending[name] = self.actors[name].serve.remote(verb, *last)
        replies = {}
        for name, start in sorted(self._replies(pending, starting=starting).items()):
            raw = self._rest(name, start)
            if raw is None:
                continue
            try:
                replies[name] = read_reply(verb, raw, len(self.specs))
            except ValueError as error:
                self._lose(name, f"its reply cannot be read ({error})")
        for name, (outcome, content) in [*replies.items()]:
            if outcome == "raised":
                refusal = aborting(name, content, RefusedError) if verb == "wake" else None
                if refusal is None:
                    raise_failure(name, content)
                self.refusals[name] = refusal
                del replies[name]
        return replies

    def _replies(self, pending: Mapping[str, Any], *, starting: bool) -> dict[str, Any]:
        """The results of one call to each party. A party that is silent for `engine.timeout`
        seconds, and not busy, is lost.

        starting: whether their processes start, which load their libraries one after the other on a
            small machine: nobody is silent while others come.
        """
        results: dict[str, Any] = {}
        calls = {ref: name for name, ref in pending.items()}
        probes = dict[Any, str]()
        silence = dict.fromkeys(pending, 0.0)
        tick = min(1.0, self.timeout / 4)
        limit = self.timeout + (PLACING if starting else 0.0)
        while calls:
            CONNECTION.require_head(self.timeout)
            began = time.monotonic()
            ready, _ = ray.wait([*calls], num_returns=len(calls), timeout=tick)
            passed = min(tick, time.monotonic() - began)  # without the time that this process slept
            for ref in ready:
                name = calls.pop(ref)
                answered, result = self._result(name, ref)
                if answered:
                    results[name] = result
            for name in calls.values():
                silence[name] = 0.0 if ready and starting else silence[name] + passed
            for name in self._busy(probes):
                silence[name] = 0.0
            for ref, name in list(calls.items()):
                if silence[name] > limit:
                    self._lose(name, self._why_silent(name))
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

    def _rest(self, name: str, start: bytes) -> bytes | None:
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
            answered, pieces = self._result(name, refs, self.timeout)
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
            self._lose(name, self._why_silent(name))
        except ray.exceptions.RayError as error:
            self._lose(name, self._why_dead(name, str(error)))
        return False, None

    def _why_silent(self, name: str) -> str:
        if name not in self.homes:
            return (
                f"no process for it within {self.timeout + PLACING:g} seconds; the cluster is busy"
            )
        return self._left(name) or f"no answer within engine.timeout={self.timeout:g} seconds"

    def _why_dead(self, name: str, error: str) -> str:
        """Ray's reasons are long texts for those who know Ray, and differ with the moment."""
        if "No module named" in error:
            return "its node has no fedpriv, or another one: install the same one on every node"
        if "OUT_OF_MEMORY" in error or "OutOfMemory" in error:
            return "its process was ended, since its node ran out of memory"
        return self._left(name) or "its process died"

    def _left(self, name: str) -> str:
        """A line, if the party's node is gone; else empty."""
        home = self.homes.get(name)
        if home is None or home.answers():
            return ""
        return f"its node {home.address} has left the cluster"

    def _lose(self, name: str, why: str) -> None:
        if name not in self.reasons:
            self.reasons[name] = why
            if name in self.actors:
                ray.kill(self.actors.pop(name))
            warnings.warn(f"{name} is silent from now on: {why}", FedprivWarning, stacklevel=2)


def _mixed(found: str) -> FedprivError:
    return FedprivError(
        f"{found}, and the coordinator has {package()}: install the same one on every node"
    )
