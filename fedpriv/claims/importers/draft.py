"""A draft of a claim: what a project's files say, and `unknown` for all they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.reading import UNKNOWN
from fedpriv.errors import DataError
from fedpriv.util.untrusted_files import read_bytes, require_no_link

LARGEST_SOURCE = 2**21
"""Bytes of one source file."""

RECORD_IT = "fedpriv.record() counts what a training does"


@dataclass
class Draft:
    """A claim in the making.

    framework: where the settings come from.
    files: the files that were read.
    claims: statements that were found; a statement without values if there is none.
    releases: the releases that were found.
    unread: what a file holds that could not be read, each in one line.
    """

    framework: str
    files: list[str] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    releases: list[dict[str, Any]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The claim as plain data, for `fedpriv.claims.reading.parse` or a file."""
        claims = self.claims or [statement()]
        units = {claim["unit"] for claim in claims} & set(s.UNITS)
        spread = {"contributors": UNKNOWN, "scopes": UNKNOWN}
        return {
            "schema": s.VERSION,
            "name": f"settings of {self.framework}",
            "source": {"file": ", ".join(self.files)},
            "claims": claims,
            "complete": UNKNOWN,
            "choices": UNKNOWN,
            "population": {unit: dict(spread) for unit in sorted(units)},
            "releases": self.releases or [release(UNKNOWN)],
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


def poisson(rate: float | None) -> dict[str, Any]:
    """Poisson sampling at a rate that may be unknown."""
    return {"rule": s.POISSON, "rate": _said(rate), "drawn": s.EACH_TIME, "hidden_from": UNKNOWN}


def gradients(name: str, **known: Any) -> dict[str, Any]:
    """A sum of records' gradients as Opacus releases it: its weights and denominator are fixed."""
    fixed = {"weight": 1.0, "weights": s.FIXED, "denominator": s.FIXED}
    return release(name, contributor=s.RECORD, **fixed, **known)


def product(*factors: object) -> float | None:
    """The product of positive numbers; None if one is none, or no finite one."""
    result = 1.0
    for factor in factors:
        if type(factor) not in (int, float) or not 0 < factor < 1e100:  # type: ignore[operator]
            return None
        result *= factor  # type: ignore[operator]
    return result


def parsed(path: Path, parse: Callable[[str], Any]) -> Any:
    """What a file's text is parsed to. Raises DataError, in one line, if it cannot be."""
    try:
        require_no_link(path)
        return parse(read_bytes(path, LARGEST_SOURCE).decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not read: {reason[:120]}") from error


def _said(value: Any) -> Any:
    return UNKNOWN if value is None else value
