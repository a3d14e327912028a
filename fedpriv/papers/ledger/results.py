"""Values of every seed of a replication, in `results/ledger/`, and what they decide.

A table of values has one metric of one run in a row, with the columns

    question       of the ledger
    phase          "tuning"; "authors" for the authors' setting beside chosen ones; "deciding"
    method, place  names
    settings       from the grid, or of what the paper leaves open; empty where there is neither
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
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.papers.ledger.entries import Comparison, Entry, Replication
from fedpriv.papers.ledger.rule import (
    Difference,
    answer,
    corrected,
    difference,
    differences,
    together,
)
from fedpriv.util.durable_files import replace_file

RESULTS = Path("results") / "ledger"
"""Below the folder in which a command is given."""
TUNING, AUTHORS, DECIDING = "tuning", "authors", "deciding"
LOWER = frozenset(("error", "gradient_norm", "loss", "train_loss"))
"""Metrics of which less is better."""
VALUES_OF_OPEN = 3
"""Plausible values of an open setting that an answer needs."""
COLUMNS = [
    *("question", "phase", "method", "place", "settings", "seed", "round", "metric"),
    *("value", "certified", "claimed"),
]


@dataclass(frozen=True)
class Decision:
    """What one comparison found.

    comparison: the claim.
    found: its differences, with corrected p-values, over all values of what the paper leaves open.
    answer: one of `entries.ANSWERS`.
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


def chosen(run: Replication, one: Comparison, method: str, tuning: pd.DataFrame) -> dict[str, str]:
    """By place, the settings of a method that its tuning runs choose for a comparison."""
    metric = run.chosen_by or one.metric
    rows = tuning[(tuning["method"] == method) & (tuning["metric"] == metric)]
    if not run.chosen_by:
        rows = rows[rows["round"] == one.round]
    values = rows.groupby(["place", "settings"], sort=False)["value"]
    means = values.mean()[values.count() == len(run.tuning_seeds)]
    best = (-means if metric in LOWER else means)[np.isfinite(means)]
    return dict(best.groupby("place", sort=False).idxmax().tolist())


def decide(entry: Entry, question: str, table: pd.DataFrame) -> list[Decision]:
    """What the deciding runs of a question find; empty without rows."""
    run = entry.replication
    assert run is not None
    here = table[table["question"] == question]
    rows = here[here["phase"] == DECIDING]
    if rows.empty:
        return []
    judged = run.judged(question)
    named = rows.assign(place=(rows["place"] + ", " + rows["settings"]).str.strip(", "))
    variants = [own for _, own in named.groupby("settings", sort=False)] if run.open else [rows]
    found = [corrected([_compared(run, one, here, own) for one in judged]) for own in variants]
    return [
        Decision(one, [*chain(*each)], _word(entry, question, one, here, each))
        for one, *each in zip(judged, *found)
    ]


def shown(entry: Entry, table: pd.DataFrame) -> pd.DataFrame:
    """The deciding rows; of a tuned method, with the settings chosen for the first comparison of
    each metric, or of all."""
    run = entry.replication
    rows = table[table["phase"] == DECIDING]
    if run is None:
        return rows.copy()
    first = {one.metric: one for one in reversed(run.comparisons)}
    parts = []
    for (question, method, metric), own in rows.groupby(["question", "method", "metric"]):
        here = table[(table["question"] == question) & (table["phase"] == TUNING)]
        one = first.get(str(metric), run.comparisons[0])
        best = chosen(run, one, str(method), here)
        parts.append(own[own["place"].map(best) == own["settings"]] if best else own)
    return pd.concat(parts).loc[lambda found: found.index.sort_values()]


def _word(
    entry: Entry,
    question: str,
    one: Comparison,
    here: pd.DataFrame,
    found: Sequence[Sequence[Difference]],
) -> str:
    """The answer to one comparison, from its differences at each value of what is open."""
    run = entry.replication
    assert run is not None
    if run.cases[question].beyond:
        return "beyond our certificate"
    methods = (one.first, one.second)
    grid = [run.grid(question, method) for method in methods]
    if any(grid) and not all(tuned(entry, one, method, here) for method in methods):
        return "not run"
    words = {answer(one, row) for row in found}
    robust = not run.open or (len(found) >= VALUES_OF_OPEN and len(words) == 1)
    return words.pop() if robust else "unknown setting"


def tuned(entry: Entry, one: Comparison, method: str, here: pd.DataFrame) -> bool:
    """Whether a method's settings are chosen by the rule, and no worse than the authors' on the
    seeds that decide."""
    run = entry.replication
    assert run is not None
    best = chosen(run, one, method, here[here["phase"] == TUNING])
    if not best or entry.same.get("tuning", "").startswith("part"):
        return False
    if run.chosen_by:
        return True
    ours, authors = (_values(run, one, method, here, phase) for phase in (DECIDING, AUTHORS))
    sign = -1 if one.metric in LOWER else 1
    pairs = [difference(str(place), sign * ours[place], sign * authors[place]) for place in ours]
    return all(each.high >= 0 for each in pairs)


def _compared(
    run: Replication, one: Comparison, here: pd.DataFrame, own: pd.DataFrame
) -> list[Difference]:
    tuning = here[here["phase"] == TUNING]
    both = pd.concat([tuning, own])
    return differences(
        one, *(_values(run, one, method, both, DECIDING) for method in (one.first, one.second))
    )


def _values(
    run: Replication, one: Comparison, method: str, here: pd.DataFrame, phase: str
) -> pd.DataFrame:
    """A method's metric by seed and place, with the settings chosen for a comparison."""
    rows = here[
        (here["phase"] == phase)
        & (here["method"] == method)
        & (here["metric"] == one.metric)
        & (here["round"] == one.round)
    ]
    best = chosen(run, one, method, here[here["phase"] == TUNING])
    if best and phase == DECIDING:
        rows = rows[rows["place"].map(best) == rows["settings"]]
    found = rows.pivot(index="seed", columns="place", values="value")
    places: list[str] = sorted(map(str, found), key=place_order)
    return found[places]


def decided_answer(entry: Entry, question: str, decisions: Sequence[Decision]) -> str:
    """The entry's answer to a question. Shorter runs cannot decide; neither can other records or
    settings, whether a curve reproduces."""
    if not decisions:
        return "not run"
    word = together([decision.answer for decision in decisions])
    shorter = entry.same.get("length", "yes").startswith(("no", "20 of", "10 of"))
    other = entry.same.get("data", "").startswith("no")
    other |= entry.same.get("tuning", "").startswith("no:")
    if word in ("reproduced", "tie", "reversed") and (shorter or (other and question == "curve")):
        return "not resolved"
    return word
