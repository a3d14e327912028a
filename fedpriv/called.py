"""Modules that can be called: fedpriv.run, .sweep and .epsilon are modules, and functions of `fedpriv.library`; Python
puts a module into its package as soon as somebody imports it, in place of the function."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class Called(ModuleType):
    """A module that passes calls on to the library's function of its name."""

    def __call__(self, *words: str, **options: Any) -> Any:
        """See `fedpriv.library`, which is loaded now."""
        function = getattr(import_module("fedpriv.library"), self.__name__.rpartition(".")[2])
        return function(*words, **options)


def can_be_called(module: str) -> None:
    """Make an imported module one that can be called."""
    sys.modules[module].__class__ = Called
