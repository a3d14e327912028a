"""Records of the classes that have passed `fedpriv.testing`, each with a digest of its source.

A record is a JSON file, {"module.Class": digest}. One record ships with fedpriv and covers its own
classes; a second one is in the user's cache. A digest covers the files of the class and of its
bases below a root class. It does not cover code that these files call elsewhere, nor the values of
a class's fields.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from pathlib import Path

from fedpriv.errors import FedprivError

SHIPPED = Path(__file__).parents[1] / "testing" / "conformance_records.json"


def cached() -> Path:
    """The path of the record in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fedpriv" / "conformance_records.json"


def class_name(cls: type) -> str:
    """The name of a class in a record."""
    return f"{cls.__module__}.{cls.__qualname__}"


def source_digest(cls: type, root: type) -> str | None:
    """SHA-256, hexadecimal, of the current source files of `cls` and of its bases that are not
    bases of `root`. None for a class without a file, such as one typed at a prompt."""
    found = hashlib.sha256()
    try:
        files = dict.fromkeys(
            inspect.getfile(base) for base in cls.__mro__ if base not in root.__mro__
        )
        for file in files:
            text = Path(file).read_text(encoding="utf-8").encode()
            found.update(len(text).to_bytes(8, "big") + text)
    except (TypeError, OSError):
        return None
    return found.hexdigest()


def has_passed(cls: type, root: type) -> bool:
    """Whether a record contains `cls` with its current source."""
    name = class_name(cls)
    now = None
    for path in (SHIPPED, cached()):
        if (then := _read(path).get(name)) is not None:
            now = now or source_digest(cls, root)
            if then == now:
                return True
    return False


def note_passed(cls: type, root: type, path: Path) -> None:
    """Add `cls` with its current source to the record at `path`. Raises FedprivError for a class
    without a source file, or a path that cannot be written."""
    digest = source_digest(cls, root)
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
