"""audit.json: what an audit found, with the settings that it is about.

It lies beside audit.csv. Readers find there which settings were attacked, so that results are not
shown for others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fedpriv
from fedpriv.reports.groups import settings as relevant_settings
from fedpriv.util.durable_files import replace_file

AUDIT = "audit.json"
SCHEMA = "fedpriv-audit/1"


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the seed, the rounds and keys that change no result: an audit may run fewer
    rounds, and says how many. Noise that is solved for a target is that of its rounds, so they
    count. 5 and 5.0 are the same setting."""
    accountant = settings.get("accountant")
    solved = isinstance(accountant, Mapping) and accountant.get("target") is not None
    left_out = ("randomness",) if solved else ("rounds", "randomness")
    return relevant_settings({k: v for k, v in settings.items() if k not in left_out})


def write_audit(path: Path, confidence: float, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Write the file.

    confidence: of each lower bound.
    jobs: for each audited experiment its `settings` as plain values, `rows` and `premises`.
    """
    found = {
        "schema": SCHEMA,
        "made": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "made_by": f"fedpriv {fedpriv.__version__}",
        "confidence": confidence,
        "jobs": [plain(job) for job in jobs],
    }
    replace_file(path, (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())


def plain(value: Any) -> Any:
    """Values for JSON: infinity as the text "inf", NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value
