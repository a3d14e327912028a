"""A command's start: what it may not need is imported when it is first used.

Events of dp_accounting are plain values. The rest of the package imports half of scipy, which takes
longer than all of fedpriv, and only losses on a grid, samples and calibration need it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from typing import Any

PACKAGE = "dp_accounting"
EVENTS = "dp_event"
"""The module of the package that holds its events."""


def import_events_alone() -> None:
    """From now on, `import dp_accounting` loads the events. The package's own code runs on the
    first use of another name, in the same module."""
    spec = None if PACKAGE in sys.modules else find_spec(PACKAGE)
    if spec is None or spec.loader is None:
        return
    package, loader, lock = module_from_spec(spec), spec.loader, RLock()
    started: list[bool] = []
    sys.modules[PACKAGE] = package
    events = import_module(f"{PACKAGE}.{EVENTS}")

    def rest(name: str) -> Any:
        # Tools that look through all modules ask for such names; they mean no use of this one.
        if name.startswith("__"):
            raise AttributeError(f"only the events of {PACKAGE} are loaded")
        if find_spec(f"{PACKAGE}.{name}") is not None:
            return import_module(f"{PACKAGE}.{name}")
        with lock:  # other threads wait here until the package is whole
            if not started:
                started.append(True)
                loader.exec_module(package)
                vars(package).pop("__getattr__", None)
        if name not in vars(package):
            raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
        return vars(package)[name]

    named = {name: value for name, value in vars(events).items() if name.endswith("DpEvent")}
    vars(package).update(named, __getattr__=rest)


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Context of imports and preparations, in which no garbage is collected: they make many objects
    that stay, and looking through them again and again takes a tenth of a start."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
