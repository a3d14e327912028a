"""Start the experiment of a figure, shortened by its quick profile.

`quick_profiles.yaml` has the quick profile of every figure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from fedpriv.errors import FedprivError


@cache
def quick_profiles() -> dict[str, Any]:
    """By the figure's name for `fedpriv reproduce`: `seconds` of a processor that its quick profile
    takes with one thread, and the `words` that shorten its experiment."""
    return dict(yaml.safe_load((files("fedpriv.papers") / "quick_profiles.yaml").read_text()))


def profile_words(name: str, profile: str) -> Sequence[str]:
    """The overrides that a profile adds to the experiment of a figure."""
    return quick_profiles()[name].get("words", ()) if profile == "quick" else ()


def run_command(*words: str) -> int:
    """Run a `fedpriv` command in a child process; returns its exit code."""
    return subprocess.run([sys.executable, "-m", "fedpriv", *words], check=False).returncode


def run_experiment(
    name: str,
    folder: Path,
    profile: str,
    *words: str,
    profile_of: str | None = None,
) -> None:
    """Run an experiment as a sweep in a folder.

    name: of the experiment.
    profile: "quick" or "paper".
    words: further overrides; they replace those of the profile with the same key.
    profile_of: the figure whose quick profile counts; None takes `name`.

    Raises FedprivError when the command fails.
    """
    shorter = profile_words(profile_of or name, profile)
    usual = (f"experiment={name}", f"hydra.sweep.dir={folder}", *shorter)
    # A key that is given twice would run every job twice.
    by_key = {word.partition("=")[0]: word for word in (*usual, *words)}
    if run_command(*by_key.values()):
        raise FedprivError(f"experiment={name}: the sweep in {folder} failed")
