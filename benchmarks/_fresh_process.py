"""One case of a benchmark in its own process, so that cases share neither memory nor caches."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def in_fresh_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """work(*arguments) in a new interpreter whose libraries compute on one thread."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
