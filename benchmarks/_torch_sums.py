"""Clipped sums by torch, as on a machine without a compiler."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch


def without_compiled_sums() -> AbstractContextManager[Any]:
    """Context in which no sum of clipped gradients is compiled."""
    from fedpriv.training import clipped
    from fedpriv.training.layers.mapping import Unmapped

    return patch.object(clipped, "clipped_sum", lambda *_: Unmapped("it needs a C++ compiler"))
