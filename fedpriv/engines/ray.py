"""Runs each party, silos and helpers alike, as an actor of Ray, on this machine or on a cluster.

The coordinator holds nothing of a party but its description. A party's process gets this
description, then its tasks and its mail. Messages travel through the coordinator, in the same steps
as in one process.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from fedpriv.engines.base import Engine, Session
from fedpriv.errors import ConfigError, require
from fedpriv.parties.party import Memory, PartySpec
from fedpriv.util.installed import how_to_install


@dataclass(frozen=True)
class RayEngine(Engine):
    """Parties as actors.

    address: of a cluster that this machine belongs to, "host:port" or "auto"; None: a private
        instance on this machine, which ends with the session.
    timeout: seconds without an answer after which a party that is not computing is lost. Local
        training may take any time.
    cpus_per_party: cores that Ray reserves for each party, or a fraction of one; with 0 there may
        be more parties than cores.
    gpus_per_party: GPUs that Ray reserves for each party, or a fraction of one; with 0 each party
        sees all GPUs of its machine.
    threads: of each party. With one, results equal those of one process on one thread to the bit.
    journals: folder on each party's machine, in which a silo writes each set-up and query of a
        study before its first message, and keeps its budget; null: in memory, for as long as its
        process lives.
    roster, keys: see `Engine`. Each party reads its own key on its own machine.
    """

    addresses: ClassVar[tuple[str, ...]] = (
        *("address", "journals"),
        *Engine.addresses,
    )

    address: str | None = None
    timeout: float = 60.0
    cpus_per_party: float = 0.0
    gpus_per_party: float = 0.0
    threads: int = 1
    journals: str | None = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.roster is None or self.journals is not None,
            "engine.journals",
            self.journals,
            "a folder: with engine.roster, keys outlive a process, so a silo has to remember its "
            "set-ups",
        )
        require(
            0 < self.timeout <= 1e6,
            "engine.timeout",
            self.timeout,
            "a positive number of seconds, at most 1e6",
        )
        for key in ("cpus_per_party", "gpus_per_party"):
            share = getattr(self, key)
            fits = 0 <= share < math.inf and (share <= 1 or share == math.floor(share))
            require(fits, f"engine.{key}", share, "0, a fraction of 1, or a whole number")
        require(self.threads >= 1, "engine.threads", self.threads, "a positive number of threads")

    def check(self, device: str) -> None:
        if self.gpus_per_party and device not in ("cpu", "cuda", "cuda:0"):
            allowed = "cpu or cuda: with engine.gpus_per_party each party sees its own GPUs only"
            raise ConfigError("device", device, allowed)
        self._require_ray()

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        self._require_ray()
        # Ray reads this on import; parties need nothing installed.
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        from fedpriv.engines.ray_session import RaySession

        return RaySession(
            specs,
            memories,
            address=self.address,
            timeout=self.timeout,
            cpus=self.cpus_per_party,
            gpus=self.gpus_per_party,
            threads=self.threads,
        )

    def _require_ray(self) -> None:
        """Raise ConfigError unless Ray is installed and something listens at the address. Ray
        itself would try for a long time."""
        if find_spec("ray") is None:
            raise ConfigError("engine", "ray", f"Ray is not installed; {how_to_install('ray')}")
        if self.address in (None, "auto"):
            return
        host, _, port = str(self.address).rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=10):
                pass
        except (OSError, ValueError, OverflowError) as error:
            allowed = "null, auto or host:port of a cluster that this machine belongs to"
            raise ConfigError(
                "engine.address", self.address, f"no cluster there ({error}); allowed: {allowed}"
            ) from error
