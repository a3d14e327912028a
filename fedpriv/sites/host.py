"""The silo of a site, as the coordinator may ask it: it tells nothing that no epsilon covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedpriv.engines.party_host import PartyFailure, PartyHost, failure_of
from fedpriv.errors import AggregationAbortedError, RefusedError
from fedpriv.parties.messages import encode
from fedpriv.rounds.query import SiloReport
from fedpriv.runtime.silo import SiloSpec
from fedpriv.util.logs import LOGGER
from fedpriv.util.printing import printable
from fedpriv.util.source_commit import package


class SiteHost(PartyHost):
    """A host of one silo.

    spec: of the silo, made at the site.
    paused: whether it refuses every round for now.
    refused: number of requests that it has refused.
    """

    def __init__(self, spec: SiloSpec, paused: Callable[[], bool]) -> None:
        super().__init__()
        self.spec = spec
        self.paused = paused
        self.refused = 0

    def answer(self, request: bytes) -> bytes:
        """The reply to one frame of the coordinator: a verb, a space and bytes."""
        verb, _, content = request.partition(b" ")
        return self.reply(verb.decode(errors="replace"), content)

    @property
    def computing(self) -> bool:
        """Whether silence is no sign of a lost party."""
        return self.participant is None or self.participant.computing

    def open(self, request: bytes) -> bytes:
        """request: version and code of the coordinator, a line, and the digest of its settings."""
        version, _, digest = request.partition(b"\n")
        if version != package().encode():
            raise RefusedError(
                f"silo{self.spec.index} has {package()}, and the coordinator has "
                f"{version.decode(errors='replace')[:60]!r}: install the same one at every site"
            )
        if digest != self.spec.settings.digest:
            raise RefusedError(
                f"silo{self.spec.index} refuses the run: the coordinator has other settings than "
                "the study"
            )
        self.participant = self.spec.open({})
        return encode(("done", None))

    def _wake(self, request: bytes) -> bytes:
        if self.paused():
            raise RefusedError(f"silo{self.spec.index} refuses every round: its site has paused")
        return super()._wake(request)

    def _checkpoint(self, request: bytes) -> bytes:
        return encode(("done", {}))

    def told(self, learned: Any) -> Any:
        """What the silo has learned, without diagnostics and times, which no epsilon covers."""
        if isinstance(learned, SiloReport):
            return replace(learned, stats=None, seconds=0.0)
        return learned

    def failure(self, error: Exception) -> PartyFailure:
        """Refusals in words; of anything else only that it happened, as texts of errors may hold
        records."""
        if isinstance(error, AggregationAbortedError):
            self.refused += 1
            LOGGER.warning("refused (%d): %s", self.refused, printable(str(error)))
            return replace(failure_of(error), trace="")
        LOGGER.warning("%s", error, exc_info=True)
        return PartyFailure((), "it failed; the log of its site says why", "")
