"""Claims for the tests of `fedpriv.claims`."""

import copy
from dataclasses import replace
from typing import Any

from fedpriv.claims.certificates import certify
from fedpriv.claims.reading import parse
from fedpriv.claims.refutations import attack_bound
from fedpriv.claims.verdicts import judge

EVERYBODY = ["released model", "server", "client"]

DP_SGD: dict[str, Any] = {
    "schema": "fedpriv-claim/1",
    "name": "DP-SGD of one client",
    "claims": [
        {
            "epsilon": 4.0,
            "delta": 1e-5,
            "unit": "record",
            "adjacency": "add/remove",
            "observer": "server",
        }
    ],
    "complete": True,
    "choices": "none",
    "population": {"record": {"contributors": 1, "scopes": 1}},
    "releases": [
        {
            "scope": "all",
            "contributor": "record",
            "times": 100,
            "participation": 100,
            "clip": 1.0,
            "tensors": 1,
            "weight": 1.0,
            "weights": "fixed",
            "denominator": "fixed",
            "noise": {
                "mechanism": "gaussian",
                "deviation": 1.0,
                "added_by": "holder of the data",
                "generator": "independent",
            },
            "sampling": {
                "rule": "poisson",
                "rate": 0.05,
                "drawn": "each time",
                "hidden_from": EVERYBODY,
            },
            "seen": dict.fromkeys(EVERYBODY, "sum"),
        }
    ],
}

LOCAL_DP: dict[str, Any] = {
    "schema": "fedpriv-claim/1",
    "claims": [
        {
            "epsilon": 8.0,
            "delta": 1e-5,
            "unit": "client",
            "adjacency": "zero-out",
            "observer": "server",
        }
    ],
    "complete": True,
    "choices": "none",
    "population": {"client": {"contributors": 1, "scopes": 1}},
    "releases": [
        {
            "scope": "all",
            "contributor": "client",
            "times": 3,
            "participation": 3,
            "clip": 1.0,
            "tensors": 1,
            "weight": 1.0,
            "weights": "fixed",
            "denominator": "fixed",
            "noise": {
                "mechanism": "gaussian",
                "deviation": 4.0,
                "added_by": "clients",
                "shares": 5,
                "generator": "independent",
            },
            "sampling": {"rule": "everything"},
            "seen": {"released model": "sum", "server": "messages", "client": "sum"},
        }
    ],
}

BATCHES = copy.deepcopy(DP_SGD)
BATCHES["claims"][0]["adjacency"] = "replace"
BATCHES["releases"][0]["sampling"] = {
    "rule": "without replacement",
    "batch": 10,
    "of": 1000,
    "drawn": "each time",
    "hidden_from": EVERYBODY,
}


def at(data: Any, path: str) -> tuple[Any, Any]:
    """The container of a dotted path, and the last key."""
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in above:
        data = data[part]
    return data, last


def changed(data: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A copy with new values; keys are dotted paths with `__` for a dot, `releases__0__clip`."""
    new = copy.deepcopy(data)
    for path, value in values.items():
        container, last = at(new, path.replace("__", "."))
        container[last] = value
    return new


def paths(data: Any, prefix: str = "") -> list[str]:
    """The paths of all fields below `data`, inner ones too."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    found = []
    for key, value in items:
        path = f"{prefix}.{key}" if prefix else str(key)
        found += [path, *paths(value, path)]
    return found


def certified(data, **target):
    """The certified epsilon of a claim's first statement, or of one that differs from it."""
    claim = parse(data)
    return certify(claim, replace(claim.statements[0], **target)).epsilon


def attacked(data):
    """The epsilon that an attack reaches."""
    claim = parse(data)
    return attack_bound(claim, claim.statements[0]).epsilon


def verdict(data):
    """The finding for the only statement."""
    [found] = [finding for finding in judge(parse(data)) if finding.verdict]
    return found
