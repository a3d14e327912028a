"""Which tests call which functions. Only these tests can notice a change there; short ones run
first."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType

import pytest

from scripts.mutants.patch import forget

Reached = dict[str, tuple[float, set[str]]]
"""By test: its seconds of processor time, and the functions that it called, as `place` writes
them.
"""


def place(path: str, scope: str) -> str:
    """Name of a function or class here."""
    return f"{path} :: {scope}"


def tests_for(reached: Reached, path: str, scope: str, most: float) -> dict[str, float]:
    """Tests that call what a change in `scope` of the file `path` belongs to, short ones first,
    with their seconds: as many as take `most` seconds together, and one at least."""
    where = place(path, scope)
    within = f"{path} :: " if scope == "module" else f"{where}."
    found = [
        (seconds, test)
        for test, (seconds, called) in reached.items()
        if any(one == where or one.startswith(within) for one in called)
    ]
    found.sort()
    before = [0.0, *accumulate(seconds for seconds, _ in found)]
    return {
        test: seconds
        for spent, (seconds, test) in zip(before, found)
        if not spent or spent + seconds <= most
    }


MADE = "<string>"
"""The file of what dataclasses write themselves: a class's defaults show there, whatever else is
called of it."""


@dataclass
class Recorder:
    """A pytest plug-in that records for each test what it calls in `tree`, its fixtures
    included.
    """

    tree: Path

    def __post_init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.classes: set[type] = set()
        self.found: dict[str, tuple[float, list[str]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        forget(self.tree)
        begin = time.process_time()
        self.codes = set()
        self.classes = set()
        sys.setprofile(self._called)
        threading.setprofile(self._called)
        try:
            result = yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        names = {
            self._name(code) for code in self.codes if code.co_filename.startswith(f"{self.tree}/")
        }
        names |= {
            self._made(cls) for cls in self.classes if cls.__module__.partition(".")[0] == "fedpriv"
        }
        self.found[item.nodeid] = time.process_time() - begin, sorted(names)
        return result

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.codes.add(frame.f_code)
            if frame.f_code.co_filename == MADE:
                self.classes.update(type(frame.f_locals.get("self")).__mro__)

    def _name(self, code: CodeType) -> str:
        return place(
            str(Path(code.co_filename).relative_to(self.tree)),
            code.co_qualname.replace(".<locals>", ""),
        )

    def _made(self, cls: type) -> str:
        file = sys.modules[cls.__module__].__file__ or ""
        return place(str(Path(file).relative_to(self.tree)), f"{cls.__qualname__}.__init__")

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(self.found))


def read(file: Path) -> Reached:
    return {
        test: (seconds, set(called))
        for test, (seconds, called) in json.loads(file.read_text()).items()
    }


@dataclass(frozen=True)
class Limits:
    """A pytest plug-in that ends the process by SIGPROF where a test takes far more processor time
    than it took."""

    seconds: dict[str, float]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        signal.setitimer(signal.ITIMER_PROF, LEAST_LIMIT + SLOWER * self.seconds[item.nodeid])
        return (yield)


LEAST_LIMIT, SLOWER = 4.0, 3.0
"""Seconds that every test may take, and how many times its own ones beside."""
