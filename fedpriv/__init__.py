"""Experiments in private federated learning whose every epsilon is certified.

From Python: `run`, `sweep`, `load`, `epsilon` and `federation` of `fedpriv.api`, which is loaded
when one is used.
"""

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Else, on some processors, torch's library (MKL) gives a product of matrices other last bits among
# many than alone, and a run of a sweep would not have its own. Read at the library's first use.
os.environ.setdefault("MKL_CBWR", "AUTO")

LIBRARY = ("run", "sweep", "load", "epsilon", "federation")


def __getattr__(name: str) -> Any:
    if name not in LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedpriv.api"), name)
