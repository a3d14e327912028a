"""The table of a report on how much each observer can learn."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.reports.assessment import plain_words as words
from fedpriv.reports.assessment.parts import Html, number, table
from fedpriv.reports.assessment.run_facts import Facts

MOST_KEYS = 3
"""Keys in the name of a setting."""


def limits(runs: Sequence[Facts]) -> Html:
    """A row for each observer, unit and adjacency; runs with equal rows share one."""
    columns = ["observer", "unit", "neighbours", "certified epsilon", "claimed epsilon", "delta"]
    columns += ["sure at most", "basis"]
    found: dict[tuple[str, ...], list[str]] = {}
    names = setting_names(runs)
    for run, name in zip(runs, names):
        for row in run["epsilons"]:
            unit = f"{row['unit']}, group {row['group']}" if row["group"] else row["unit"]
            neighbours = words.ADJACENCIES.get(row["adjacency"], row["adjacency"])
            cells = [row["observer"], unit, neighbours]
            cells += [number(row["certified"]), number(row["claimed"]), number(run["delta"])]
            cells += [words.guess(row["certified"]), row["status"]]
            found.setdefault((name, *cells), []).append(run["folder"])
    rows = [list(cells) for cells in found]
    if len(runs) > 1:
        columns = ["run", "setting", *columns]
        rows = [[", ".join(own), *cells] for cells, own in found.items()]
    else:
        rows = [row[1:] for row in rows]
    return table(columns, rows, "After the last round; the smallest proven limit of each line.")


def setting_names(runs: Sequence[Facts]) -> list[str]:
    """For each run its method, and the keys in which it differs from others of the method, the
    seed apart; the method alone if these are more than `MOST_KEYS`."""
    by_method: dict[str, list[Facts]] = {}
    for run in runs:
        by_method.setdefault(run["method"], []).append(run)
    keys = {method: _differing(members) for method, members in by_method.items()}
    return [
        ", ".join(
            [
                run["method"],
                *(f"{key.rpartition('.')[2]}={run['settings'].get(key, '')}" for key in own),
            ]
        )
        for run in runs
        for own in [keys[run["method"]]]
    ]


def _differing(runs: Sequence[Facts]) -> list[str]:
    known = dict.fromkeys(key for run in runs for key in run["settings"])
    found: dict[str, str] = {}
    for key in known:
        if key != "seed" and len({run["settings"].get(key) for run in runs}) > 1:
            found.setdefault(key.rpartition(".")[2], key)
    return list(found.values()) if len(found) <= MOST_KEYS else []
