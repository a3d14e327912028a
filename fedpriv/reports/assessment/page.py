"""The page of a report, made of its contents alone: equal contents make equal bytes.

The page needs no script and asks nobody: its style is inside, and its policy forbids requests.
Sections are named as those of a data protection impact assessment (GDPR, Article 35(7)).
`page.html.jinja` has its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment

from fedpriv.reports.assessment import plain_words as words
from fedpriv.reports.assessment.contents import embedded
from fedpriv.reports.assessment.folder_files import Facts, evenly
from fedpriv.reports.assessment.model_facts import VALUES, at_chance
from fedpriv.reports.assessment.run_facts import headline, protects
from fedpriv.reports.templates import environment

MOST_ROUNDS = 10
"""Rows of a curve."""
JSON_BEGINS, JSON_ENDS = '<pre id="contents">', "</pre>"


def page(values: Facts) -> bytes:
    """The page, UTF-8."""
    text = embedded(values)
    values = json.loads(text)  # in the order in which the page carries them
    runs = values["runs"]
    shown = (
        _templates()
        .get_template("page.html.jinja")
        .render(
            contents=text,
            curve=_curve(runs[0]) if len(runs) == 1 else [],
            headlines=list(_headlines(runs)),
            labels=_labels(runs),
            limits=limits(runs),
            useless=at_chance(runs),
            features=_features(runs),
            utility=list(_utility(runs)),
            ledger=list(dict.fromkeys(_ledger(runs))),
            rounds=dict.fromkeys(f"{run['rounds_done']} of {run['rounds']}" for run in runs),
            runs=runs,
            valid=all(map(protects, runs)),
            values=values,
            words=words,
        )
    )
    return f"{shown}\n".encode()


@cache
def _templates() -> Environment:
    made = environment(Path(__file__).parent)
    made.filters["number"] = words.number
    made.globals |= {"shared": shared, "found": found, "glossed": glossed, "told": told}
    return made


def _different(runs: Sequence[Facts], keys: Sequence[str]) -> dict[str, None]:
    """The different values that runs have at a nested key, as texts; empty ones are left out."""
    different: dict[str, None] = {}
    for run in runs:
        value: Any = run
        for key in keys:
            value = value.get(key)
        if value not in (None, ""):
            different[str(value)] = None
    return different


def shared(runs: Sequence[Facts], *keys: str, by: str = "; ") -> str:
    """What runs have in common at a nested key, or every different value."""
    return by.join(_different(runs, keys))


def told(runs: Sequence[Facts], group: str) -> str:
    """What runs have for a config group, in words where there are some."""
    known = {**words.COMPONENTS, **words.AGGREGATIONS}
    return "; ".join(known.get(one, one) for one in _different(runs, ("components", group)))


def glossed(runs: Sequence[Facts], meanings: Mapping[str, str], *keys: str) -> list[str]:
    """What the values of runs at a nested key mean, where it is known."""
    return [meanings[value] for value in _different(runs, keys) if value in meanings]


def found(
    runs: Sequence[Facts], name: str, meanings: Mapping[str, str], otherwise: str = ""
) -> list[tuple[str, str]]:
    """Each value of a column of the epsilons, and what it means."""
    values = dict.fromkeys(row[name] for run in runs for row in run["epsilons"])
    return [(value, meanings.get(value, otherwise)) for value in values]


def _features(runs: Sequence[Facts]) -> list[list[tuple[str, str, str]]]:
    """The different lists of features that the runs have: name, kind and special category."""
    found = [
        [(one["name"], one["kind"], one["special"]) for one in run["features"]] for run in runs
    ]
    return [own for place, own in enumerate(found) if own and own not in found[:place]]


def _utility(runs: Sequence[Facts]) -> Iterator[tuple[str, ...]]:
    """A row for each metric of all test records; several runs have ranges."""
    for name in dict.fromkeys(row["metric"] for run in runs for row in run["utility"]):
        rows = [row for run in runs for row in run["utility"] if row["metric"] == name]
        yield name.replace("_", " "), *(_range([row[one] for row in rows]) for one in VALUES)


def _ledger(runs: Sequence[Facts]) -> Iterator[tuple[str, ...]]:
    """How the ledgers of runs stood."""
    for row in (row for run in runs for row in run["ledger"]):
        numbers = (f"{row[name]:.4g}" for name in ("budget", "spent", "left", "delta"))
        yield row["ledger"], row["population"], row["unit"], *numbers


def _headlines(runs: Sequence[Facts]) -> Iterator[tuple[str, str]]:
    """The numbers that stand for the runs, each with what it is of."""
    rows = [row for row in map(headline, runs) if row is not None]
    if rows:
        about = f"certified epsilon ({rows[0]['observer']}, unit {rows[0]['unit']})"
        yield _range([row["certified"] for row in rows]), about
        yield (
            _range([row["claimed"] for row in rows]) or "none",
            ("claimed by the method's publication"),
        )
    metrics = [run["metrics"][run["metric"]] for run in runs if run["metric"] in run["metrics"]]
    if metrics:
        name = f"{runs[0]['metric'].replace('_', ' ')} after the last round"
        yield _range([metric["value"] for metric in metrics]), name
    if len(runs) == 1:
        yield runs[0]["state"], "state of the run"
    else:
        done = sum(run["rounds_done"] == run["rounds"] and run["state"] == "done" for run in runs)
        yield f"{done} of {len(runs)}", "runs finished"


def _range(values: Sequence[Any]) -> str:
    """A number, or the smallest and the largest of several."""
    ordered = sorted((value for value in values if value is not None), key=float)
    return " to ".join(dict.fromkeys(map(words.number, ordered[:1] + ordered[-1:])))


def _curve(run: Facts) -> list[tuple[str, ...]]:
    """Round, certified epsilon and metric of a run after at most `MOST_ROUNDS` rounds, evenly
    chosen, the last among them."""
    return [
        (str(one["round"]), words.number(one["certified"]), words.number(one["metric"]))
        for one in evenly(run["curve"], MOST_ROUNDS)
    ]


def _labels(runs: Sequence[Facts]) -> list[str]:
    """The different labels of the runs' main metric."""
    found = (run["metrics"].get(run["metric"]) for run in runs)
    return list(dict.fromkeys(one["label"] for one in found if one))


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
