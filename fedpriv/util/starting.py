"""A command's start: what it may not need is imported when it is first used.

Events of dp_accounting are plain values. The rest of the package imports half of scipy, which takes
longer than all of fedpriv, and only losses on a grid, samples and calibration need it.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

PACKAGE = "dp_accounting"
EVENTS = "dp_event"
"""The module of the package that holds its events."""
_LOCK = Lock()


class EventsAlone(ModuleType):
    """Takes the package's place in `sys.modules`. It has the events. Whoever asks for more gets the
    whole package, which then takes its own place; its events are the same classes."""

    def __getattr__(self, name: str) -> Any:
        # Tools that look through all modules ask for such names; they mean no use of this one.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"only the events of {PACKAGE} are loaded")
        if name.endswith("DpEvent"):
            return getattr(sys.modules[f"{PACKAGE}.{EVENTS}"], name)
        return getattr(self.whole(), name)

    def whole(self) -> ModuleType:
        """The package itself."""
        with _LOCK:  # not while it loads: Python's own locks see to that
            if sys.modules.get(PACKAGE) is self:
                del sys.modules[PACKAGE]
        return importlib.import_module(PACKAGE)


class WholeFirst(MetaPathFinder):
    """An import of another module of the package loads the package first, as it always does."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules.get(PACKAGE)
        if not (name.startswith(f"{PACKAGE}.") and isinstance(package, EventsAlone)):
            return None
        package.whole()
        loaded = sys.modules.pop(name, None)  # else Python would load it again
        return None if loaded is None else ModuleSpec(name, _Loaded(loaded))


class _Loaded(Loader):
    """Gives back a module that has run already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        pass


def import_events_alone() -> None:
    """From now on, `import dp_accounting` loads the events; the rest is loaded on its first use."""
    spec = None if PACKAGE in sys.modules else find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return
    name = f"{PACKAGE}.{EVENTS}"
    own = spec_from_file_location(name, Path(spec.origin).with_name(f"{EVENTS}.py"))
    if own is None or own.loader is None:
        return
    events = module_from_spec(own)
    own.loader.exec_module(events)
    package = EventsAlone(PACKAGE)
    package.__path__ = list(spec.submodule_search_locations or ())
    setattr(package, EVENTS, events)
    sys.modules |= {name: events, PACKAGE: package}
    sys.meta_path.insert(0, WholeFirst())


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
