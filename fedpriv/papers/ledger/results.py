"""Values of every seed of a replication, in `results/ledger/`, and what they decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from fedpriv.papers.ledger.entries import Comparison, Entry
from fedpriv.papers.ledger.rule import (
    Difference,
    answer,
    corrected,
    differences,
    together,
)
from fedpriv.reports.number_table import read_table, write_table

RESULTS = Path("results") / "ledger"
"""Below the folder in which a command is given."""
TUNING, DECIDING = "tuning", "deciding"


@dataclass(frozen=True)
class Row:
    """One metric of one run.

    question: of the ledger.
    phase: "tuning" or "deciding".
    method, place: names.
    settings: chosen from the grid; empty where nothing was tuned.
    seed, round: of the run, and when.
    metric, value: what was measured.
    certified, claimed: the run's epsilons after its last round, for the observer whom its noise is
        made for.
    """

    question: str
    phase: str
    method: str
    place: str
    settings: str
    seed: int
    round: int
    metric: str
    value: float
    certified: float
    claimed: float


COLUMNS = tuple(field.name for field in fields(Row))


@dataclass(frozen=True)
class Decision:
    """What one comparison found.

    comparison: the claim.
    found: its differences, with corrected p-values.
    answer: yes, no or not resolved.
    """

    comparison: Comparison
    found: tuple[Difference, ...]
    answer: str


def path(name: str, folder: Path = RESULTS) -> Path:
    """The file of an entry."""
    return folder / f"{name.replace('/', '_')}.csv"


def write(name: str, rows: Iterable[Row], folder: Path = RESULTS) -> None:
    """Write an entry's rows; numbers have six digits."""
    numbers = ("value", "certified", "claimed")
    texts = (
        [f"{one:.6g}" if key in numbers else one for key, one in asdict(row).items()]
        for row in rows
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_table(path(name, folder), COLUMNS, texts)


@cache
def read(file: Path) -> tuple[Row, ...]:
    """The rows of a file; none if it is absent."""
    if not file.exists():
        return ()
    return tuple(_from_text(row) for row in read_table(file))


def _from_text(row: dict[str, str]) -> Row:
    texts: dict[str, Any] = dict(row)
    texts |= {key: int(row[key]) for key in ("seed", "round")}
    texts |= {key: float(row[key]) for key in ("value", "certified", "claimed")}
    return Row(**texts)


def place_order(place: str) -> list[tuple[str, float, str]]:
    """Sort key for places: by the number or else the text of each of their values."""
    words = (word.partition("=") for word in place.split(", "))
    return [(key, *_ordered(value)) for key, _, value in words]


def _ordered(value: str) -> tuple[float, str]:
    try:
        return float(value), ""
    except ValueError:
        return 0.0, value


def decide(entry: Entry, question: str, rows: Sequence[Row]) -> list[Decision]:
    """What the deciding runs of a question find; empty without rows."""
    assert entry.replication is not None
    here = [row for row in rows if (row.question, row.phase) == (question, DECIDING)]
    if not here:
        return []
    places = sorted({row.place for row in here}, key=place_order)
    comparisons = [
        one for one in entry.replication.comparisons if question in (one.questions or (question,))
    ]
    found = [
        differences(
            one, _values(here, one, one.first), _values(here, one, one.second), places=places
        )
        for one in comparisons
    ]
    return [
        Decision(one, tuple(row), answer(one, row))
        for one, row in zip(comparisons, corrected(found))
    ]


def decided_answer(entry: Entry, question: str, decisions: Sequence[Decision]) -> str:
    """The entry's answer to a question. Shorter runs cannot decide; neither can other records or
    settings, whether a curve reproduces."""
    if not decisions:
        return "not run"
    shorter = entry.same.get("length", "yes").startswith(("no", "20 of", "10 of"))
    other = entry.same.get("data", "").startswith("no")
    other |= entry.same.get("tuning", "").startswith("no:")
    elsewhere = question == "curve" and other
    if shorter or elsewhere:
        return "not resolved"
    return together([decision.answer for decision in decisions])


def _values(
    rows: Sequence[Row], comparison: Comparison, method: str
) -> dict[str, dict[int, float]]:
    """A method's metric by place and seed."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row.method, row.metric, row.round) == (method, comparison.metric, comparison.round):
            found.setdefault(row.place, {})[row.seed] = row.value
    return found
