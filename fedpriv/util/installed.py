"""What is of this package, how it was installed, and how to install what it lacks."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from dataclasses import fields, is_dataclass
from importlib import metadata
from pathlib import Path

DISTRIBUTIONS = {"hydra": "hydra-core", "sklearn": "scikit-learn", "yaml": "PyYAML"}
"""Packages that an index knows by another name."""


def installed(component: object) -> bool:
    """Whether a component's class is of this package."""
    return type(component).__module__.startswith("fedpriv.")


def others(*components: object) -> tuple[str, ...]:
    """The names of other authors' classes among components and what they consist of.

    >>> from fedpriv.aggregation.plain import Plain
    >>> others(Plain(), None), others(Plain(), object())
    ((), ('object',))
    """
    names = []
    for one in components:
        if one is not None and not installed(one):
            names.append(type(one).__name__)
        if is_dataclass(one):
            parts = (getattr(one, field.name) for field in fields(one))
            names += others(*(part for part in parts if is_dataclass(part)))
    return tuple(dict.fromkeys(names))


def how_to_install(extra: str) -> str:
    """The command that adds an extra of pyproject.toml to this installation: for a checkout its
    folder with the extra, else the packages of the extra. It works in any folder."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").exists():
        return pip_install("-e", f"{checkout}[{extra}]")
    ends = re.compile(rf";\s*extra\s*==\s*['\"]{extra}['\"]$")
    lines = metadata.requires("fedpriv") or []
    return pip_install(*(ends.sub("", line) for line in lines if ends.search(line)))


def pip_install(*words: str) -> str:
    """The command that installs packages beside this program, also where its environment is not
    activated."""
    found = shutil.which("pip")
    own = found is not None and Path(found).parent == Path(sys.executable).parent
    pip = ["pip"] if own else [sys.executable, "-m", "pip"]
    return shlex.join([*pip, "install", *(DISTRIBUTIONS.get(word, word) for word in words)])
