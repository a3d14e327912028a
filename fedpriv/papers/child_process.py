"""Commands that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys


def run_command(*words: str) -> int:
    """The exit code of a `fedpriv` command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "fedpriv", *words], check=False).returncode
