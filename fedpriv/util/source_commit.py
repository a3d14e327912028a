"""The git commit of the source that runs."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import fedpriv

CHANGED = "+changes"
"""Stands after the hash of a commit whose files have been changed since."""
SECONDS = 10


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
