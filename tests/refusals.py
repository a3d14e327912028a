"""What is refused, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedpriv.errors import FedprivError


def refused(
    run: Callable[[], Any],
    *parts: object,
    error: type[FedprivError] = FedprivError,
    start: str = "",
) -> str:
    """The one line with which a call is refused.

    parts: texts that it contains.
    start: what it starts with.
    """
    with pytest.raises(error) as caught:
        run()
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(start)
    assert [part for part in parts if str(part) not in line] == [], line
    return line
