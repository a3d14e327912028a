"""What a run's folder says about one run, as plain values for a report.

A value is missing (null) where the folder does not say it.
Infinite epsilons are the text "inf".
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpriv.data.allocate import INVENTED
from fedpriv.errors import FedprivError
from fedpriv.reports.assessment import folder_files as files
from fedpriv.reports.assessment.folder_files import Facts, Row, count, evenly, number, text
from fedpriv.reports.assessment.model_facts import SCHEMA_PLACE, column_facts, utility_facts
from fedpriv.reports.audit_file import comparable, plain
from fedpriv.reports.groups import TARGET, class_name
from fedpriv.runs.charging import LedgerState
from fedpriv.runs.labels import RELEASED
from fedpriv.runs.status import Status
from fedpriv.runs.tables import ASSUMPTIONS, EPSILON, METRICS, UTILITY
from fedpriv.util.flatten import flat

DIGESTED = (
    *("config.yaml", "status.json", METRICS, EPSILON, ASSUMPTIONS, "rounds_begun.csv"),
    *("roster.csv", "timings.csv", "traffic.csv", "model.safetensors"),
    *(UTILITY, SCHEMA_PLACE),
)
"""Files of a run of which a report gives the digest."""
RELEASED_FILES = ("config.yaml", EPSILON, ASSUMPTIONS, "roster.csv", "model.safetensors")
"""Those of them that hold nothing but charged and released values."""
GROUPS = (
    *("data", "allocator", "model", "optimizer", "algo", "mechanism"),
    *("accountant", "aggregation", "engine"),
)
FAILS = "FAILS"
"""Begins an assumption that does not hold."""
MOST_POINTS = 200
"""Points of a curve in a report."""
PRIVATE_DIGESTS = ("source", "records", "allocation")
"""Digests of private records: they confirm a right guess of the records."""
LEFT_OUT = "left out"


def run_facts(folder: Path, *, name: str, public: bool) -> Facts:
    """The facts of the run in a folder.

    name: of the run in the report.
    public: leave out what is computed from private records without noise.

    Raises FedprivError, naming the file, for files that cannot be read.
    """
    status = Status.read(folder)
    settings = files.read_settings(folder)
    metrics = files.read_rows(folder / METRICS)
    epsilon = files.read_rows(folder / EPSILON)
    assumed = _assumptions(folder, epsilon)
    observer = text(status.observer or "released model")
    metric = text(status.metric)
    return {
        "folder": name,
        "state": status.state_in(folder),
        "reason": text(status.reason) if not public else "",
        "updated": text(status.updated),
        "command": _command(folder),
        "seed": settings.get("seed") if isinstance(settings.get("seed"), int) else None,
        "method": text(status.label),
        "components": _components(settings),
        "settings": _settings(settings),
        **column_facts(folder),
        "utility": utility_facts(folder, status, public=public),
        "ledger": _ledger(folder),
        "users": _users(status),
        "records": None if public else status.records,
        "noise": text(", ".join(f"{name} {one:g}" for name, one in status.noise.items())),
        "parameters": status.parameters,
        "rounds": status.rounds,
        "rounds_done": max((count(row.get("round")) or 0 for row in metrics), default=0),
        "rounds_repeated": sum(status.repeated_rounds.values()),
        "randomness": text(status.randomness),
        "dp_valid": status.dp_valid,
        "observer": observer,
        "delta": status.delta,
        "epsilons": last_epsilons(epsilon, assumed),
        "not_covered": list(map(text, status.not_covered)),
        "metric": metric,
        "metrics": _last_metrics(metrics, status, public),
        "curve": _curve(
            metrics,
            epsilon,
            metric,
            observer,
            hidden=public and status.metric_label(metric) != RELEASED,
        ),
        "warnings": list(map(text, status.warnings)),
        "simulated": text(status.simulated),
        "device": text(status.device),
        "versions": {text(k): text(v) for k, v in status.versions.items()},
        "commit": text(status.commit),
        "digests": _digests(status, settings, public),
        "files": {
            name: files.file_digest(folder / name)
            for name in sorted(reported_files(folder, public=public))
        },
    }


def reported_files(folder: Path, *, public: bool) -> set[str]:
    """The files in a run's folder of which a report gives the digest."""
    names = RELEASED_FILES if public else DIGESTED
    return {name for name in names if (folder / name).exists()}


def _assumptions(folder: Path, epsilon: Sequence[Row]) -> dict[str, str]:
    """The assumptions by their numbers in epsilon.csv. Folders of earlier versions have texts in
    place of numbers. Raises FedprivError for a number that assumptions.csv lacks."""
    rows = files.read_rows(folder / ASSUMPTIONS)
    known = {row.get("number", ""): row.get("assumption", "") for row in rows}
    used = {part for row in epsilon for part in _parts(row.get("assumptions", ""))}
    if lacking := [part for part in used - known.keys() if part.isdigit()]:
        raise FedprivError(f"{folder / ASSUMPTIONS}: it lacks the assumption {text(lacking[0])}")
    return known


def _ledger(folder: Path) -> list[Facts]:
    """How the ledger that has paid for the run stood at its end; empty: there is none."""
    state = LedgerState.find(folder)
    if state is None:
        return []
    names = {one: text(getattr(state, one)) for one in ("ledger", "population", "unit", "digest")}
    numbers = {one: getattr(state, one) for one in ("budget", "delta", "spent", "entries")}
    return [names | numbers | {"left": max(0.0, state.budget - state.spent)}]


def _parts(cell: str) -> list[str]:
    return [part for part in map(text, cell.split(";")) if part]


def last_epsilons(rows: Sequence[Row], assumptions: Mapping[str, str]) -> list[Facts]:
    """After the last round: the smallest certificate of each observer, unit, adjacency and group
    of users, with what it rests on. Every accounting method gives an upper bound.

    assumptions: by their numbers; a text stands for itself.
    """
    last = max((count(row.get("round")) or 0 for row in rows), default=0)
    found: dict[tuple[str, ...], Facts] = {}
    for row in rows:
        if count(row.get("round")) != last:
            continue
        about = {name: text(row.get(name)) for name in ("observer", "unit", "adjacency", "group")}
        certified = number(row.get("certified"))
        named = [assumptions.get(part, part) for part in _parts(row.get("assumptions", ""))]
        assumed = [part for one in named for part in _parts(one)]
        line: Facts = {
            **about,
            "round": last,
            "method": text(row.get("method")),
            "certified": plain(math.inf if certified is None else certified),
            "claimed": plain(number(row.get("claimed"))),
            "status": text(row.get("status")),
            "assumptions": [part for part in assumed if not part.startswith(FAILS)],
            "fails": [
                part.removeprefix(FAILS).lstrip(": ") for part in assumed if part.startswith(FAILS)
            ],
        }
        key = tuple(about.values())
        if key not in found or _size(line["certified"]) < _size(found[key]["certified"]):
            found[key] = line
    return list(found.values())


def headline(facts: Facts) -> Facts | None:
    """The epsilon that stands for a run: its observer's, for users if there are some, the largest
    over groups."""
    own = [row for row in facts["epsilons"] if row["observer"] == facts["observer"]]
    of_users = [row for row in own if row["unit"] == "user"] or own
    return max(of_users, key=lambda row: _size(row["certified"]), default=None)


def protects(facts: Facts) -> bool:
    """Whether the run says that it protects somebody, and is done."""
    return facts["dp_valid"] is True and facts["state"] == "done"


def _command(folder: Path) -> str:
    words = files.read_overrides(folder)
    return "" if words is None else " ".join(["fedpriv", *map(shlex.quote, words)])


def _components(settings: Mapping[str, Any]) -> dict[str, str]:
    """The class of each config group: its own name if it is fedpriv's, else the whole one."""
    named = {group: text(_mapping(settings.get(group)).get(TARGET)) for group in GROUPS}
    return {group: class_name(target) for group, target in named.items() if target}


def _settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Every key with its value, but the places of files on the machine that trained."""
    shown = {key: value for key, value in settings.items() if key not in ("preset", "resume")}
    lines = {text(key): text(value) for key, value in flat(shown).items()}
    return {key: value for key, value in lines.items() if not key.endswith((".root", ".path"))}


def _users(status: Status) -> Facts:
    """Where users come from (`data`, `allocator`, `invented`, or "" where the run does not say),
    and their public numbers."""
    origin = "invented" if INVENTED in status.not_covered else status.users.get("from")
    return {
        "from": origin if origin in ("data", "allocator", "invented") else "",
        "n_users": count(status.users.get("n_users")),
        "n_silos": count(status.users.get("n_silos")),
    }


def _last_metrics(rows: Sequence[Row], status: Status, public: bool) -> dict[str, Facts]:
    """Each metric after the last evaluated round, with its label."""
    if not rows:
        return {}
    found = {}
    for name, value in rows[-1].items():
        if name != "round" and value and (not public or status.metric_label(name) == RELEASED):
            label = text(status.metric_label(name))
            found[text(name)] = {"value": plain(number(value)), "label": label}
    return found


def _curve(
    metrics: Sequence[Row], epsilon: Sequence[Row], metric: str, observer: str, *, hidden: bool
) -> list[Facts]:
    """The main metric and the headline epsilons of each evaluated round; at most `MOST_POINTS`
    rounds, evenly chosen, the last among them."""
    if hidden:
        return []
    by_round: dict[str, list[Row]] = {}
    for row in epsilon:
        if row.get("observer") == observer:
            by_round.setdefault(row.get("round", ""), []).append(row)
    points = []
    for row in metrics:
        best = headline(
            {
                "epsilons": last_epsilons(by_round.get(row.get("round", ""), []), {}),
                "observer": observer,
            }
        )
        value = number(row.get(metric))
        if best is not None and value is not None and math.isfinite(value):
            point = {"round": best["round"], "metric": value}
            points.append(point | {key: best[key] for key in ("certified", "claimed")})
    return evenly(points, MOST_POINTS)


def _digests(status: Status, settings: Mapping[str, Any], public: bool) -> dict[str, str]:
    """Digests that the run recorded, and that of its settings."""
    found = {name: text(digest) for name, digest in asdict(status.identity).items()}
    if public:
        found |= {name: LEFT_OUT for name in PRIVATE_DIGESTS if name in found}
    own = {
        "settings": files.digest_of(settings),
        "settings_of_audits": files.digest_of(comparable(settings)),
    }
    return found | own


def _size(value: float | str | None) -> float:
    return math.inf if value is None or isinstance(value, str) else value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
