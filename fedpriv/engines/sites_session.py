"""The coordinator's session with silos at sites of their own."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from fedpriv.engines.base import Answer
from fedpriv.engines.inprocess import InProcessSession
from fedpriv.engines.party_host import HostedSession, aborting, in_words, read_reply
from fedpriv.engines.site_lines import EndedError, Line, Switchboard
from fedpriv.errors import FedprivError, FedprivWarning
from fedpriv.parties.party import Mail, Memory, PartySpec
from fedpriv.util.logs import LOGGER
from fedpriv.util.printing import printable
from fedpriv.util.source_commit import package

REDIAL = 10.0
"""Seconds that a lost site has to dial again before a set-up."""


class SitesSession(HostedSession):
    """Helpers in this process, and silos that dial it. A silo's memory never leaves its site, so
    its checkpoint is empty here."""

    def __init__(
        self,
        helpers: Mapping[str, PartySpec],
        settings: Mapping[str, bytes],
        board: Switchboard,
        waiting: float,
        timeout: float,
    ) -> None:
        """settings: by silo, the digest of the settings that its site must have."""
        super().__init__()
        self.settings = settings
        self.silos = silos = tuple(settings)
        self.board = board
        self.timeout = timeout
        self.helpers = InProcessSession(helpers, {})
        LOGGER.info("waiting for %s", ", ".join(silos))
        try:
            if missing := sorted(board.wait(frozenset(silos), waiting)):
                why = board.certificates.outdated(*missing)
                raise FedprivError(
                    f"engine.waiting={waiting:g}: {', '.join(missing)} did not dial in"
                    f"{why and f' ({why})'}"
                )
            self._start({name: {} for name in silos})
        except BaseException:
            self.close()
            raise

    def elapsed(self, seconds: Iterable[float]) -> float:
        return 0.0  # sites do not tell

    def close(self) -> None:
        self.board.close()
        self.helpers.close()

    def exchanging(self, *, watched: bool) -> AbstractContextManager[object]:
        # Sites verify what a helper signs.
        return self.helpers.exchanging(watched=True)

    def reopen(self, memories: Mapping[str, Memory]) -> None:
        self.helpers.reopen({name: {} for name in memories if name not in self.silos})
        silos = [name for name in self.silos if name in memories]
        self.board.wait(frozenset(silos), min(REDIAL, self.timeout))
        for name in silos:
            self.reasons.pop(name, None)
        ours = package().encode()
        self._ask("open", {name: ours + b"\n" + self.settings[name] for name in silos})

    def begin(self, tasks: Mapping[str, Any]) -> None:
        here, apart = self._parted(tasks)
        self.helpers.begin(here)
        super().begin(apart)

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        here, apart = self._parted(mail)
        self.helpers.refusals = self.refusals
        answers = self.helpers.wake(here) | super().wake(apart)
        return {name: answers[name] for name in sorted(answers)}

    def _parted(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is for helpers, and what is for silos."""
        here = {name: one for name, one in named.items() if name not in self.silos}
        return here, {name: one for name, one in named.items() if name in self.silos}

    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        return {name: {} for name in names if name not in self.reasons}

    def _ask(self, verb: str, requests: Mapping[str, bytes]) -> dict[str, tuple[str, Any]]:
        """As `HostedSession._ask`; silos that refuse this exchange are missing too."""
        asked = {}
        for name in sorted(requests.keys() - self.reasons.keys()):
            line = self.board.lines.get(name)
            if line is None:
                self._lose(name, self.board.why_away(name))
            else:
                asked[name] = line, line.ask(f"{verb} ".encode() + requests[name])
        replies: dict[str, tuple[str, Any]] = {}
        for name, (line, reply) in asked.items():
            try:
                raw = line.within(reply, self.timeout)
                replies[name] = read_reply(verb, raw, len(self.silos) + len(self.helpers.specs))
            except EndedError as ended:
                self._lose(name, str(ended), line)
            except ValueError as error:
                self._lose(name, f"its reply cannot be read ({error})", line)
        for name, (kind, content) in [*replies.items()]:
            if kind == "raised":
                del replies[name]
                abort = aborting(name, content) if verb == "wake" else None
                if abort is None:
                    self._lose(name, in_words(content))
                else:
                    self.refusals[name] = abort
        return replies

    def _lose(self, name: str, why: str, line: Line | None = None) -> None:
        """Count a silo as lost until it is opened again. A late answer on its line would be taken
        for one to the next request, so the line is cut; the site dials again."""
        self.reasons[name] = why = printable(why)
        if line is not None:
            line.cut()
        warnings.warn(f"{name} is silent from now on: {why}", FedprivWarning, stacklevel=3)
