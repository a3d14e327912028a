"""Clipped sums by torch, as on a machine without a compiler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch


def without_compiled_sums() -> AbstractContextManager[Any]:
    """Context in which no sum of clipped gradients is compiled."""
    from fedpriv.training import clipped

    return patch.object(clipped, "clipped_sum", not_compiled)


def not_compiled(*_: Any) -> Any:
    """What stands for a compiled sum where there is no compiler."""
    from fedpriv.training.layers.mapping import Unmapped

    return Unmapped("it needs a C++ compiler")
