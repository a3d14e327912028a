"""A case of a benchmark in a process of its own, so that cases share neither memory nor warm
caches."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """work(*arguments) in a fresh interpreter whose libraries compute on one thread."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
