"""Values of every seed of a replication, in `results/ledger/`, and what they decide.

A table of values has one metric of one run in a row, with the columns

    question       of the ledger
    phase          "tuning" or "deciding"
    method, place  names
    settings       chosen from the grid; empty where nothing was tuned
    seed, round    of the run, and when
    metric, value  what was measured
    certified, claimed  the run's epsilons after its last round, for the observer whom its noise is
                   made for
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from fedpriv.papers.ledger.entries import Comparison, Entry
from fedpriv.papers.ledger.rule import Difference, answer, corrected, differences, together
from fedpriv.util.durable_files import replace_file

RESULTS = Path("results") / "ledger"
"""Below the folder in which a command is given."""
TUNING, DECIDING = "tuning", "deciding"
COLUMNS = [
    *("question", "phase", "method", "place", "settings", "seed", "round", "metric"),
    *("value", "certified", "claimed"),
]


@dataclass(frozen=True)
class Decision:
    """What one comparison found.

    comparison: the claim.
    found: its differences, with corrected p-values.
    answer: yes, no or not resolved.
    """

    comparison: Comparison
    found: Sequence[Difference]
    answer: str


def measurement(**values: Any) -> dict[str, Any]:
    """A row of what no sweep measures: without settings and epsilons."""
    usual = {"question": "curve", "phase": DECIDING, "settings": ""}
    return usual | {"certified": math.nan, "claimed": math.nan} | values


def path(name: str, folder: Path = RESULTS) -> Path:
    """The file of an entry."""
    return folder / f"{name.replace('/', '_')}.csv"


def write(name: str, table: pd.DataFrame, folder: Path = RESULTS) -> None:
    """Write an entry's table; numbers have six digits."""
    folder.mkdir(parents=True, exist_ok=True)
    text = table.to_csv(columns=COLUMNS, index=False, float_format="%.6g", na_rep="nan")
    replace_file(path(name, folder), text.encode())


@cache
def read(file: Path) -> pd.DataFrame:
    """The table in a file; empty if the file is absent."""
    if not file.exists():
        return pd.DataFrame(columns=COLUMNS)
    table = pd.read_csv(file, float_precision="round_trip")
    return table.fillna({"place": "", "settings": ""})


def place_order(place: str) -> list[tuple[str, float, str]]:
    """Sort key for places: by the number or else the text of each of their values."""
    words = (word.partition("=") for word in place.split(", "))
    return [(key, *_ordered(value)) for key, _, value in words]


def _ordered(value: str) -> tuple[float, str]:
    try:
        return float(value), ""
    except ValueError:
        return 0.0, value


def decide(entry: Entry, question: str, table: pd.DataFrame) -> list[Decision]:
    """What the deciding runs of a question find; empty without rows."""
    assert entry.replication is not None
    here = table[(table["question"] == question) & (table["phase"] == DECIDING)]
    if here.empty:
        return []
    key = ["method", "metric", "round", "seed"]
    values = here.pivot(index=key, columns="place", values="value")
    places: list[str] = sorted(map(str, here["place"].unique()), key=place_order)
    comparisons = [
        one for one in entry.replication.comparisons if question in (one.questions or (question,))
    ]
    found = [
        differences(one, *(_values(values[places], one, name) for name in (one.first, one.second)))
        for one in comparisons
    ]
    return [Decision(one, row, answer(one, row)) for one, row in zip(comparisons, corrected(found))]


def _values(values: pd.DataFrame, comparison: Comparison, method: str) -> pd.DataFrame:
    """A method's metric by seed and place."""
    key = (method, comparison.metric, comparison.round)
    return pd.DataFrame(values.xs(key, level=("method", "metric", "round")))


def decided_answer(entry: Entry, question: str, decisions: Sequence[Decision]) -> str:
    """The entry's answer to a question. Shorter runs cannot decide; neither can other records or
    settings, whether a curve reproduces."""
    if not decisions:
        return "not run"
    shorter = entry.same.get("length", "yes").startswith(("no", "20 of", "10 of"))
    other = entry.same.get("data", "").startswith("no")
    other |= entry.same.get("tuning", "").startswith("no:")
    if shorter or (other and question == "curve"):
        return "not resolved"
    return together([decision.answer for decision in decisions])
