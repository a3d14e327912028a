"""The quick profile of each figure: what its experiment is shortened by, and what it takes:
`quick.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml


@dataclass(frozen=True)
class Quick:
    """words: overrides, of its experiment.
    seconds: of one processor.
    """

    seconds: float
    words: tuple[str, ...] = ()


@cache
def quick_profiles() -> dict[str, Quick]:
    """By the figure's name for `fedpriv reproduce`."""
    known = yaml.safe_load((files("fedpriv.papers") / "quick_profiles.yaml").read_text())
    return {
        name: Quick(entry["seconds"], tuple(entry.get("words", ())))
        for name, entry in known.items()
    }


def profile_words(name: str, profile: str) -> tuple[str, ...]:
    """What a profile adds to the words of a figure's experiment."""
    return quick_profiles()[name].words if profile == "quick" else ()
