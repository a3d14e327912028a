"""The table of a report on how much each observer can learn."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.reports.assessment import plain_words as words
from fedpriv.reports.assessment.run_facts import Facts

MOST_KEYS = 3
"""Keys in the name of a setting."""
COLUMNS = (
    *("observer", "unit", "neighbours", "certified epsilon", "claimed epsilon", "delta"),
    *("sure at most", "basis"),
)


def limits(runs: Sequence[Facts]) -> Facts:
    """`columns` and `rows`: a row for each observer, unit and adjacency; runs with equal rows share
    one."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run, name in zip(runs, setting_names(runs)):
        for row in run["epsilons"]:
            cells = (
                row["observer"],
                f"{row['unit']}, group {row['group']}" if row["group"] else row["unit"],
                words.ADJACENCIES.get(row["adjacency"], row["adjacency"]),
                words.number(row["certified"]),
                words.number(row["claimed"]),
                words.number(run["delta"]),
                words.guess(row["certified"]),
                row["status"],
            )
            found.setdefault((name, *cells), []).append(run["folder"])
    if len(runs) == 1:
        return {"columns": COLUMNS, "rows": [cells for _, *cells in found]}
    rows = [(", ".join(own), *cells) for cells, own in found.items()]
    return {"columns": ("run", "setting", *COLUMNS), "rows": rows}


def setting_names(runs: Sequence[Facts]) -> list[str]:
    """For each run its method, and the keys in which it differs from others of the method, the
    seed apart; the method alone if these are more than `MOST_KEYS`."""
    methods = {run["method"] for run in runs}
    differing = {one: _differing([run for run in runs if run["method"] == one]) for one in methods}
    names = []
    for run in runs:
        keys = differing[run["method"]]
        settings = [f"{key.rpartition('.')[2]}={run['settings'].get(key, '')}" for key in keys]
        names.append(", ".join([run["method"], *settings]))
    return names


def _differing(runs: Sequence[Facts]) -> list[str]:
    known = dict.fromkeys(key for run in runs for key in run["settings"])
    found: dict[str, str] = {}
    for key in known:
        if key != "seed" and len({run["settings"].get(key) for run in runs}) > 1:
            found.setdefault(key.rpartition(".")[2], key)
    return list(found.values()) if len(found) <= MOST_KEYS else []
