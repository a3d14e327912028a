"""Claims drawn over all fields of the schema, the ordinary values more often."""

from __future__ import annotations

from typing import Any

import numpy as np

OBSERVERS = ("released model", "server", "client")
SIGHTS = ("nothing", "sum", "messages")
UNITS = ("record", "user", "client")


class Draw:
    """Values from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *values: Any, often: int = 1) -> Any:
        """One of the values, the first `often` times as likely as another."""
        index = int(self.rng.integers(len(values) + often - 1))
        return values[max(0, index - often + 1)]

    def size(self, low: float, high: float) -> float:
        """A number, uniform in its logarithm, with three digits."""
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")

    def whole(self, low: int, high: int) -> int:
        return round(self.size(low, high))


def draw_claim(seed: int) -> dict[str, Any]:
    """A claim with one statement that `fedpriv certify` reads without a question."""
    draw = Draw(seed)
    unit = draw.one(*UNITS)
    statement = {
        "epsilon": 1.0,
        "delta": draw.one(1e-5, 1e-3, 1e-6, 1e-2, often=2),
        "unit": unit,
        "adjacency": draw.one("add/remove", "replace", "zero-out"),
        "observer": draw.one(*OBSERVERS),
    }
    scopes = draw.one(1, 2, often=3)
    releases = [_release(draw, unit) for _ in range(draw.one(1, 2, 3, often=5))]
    if len(releases) == 2 and releases[1]["sampling"].get("drawn") == "with another release":
        same = ("scope", "contributor", "times", "participation", "sampling")
        releases[0] |= {key: releases[1][key] for key in same}
        releases[0]["sampling"] = releases[1]["sampling"] | {"drawn": draw.one("each time", "once")}
    return {
        "schema": "fedpriv-claim/1",
        "claims": [statement],
        "complete": draw.one(True, False, often=150),
        "choices": draw.one("none", ["the best round"], often=150),
        "population": {unit: {"contributors": draw.one(1, 2, 3, 5, often=6), "scopes": scopes}},
        "releases": releases,
    }


def _release(draw: Draw, unit: str) -> dict[str, Any]:
    times = draw.one(1, draw.whole(2, 20), draw.whole(20, 1000))
    sampling = _sampling(draw)
    participation = draw.one(times, draw.whole(1, times), often=8)
    if sampling["rule"] == "shuffled":
        passes = -(-times // -(-sampling["of"] // sampling["batch"]))
        participation = draw.one(passes, participation, often=4)
    noise = _noise(draw)
    lowest = draw.one(1, 0, 2, often=8)
    sights = [SIGHTS[max(lowest, draw.one(1, 0, 2, often=6))] for _ in OBSERVERS[1:]]
    if noise.get("added_by") == "server" and sights[0] == "nothing":
        sights[0] = "sum"
    return {
        "scope": draw.one("all", "A", "B", often=3),
        "contributor": draw.one(unit, *UNITS, often=3),
        "times": times,
        "participation": participation,
        "clip": draw.one(1.0, draw.size(0.1, 3), "none", often=40),
        "tensors": draw.one(1, 2, 5, often=8),
        "weight": draw.one(1.0, draw.size(0.2, 2), often=3),
        "weights": draw.one("fixed", "counts", "depends on data", often=25),
        "denominator": draw.one("fixed", "counts", "counts", "depends on data", often=20),
        "noise": noise,
        "sampling": sampling,
        "seen": dict(zip(OBSERVERS, [SIGHTS[lowest], *sights])),
    }


def _noise(draw: Draw) -> dict[str, Any]:
    mechanism = draw.one("gaussian", "laplace", "none", often=40)
    mechanism = draw.one(mechanism, "laplace", often=4)
    if mechanism == "none":
        return {"mechanism": "none"}
    adder = draw.one("server", "clients", "holder of the data", "trusted third party")
    noise = {
        "mechanism": mechanism,
        "deviation": draw.size(0.4, 20),
        "added_by": adder,
        "generator": draw.one(
            "independent", "shared by clients", "reused over releases", "public seed", often=40
        ),
    }
    return noise | ({"shares": draw.one(1, draw.whole(2, 12))} if adder == "clients" else {})


def _sampling(draw: Draw) -> dict[str, Any]:
    rule = draw.one("poisson", "everything", "without replacement", "shuffled", often=2)
    if rule == "everything":
        return {"rule": rule}
    seen = draw.one(3, 2, 1, 0, often=4)
    hidden: dict[str, Any] = {"rule": rule, "hidden_from": list(OBSERVERS[:seen]) or "none"}
    if rule == "poisson":
        hidden["rate"] = draw.one(draw.size(1e-3, 1), 1.0, often=12)
    else:
        hidden["of"] = draw.whole(2, 1000)
        hidden["batch"] = draw.one(draw.whole(1, hidden["of"]), hidden["of"], often=12)
    if rule != "shuffled":
        hidden["drawn"] = draw.one("each time", "once", "with another release", often=8)
    return hidden
