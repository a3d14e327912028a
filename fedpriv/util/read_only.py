"""Vectors that several parties of one process share: nobody may write into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def read_only(value: Any) -> Any:
    """A view of an array that refuses to be written into; anything else as it is."""
    if type(value) is not np.ndarray or not value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def read_only_values(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Named arrays as such views."""
    return {name: read_only(value) for name, value in arrays.items()}


def kept(vector: Any) -> np.ndarray:
    """The vector as float64 that no later change of `vector` reaches: itself if it is read-only,
    else a copy."""
    if type(vector) is np.ndarray and vector.dtype == np.float64 and not vector.flags.writeable:
        return vector
    own: np.ndarray = np.array(vector, dtype=np.float64)
    own.flags.writeable = False
    return own
