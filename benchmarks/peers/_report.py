"""Results of a comparison with another program: outputs/benchmarks/<peer>.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedpriv.util.durable_files import replace_file

PACKAGES = ("fedpriv", "torch", "numpy", "opacus", "pfl", "flwr", "phe")


def write(peer: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the rows with the machine and the package versions; returns the file."""
    about = {
        "machine": processor(),
        "python": platform.python_version(),
        "packages": dict(_versions()),
    }
    path = Path("outputs") / "benchmarks" / f"{peer}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps({"about": about, "rows": list(rows)}, indent=2) + "\n").encode())
    return path


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Print the row, and return it."""
    cells = (
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
    )
    print("  ".join(cells), flush=True)
    return row


def processor() -> str:
    """The processor's name, if the system knows it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def _versions():
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
