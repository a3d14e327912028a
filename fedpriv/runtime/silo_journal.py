"""What a silo has answered, so that it answers nothing twice in a life, and never more than its
budget.

In one process the journal lives as long as the silo: the run's folder is the durable record there.
With a file, the silo writes each set-up and each query with its cost before its first message, and
reads all of them when it starts again. The file stands for one set of records in one study,
whatever the settings of its runs are.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.filters import Budget
from fedpriv.errors import ConfigError, RefusedError
from fedpriv.ledgers.counted_lines import CountedFile, CountedLines
from fedpriv.parties.post import Serial
from fedpriv.rounds.query import SESSION_BYTES
from fedpriv.util.untrusted_files import TABLE_BYTES, read_bytes

BUDGET, SET_UP, CHARGE, QUERY = "budget", "setup", "charge", "query"
SPARE_SET_UPS = 8
"""Set-ups that a silo takes part in before each round, beside two for each silo. Nothing is charged
for a set-up, and it shows new keys, and the counts of records under new masks: so their number must
be bounded. A query begins the next round, and so does a set-up that says so; a round that was
passed over is never answered again."""


class SiloJournal:
    """The journal of one silo, open for one run.

    name: of the silo.
    file: where it is; None: memory only.
    run: name of the run's settings. Signatures are bound to them, so sessions of other runs are no
        earlier ones.
    asked: the run's budget. A file without a budget records it, and refuses a larger one later.
    own: the site's decision, which replaces the recorded budget; None: there is none.
    budget: of all answers; None: there is none.
    session: name of the run's last set-up.
    last: no query up to this one is answered in this life of the silo; a resumed run repeats
        rounds.
    spent: how often each charge was answered, in all runs and lives.
    set_ups: number of set-ups, in all runs and lives.
    round: the round that set-ups now come before.
    in_a_row: number of set-ups before it.

    Raises RefusedError for a file that is damaged, or that `CountedLines` refuses.
    """

    def __init__(
        self,
        name: str,
        file: CountedFile | None = None,
        *,
        run: str = "",
        asked: Budget | None = None,
        own: Budget | None = None,
    ) -> None:
        self.name = name
        self.run = run
        self.budget = own or asked
        self.session = b""
        self.last: Serial = (0, 0)
        self.spent: Counter[Charge] = Counter()
        self.set_ups = 0
        self.round = 1
        self.in_a_row = 0
        self._charges: dict[str, Charge] = {}
        self._lines: CountedLines | None = None
        if file is not None:
            with ExitStack() as opened:
                self._lines = opened.enter_context(file.open())
                recorded = self._read(self._lines.path, self._lines.content)
                self._agree(recorded, asked, own)
                opened.pop_all()

    @staticmethod
    def seen(name: str, path: Path) -> SiloJournal:
        """What a file says now, which another process may have open. Raises RefusedError for a
        damaged one, OSError or ValueError for one that cannot be read."""
        journal = SiloJournal(name)
        content = read_bytes(path, TABLE_BYTES)
        journal.budget = journal._read(path, content[: content.rfind(b"\n") + 1])
        return journal

    def close(self) -> None:
        """Let another life of the silo open the file."""
        if self._lines is not None:
            self._lines.close()

    @property
    def lasting(self) -> Budget | None:
        """The budget of a file, whose answers may be of several runs; None: memory only."""
        return None if self._lines is None else self.budget

    @property
    def charges(self) -> bool:
        """Whether it needs to know what an answer costs."""
        return self._lines is not None or self.budget is not None

    def set_up(self, session: bytes, n_silos: int, round: int) -> None:
        """Note a set-up before a round. Raises RefusedError for a session that is not new, and for
        more set-ups in a row than an honest run needs."""
        if type(session) is not bytes or len(session) != SESSION_BYTES or session <= self.session:
            raise RefusedError(
                f"{self.name} refuses a set-up: its session is not a new one (is the clock right?)"
            )
        if round > self.round:  # the rounds before it are passed over
            self.last = max(self.last, (round, -1))
        elif self.in_a_row >= 2 * n_silos + SPARE_SET_UPS:
            raise RefusedError(
                f"{self.name} refuses a set-up: {self.in_a_row} in a row without a query"
            )
        self._write(f"{SET_UP} {self.run} {session.hex()} {round}\n")
        self._noted(session, round)

    def _noted(self, session: bytes, round: int) -> None:
        """Count a set-up."""
        self.in_a_row = 1 if round > self.round else self.in_a_row + 1
        self.round = max(self.round, round)
        self.session = max(self.session, session)
        self.set_ups += 1

    def _answered(self, serial: Serial) -> None:
        """A query begins the count of the next round."""
        self.round = max(self.round, serial[0] + 1)
        self.in_a_row = 0

    def require_new(self, serial: Serial) -> None:
        """Raise RefusedError for a query that was begun in this life, or passed over."""
        if serial <= self.last:
            raise RefusedError(
                f"{self.name} refuses round {serial[0]}, query {serial[1]}: it has answered it or "
                "gone on to a later one"
            )

    def begin(self, serial: Serial, charge: Charge | None = None) -> None:
        """Note a query and what it costs, before its first message."""
        if charge is not None:
            self.spent[self._written(serial, charge)] += 1
        self.last = max(self.last, serial)
        self._answered(serial)

    def _written(self, serial: Serial, charge: Charge) -> Charge:
        """The charge once it is written down, or its first equal."""
        if self._lines is None:
            return charge
        try:
            text = charge.text
        except ValueError as error:
            raise RefusedError(f"{self.name} cannot write down what it answers: {error}") from error
        new = text not in self._charges
        number = len(self._charges) if new else [*self._charges].index(text)
        if new:
            self._write(f"{CHARGE} {text}\n")
        self._write(f"{QUERY} {serial[0]} {serial[1]} {number}\n")
        return self._charges.setdefault(text, charge)

    def _agree(self, recorded: Budget | None, asked: Budget | None, own: Budget | None) -> None:
        """Find the budget, and record it where it is new."""
        self.budget = own or recorded or asked
        if self.budget is None:
            return
        if self.budget != recorded:
            self._write(
                f"{BUDGET} {self.budget.epsilon!r} {self.budget.delta!r} {self.budget.near!r}\n"
            )
        if asked is not None and asked.epsilon > self.budget.epsilon:
            raise RefusedError(
                f"{self.name} has a budget of {self.budget}, and the run asks for epsilon "
                f"{asked.epsilon:g}"
            )

    def _write(self, lines: str) -> None:
        if self._lines is None:
            return
        try:
            self._lines.append(lines.encode())
        except RefusedError:
            self.close()  # only another life can know whether they are in the file
            raise

    def _read(self, path: Path, content: bytes) -> Budget | None:
        """Read what was written. Returns the last budget."""
        budget = None
        charges: list[Charge] = []
        run = ""
        try:
            for line in content.decode().split("\n")[:-1]:
                what, _, rest = line.partition(" ")
                if what == BUDGET:
                    budget = Budget(*map(float, rest.split(" ")))
                elif what == SET_UP:
                    run, name, before = rest.split(" ")
                    session, round = bytes.fromhex(name), int(before)
                    if run == self.run:
                        self._noted(session, round)
                    else:
                        self.set_ups += 1
                elif what == CHARGE:
                    charges.append(self._charges.setdefault(rest, Charge.read(rest)))
                elif what == QUERY:
                    *serial, number = map(int, rest.split(" "))
                    self.spent[charges[number]] += 1
                    if run == self.run:
                        self._answered((serial[0], serial[1]))
                else:
                    raise ValueError(f"a line that begins with {what!r:.20}")
        except (ValueError, IndexError, TypeError, ConfigError) as error:
            raise RefusedError(
                f"{path} is damaged ({error}): {self.name} answers nothing"
            ) from error
        return budget
