"""What a silo has been asked, so that it answers nothing twice.

In one process the journal lives as long as the silo: the run's folder is the durable record there.
With a folder, the silo writes each set-up and each query to a file of its own before its first
message, and reads the file when it starts again.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from fedpriv.errors import RefusedError
from fedpriv.parties.post import Serial
from fedpriv.rounds.query import SESSION_BYTES

SET_UP, QUERY = "setup", "query"
SPARE_SET_UPS = 8
"""Set-ups that a silo takes part in before each round, beside two for each silo. Nothing is charged
for a set-up, and it shows new keys, and the counts of records under new masks: so their number must
be bounded. A query begins the next round, and so does a set-up that says so; a round that was
passed over is never answered again."""


class SiloJournal:
    """The journal of one silo in one run.

    name: of the silo.
    path: file; None: memory only.
    session: name of the last set-up.
    last: no query up to this one is answered in this life of the silo; a resumed run repeats
        rounds.
    answered: how often each query was begun, in all lives.
    set_ups: number of set-ups, in all lives.
    round: the round that set-ups now come before.
    in_a_row: number of set-ups before it.

    Raises RefusedError for a damaged file.
    """

    def __init__(self, name: str, path: Path | None) -> None:
        self.name = name
        self.path = path
        self.session = b""
        self.last: Serial = (0, 0)
        self.answered: Counter[Serial] = Counter()
        self.set_ups = 0
        self.round = 1
        self.in_a_row = 0
        if path is not None and path.exists():
            self._read(path)

    def set_up(self, session: bytes, n_silos: int, round: int) -> None:
        """Note a set-up before a round. Raises RefusedError for a session that is not new, and for
        more set-ups in a row than an honest run needs."""
        if type(session) is not bytes or len(session) != SESSION_BYTES or session <= self.session:
            raise RefusedError(f"{self.name} refuses a set-up: its session is not a new one")
        if round > self.round:  # the rounds before it are passed over
            self.round = round
            self.last = max(self.last, (round, -1))
            self.in_a_row = 0
        if self.in_a_row >= 2 * n_silos + SPARE_SET_UPS:
            raise RefusedError(
                f"{self.name} refuses a set-up: {self.in_a_row} in a row without a query"
            )
        self._write(SET_UP, session.hex())
        self.session = session
        self.set_ups += 1
        self.in_a_row += 1

    def require_new(self, serial: Serial) -> None:
        """Raise RefusedError for a query that was begun in this life, or passed over."""
        if serial <= self.last:
            raise RefusedError(
                f"{self.name} refuses round {serial[0]}, query {serial[1]}: it has answered it or "
                "gone on to a later one"
            )

    def begin(self, serial: Serial) -> None:
        """Note a query, before its first message."""
        self._write(QUERY, f"{serial[0]} {serial[1]}")
        self.last = max(self.last, serial)
        self.answered[serial] += 1
        self.round = max(self.round, serial[0] + 1)
        self.in_a_row = 0

    def _write(self, what: str, which: str) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(handle, "ab") as file:
            file.write(f"{what} {which}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        try:
            for line in whole.decode().split("\n")[:-1]:
                what, *words = line.split(" ")
                if what == SET_UP:
                    self.session = max(self.session, bytes.fromhex(words[0]))
                    self.set_ups += 1
                elif what == QUERY:
                    self.answered[int(words[0]), int(words[1])] += 1
                else:
                    raise ValueError(f"{what!r} instead of {SET_UP} or {QUERY}")
        except (ValueError, IndexError) as error:
            raise RefusedError(
                f"{path} is damaged ({error}): {self.name} answers nothing"
            ) from error
        if whole != data:  # a line without its end was cut off before its query began
            os.truncate(path, len(whole))  # else the next line would be a part of it
