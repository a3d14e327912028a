"""Which classes have passed `fedpriv.testing`, each tied to the source it had then.

The records are JSON files, {"module.Class": digest}: one that ships with fedpriv, for its own
classes, and one in the user's cache. A digest covers the files of the class and of its bases below
a root class; what they call elsewhere it does not see, nor the values of a class's fields.
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
    """The user's own record."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fedpriv" / "conformance_records.json"


def class_name(cls: type) -> str:
    """What a class is called in a record."""
    return f"{cls.__module__}.{cls.__qualname__}"


def source_digest(cls: type, root: type) -> str | None:
    """SHA-256, hexadecimal, of the source files of `cls` and of those of its bases that `root` does
    not have, as they are now; None for a class without a file, such as one typed at a prompt."""
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
    """Whether a record holds `cls` with the source that it has now."""
    name = class_name(cls)
    now = None
    for path in (SHIPPED, cached()):
        if (then := _read(path).get(name)) is not None:
            now = now or source_digest(cls, root)
            if then == now:
                return True
    return False


def note_passed(cls: type, root: type, path: Path) -> None:
    """Add `cls` as it is now to the record at `path`. Raises FedprivError for a class without a
    source file, or a path that cannot be written."""
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
    """A record's classes; none where there is no record, or a damaged one, so that nothing passes
    for checked."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
