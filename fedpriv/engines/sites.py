"""Silos at organisations of their own: each dials this process, the coordinator, and answers it.

The coordinator has no records and none of the silos' keys. Helpers run in this process. Each silo
runs where its records are (`fedpriv site serve`), by its own copy of the study.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from fedpriv.engines.base import Engine, Session
from fedpriv.engines.study import Study
from fedpriv.errors import ConfigError, require
from fedpriv.parties.party import Memory, Participant, PartySpec
from fedpriv.util.installed import how_to_install

COORDINATOR = "coordinator"
"""The name of the coordinator's certificate."""


@dataclass(frozen=True)
class AtSite(PartySpec):
    """A silo at a site of its own, which makes it.

    settings: digest of the run's settings, which its own must have.
    """

    settings: bytes

    def open(self, memory: Memory) -> Participant:
        raise TypeError("a silo of a site opens at the site alone")


@dataclass(frozen=True)
class Sites(Engine):
    """Silos of a study, each at its own site.

    study: file of the study.
    listen: host and port to listen on, such as 0.0.0.0:8443.
    certificates: folder with the certificate of every silo and of the coordinator, NAME.pem.
    waiting: seconds to wait for the sites before the first round.
    timeout: seconds that a site may take for an answer, local training included.
    roster, keys: see `Engine`; keys also has the coordinator's TLS key, coordinator.tls.
    """

    addresses: ClassVar[tuple[str, ...]] = ("study", "listen", "certificates", *Engine.addresses)

    study: str | None = None
    listen: str = "localhost:8443"
    certificates: str = "certificates"
    waiting: float = 600.0
    timeout: float = 600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.study is not None, "engine.study", "null", "the file of the study")
        require(self.roster is not None, "engine.roster", "null", "the file of the parties' keys")
        for key in ("waiting", "timeout"):
            seconds = getattr(self, key)
            require(0 < seconds <= 1e6, f"engine.{key}", seconds, "from above 0 to 1e6 seconds")

    @cached_property
    def published(self) -> Study:
        assert self.study is not None
        return Study.read(Path(self.study))

    def check(self, device: str) -> None:
        if find_spec("grpc") is None:
            missing = f"gRPC is not installed; {how_to_install('sites')}"
            raise ConfigError("engine", "sites", missing)

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        from fedpriv.engines.site_lines import Certificates, Switchboard
        from fedpriv.engines.sites_session import SitesSession

        assert self.keys is not None
        apart = {name: one for name, one in specs.items() if isinstance(one, AtSite)}
        key = Path(self.keys) / f"{COORDINATOR}.tls"
        own = Certificates(COORDINATOR, key, Path(self.certificates))
        board = Switchboard(self.listen, tuple(apart), own)
        helpers = {name: one for name, one in specs.items() if name not in apart}
        digests = {name: one.settings for name, one in apart.items()}
        return SitesSession(helpers, digests, board, self.waiting, self.timeout)
