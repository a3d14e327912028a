"""The ledger of a data set: who may add to it, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from fedpriv.errors import FedprivError
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.ledgers.entries import CHARGE, INIT, Balance, Population
from fedpriv.util.logs import LOGGER
from fedpriv.util.untrusted_files import TABLE_BYTES, read_bytes, readable


class BeyondBudgetError(FedprivError):
    """Charges that the budget of a population does not allow.

    population: the one that has too little left.
    """

    def __init__(self, path: Path, population: Population) -> None:
        super().__init__(f"{path}: beyond {population.budget} of {population.name}")
        self.population = population


class DataLedger(AbstractContextManager["DataLedger"]):
    """A ledger, open and locked: other processes wait. A context that closes it.

    balance: what its lines say.

    Raises FedprivError for a file that is missing, altered, cut or older than its counter says, or
    that others can read.
    """

    def __init__(self, path: Path) -> None:
        _require_there(path)
        with ExitStack() as opened:
            self._lines = opened.enter_context(
                CountedFile(str(path), in_sight=True).open(wait=True)
            )
            self.balance = Balance.read(path, self._lines.content)
            opened.pop_all()
        if self._lines.cut:
            LOGGER.warning(
                "%s: dropped %d bytes of a line that a killed process had not finished",
                path,
                self._lines.cut,
            )

    def __exit__(self, *failure: object) -> None:
        self._lines.close()

    @staticmethod
    def seen(path: Path) -> Balance:
        """What the whole lines of a file say now. No counter is read, so that lines that were cut
        off its end are not noticed. Raises FedprivError."""
        _require_there(path)
        with readable(path):
            content = read_bytes(path, TABLE_BYTES)
        return Balance.read(path, content[: content.rfind(b"\n") + 1])

    @staticmethod
    def begin(
        path: Path,
        name: str,
        populations: Sequence[Population],
        overlap: Sequence[Sequence[str]] = (),
    ) -> None:
        """Make a ledger. Raises FedprivError where a file is."""
        entry = {
            "kind": INIT,
            "name": name,
            "populations": [
                [one.name, one.unit, one.budget.epsilon, one.budget.delta] for one in populations
            ],
            "overlap": [*map(list, overlap)],
        }
        with CountedFile(str(path), in_sight=True).open() as lines:
            if lines.content:
                raise FedprivError(f"{path}: is there already")
            lines.append(Balance(path).lines(entry))

    def add(self, *entries: Mapping[str, Any]) -> None:
        """Write entries, all or none. Afterwards they survive the end of the machine. Raises
        FedprivError, and BeyondBudgetError for charges that a budget does not allow: the ledger is
        then to be closed."""
        lines = self.balance.lines(*entries)
        for name in {entry["population"] for entry in entries if entry["kind"] == CHARGE}:
            if full := self.balance.exceeded(name):
                raise BeyondBudgetError(self.balance.path, full)
        self._lines.append(lines)


def _require_there(path: Path) -> None:
    if not path.is_file():
        raise FedprivError(f"{path}: no ledger is there; fedpriv ledger init makes one")
