"""Reproducible private federated learning, with a proven epsilon beside every claimed one.

`run`, `sweep`, `compare`, `epsilon` and `federation` are functions of `fedpriv.api`, and `record`
of `fedpriv.claims.recording.record`. These modules are loaded when one of them is used.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

# Without this, torch's matrix products (MKL) have different last bits in a batch than alone on some
# processors, and a run of a sweep would differ from the same run alone. MKL reads it at first use.
os.environ.setdefault("MKL_CBWR", "AUTO")

LIBRARY = ("run", "sweep", "compare", "epsilon", "analyse", "federation")


def load(*folders: Any) -> Any:
    """The `Model` of one bundle, with `predict` and `predict_proba`, which needs neither torch nor
    Hydra if there is a model.onnx; or the `Runs` of `fedpriv.api.load_runs`. Raises FedprivError
    for a folder without either."""
    if len(folders) == 1 and isinstance(folders[0], str | os.PathLike):
        bundle = import_module("fedpriv.bundles.bundle")
        if bundle.is_bundle(Path(folders[0])):
            return import_module("fedpriv.bundles.model").load_model(folders[0])
    return import_module("fedpriv.api").load_runs(*folders)


def __getattr__(name: str) -> Any:
    if name == "record":
        return import_module("fedpriv.claims.recording.record").record
    if name not in LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedpriv.api"), name)
