"""Which source runs: its version, its digest, its git commit."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import fedpriv

CHANGED = "+changes"
"""Stands after the hash of a commit whose files have been changed since."""
SECONDS = 10
CODE = (".py", ".cpp", ".h")


def package() -> str:
    """The version and the code of this package, for comparison with another machine's."""
    return f"fedpriv {fedpriv.__version__} (code {source_digest('fedpriv')[:12]})"


@cache
def source_digest(name: str) -> str:
    """The digest of the source of a loaded top-level package or module; what was typed at a prompt
    has none."""
    module = sys.modules[name]
    source: dict[str, Path] = {}
    if getattr(module, "__file__", None):
        source[""] = Path(str(module.__file__))
    for folder in getattr(module, "__path__", ()):
        paths = (path for path in Path(folder).rglob("*") if path.suffix in CODE)
        source |= {str(path.relative_to(folder)): path for path in paths}
    found = hashlib.sha256(name.encode())
    for place, path in sorted(source.items()):
        text = path.read_bytes()
        found.update(f"{place} {len(text)} ".encode() + text)
    return found.hexdigest()


@cache
def source_commit() -> str:
    """Hash of the checkout that contains this package, with `CHANGED` after it where files of the
    package differ from the commit; empty outside a checkout, and without git."""
    root = Path(fedpriv.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    commit = _git(root, "rev-parse", "HEAD")
    return commit and commit + (
        CHANGED if _git(root, "status", "--porcelain", "--", "fedpriv") else ""
    )


def _git(root: Path, *words: str) -> str:
    """What git prints; empty where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
