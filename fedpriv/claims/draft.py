"""A draft of a claim: what is known of a training, and `unknown` for all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.reading import UNKNOWN


def claim(
    name: str = UNKNOWN,
    claims: Sequence[dict[str, Any]] = (),
    releases: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A claim as plain data, for `fedpriv.claims.reading.parse` or a file. Without statements or
    releases it has one that says nothing."""
    units = {statement["unit"] for statement in claims} & set(s.UNITS)
    spread = {"contributors": UNKNOWN, "scopes": UNKNOWN}
    return {
        "schema": s.VERSION,
        "name": name,
        "claims": [*claims] or [statement()],
        "complete": UNKNOWN,
        "choices": UNKNOWN,
        "population": {unit: dict(spread) for unit in sorted(units)},
        "releases": [*releases] or [release(UNKNOWN)],
    }


def statement(**known: Any) -> dict[str, Any]:
    """A statement; what is not `known` is unknown."""
    names = ("epsilon", "delta", "unit", "adjacency", "observer")
    return {name: _said(known.get(name)) for name in names}


def release(name: str, **known: Any) -> dict[str, Any]:
    """A release; what is not `known` is unknown."""
    names = ("scope", "contributor", "times", "participation", "clip", "tensors", "weight")
    fields = {key: _said(known.get(key)) for key in (*names, "weights", "denominator")}
    noise = known.get("noise") or {"mechanism": UNKNOWN}
    sampling = known.get("sampling") or {"rule": UNKNOWN}
    seen = known.get("seen") or dict.fromkeys(s.WHO, UNKNOWN)
    return {"name": name, **fields, "noise": noise, "sampling": sampling, "seen": seen}


def noise(mechanism: str, **known: Any) -> dict[str, Any]:
    """The noise of a release; what is not `known` is unknown. A deviation of 0 is no noise."""
    if known.get("deviation") == 0:
        return {"mechanism": s.NO_NOISE}
    fields = {key: _said(known.get(key)) for key in ("deviation", "added_by", "generator")}
    if fields["added_by"] == s.BY_CLIENTS:
        fields["shares"] = _said(known.get("shares"))
    return {"mechanism": mechanism, **fields}


def _said(value: Any) -> Any:
    return UNKNOWN if value is None else value
