"""Fig. 6 of Jeon et al. (SecureD-FL): the number of partitions of peers into groups."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from fedpriv.papers.ledger.results import measurement
from fedpriv.topology.groups import ROLLBACK, TRIALS, randomised

NUMBERS = {3: range(9, 61, 6), 4: range(16, 61, 12)}
"""Numbers of peers by the size of a group, as in Fig. 6."""
DRAWS = 1_000_000
"""Most draws of the authors' program, which has a rollback."""
COUNTED_RUNS = 3


def count_by_run(say: Callable[[str], None], *, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Fig. 6: the number of partitions that each run finds, with the authors' draws; quick: with
    fewer."""
    draws = TRIALS if quick else DRAWS
    for size, n in ((size, n) for size, numbers in NUMBERS.items() for n in numbers):
        say(f"groups of {size}, {n} peers")
        for method, rollback in (("with rollback", ROLLBACK), ("as printed", None)):
            for run in range(COUNTED_RUNS):
                rng = random.Random(f"{size}/{n}/{run}")
                found = randomised((size,) * (n // size), rng, rollback=rollback, trials=draws)
                yield measurement(
                    method=method,
                    place=f"size={size}, peers={n}",
                    seed=run,
                    round=0,
                    metric="partitions",
                    value=float(len(found)),
                    certified=math.inf,
                )
