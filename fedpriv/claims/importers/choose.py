"""Choose the importer by what a path looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedpriv.claims.importers.configs import read_arguments, read_nvflare, read_pfl
from fedpriv.claims.importers.draft import Draft
from fedpriv.claims.importers.python_code import read_flower, read_python
from fedpriv.errors import DataError

READERS: dict[str, Callable[[Path], Draft]] = {
    ".py": read_python,
    ".ipynb": read_python,
    ".toml": read_flower,
    ".json": read_nvflare,
    ".yaml": read_pfl,
    ".yml": read_pfl,
    ".sh": read_arguments,
}


def read_settings(path: Path) -> Draft:
    """The draft of a project's folder or of one of its files."""
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.is_dir():
        return read_flower(path) if (path / "pyproject.toml").exists() else read_python(path)
    if path.suffix not in READERS:
        allowed = ", ".join(READERS)
        raise DataError(f"{path}: cannot import {path.suffix or 'this file'}; allowed: {allowed}")
    return READERS[path.suffix](path)
