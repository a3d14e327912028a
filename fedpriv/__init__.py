"""Reproducible private federated learning, with a proven epsilon beside every claimed one.

`run`, `sweep`, `compare`, `load`, `epsilon` and `federation` are functions of `fedpriv.api`, and
`record` of `fedpriv.claims.recording.record`. These modules are loaded when one of them is used.
"""

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Without this, torch's matrix products (MKL) have different last bits in a batch than alone on some
# processors, and a run of a sweep would differ from the same run alone. MKL reads it at first use.
os.environ.setdefault("MKL_CBWR", "AUTO")

LIBRARY = ("run", "sweep", "compare", "load", "epsilon", "federation")


def __getattr__(name: str) -> Any:
    if name == "record":
        return import_module("fedpriv.claims.recording.record").record
    if name not in LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedpriv.api"), name)
