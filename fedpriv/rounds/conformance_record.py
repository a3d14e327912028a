"""Records of the classes that have passed `fedpriv.testing`, each with a digest of its code.

A record is a JSON file, {"module.Class": digest}. One record ships with fedpriv and covers its own
classes; a second one is in the user's cache. A digest covers the code that a class runs
(`fedpriv.rounds.code_digest`). It does not cover the values of a class's fields.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fedpriv.errors import FedprivError
from fedpriv.rounds.code_digest import code_digest

SHIPPED = Path(__file__).parents[1] / "testing" / "conformance_records.json"


def cached() -> Path:
    """The path of the record in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fedpriv" / "conformance_records.json"


def class_name(cls: type) -> str:
    """The name of a class in a record."""
    return f"{cls.__module__}.{cls.__qualname__}"


def has_passed(cls: type) -> bool:
    """Whether a record contains `cls` with its current code."""
    name = class_name(cls)
    now = None
    for path in (SHIPPED, cached()):
        if (then := _read(path).get(name)) is not None:
            now = now or code_digest(cls)
            if then == now:
                return True
    return False


def note_passed(cls: type, path: Path) -> None:
    """Add `cls` with its current code to the record at `path`. Raises FedprivError for a class
    without a source file, or a path that cannot be written."""
    digest = code_digest(cls)
    if digest is None:
        raise FedprivError(f"{class_name(cls)} has no source file that a record could be tied to")
    known = _read(path) | {class_name(cls): digest}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        raise FedprivError(f"{path}: cannot write there ({error.strerror})") from error


def _read(path: Path) -> dict[str, str]:
    """The classes of a record. A missing or damaged record has none, so that no class counts as
    checked by mistake."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
