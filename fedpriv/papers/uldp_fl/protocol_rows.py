"""Processor seconds of private weighting for the ledger (Uldp-FL, Figs 11 and 12).

What the paper calls local training is `TRAINING` and `WEIGHTING` here: it counts a silo's work on
ciphertexts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fedpriv.papers.ledger.results import DECIDING, Row
from fedpriv.papers.uldp_fl.protocol_time import measured

FIG11 = ("experiment=uldp_fl/fig11", "rounds=1", "seed=0,1,2,3,4")
FIG12 = ("experiment=uldp_fl/fig12", "rounds=1", "seed=0,1")


def hospitals(say: Callable[[str], None]) -> Iterator[Row]:
    """Fig. 11: heart disease and TCGA-BRCA, 10 and 100 users."""
    yield from _rows(FIG11, ("data", "users"), say)


def sizes(say: Callable[[str], None]) -> Iterator[Row]:
    """Fig. 12: artificial records, 16 to 107 parameters, 10 to 40 users."""
    yield from _rows(FIG12, ("parameters", "users"), say)


def _rows(
    words: tuple[str, ...], keys: tuple[str, ...], say: Callable[[str], None]
) -> Iterator[Row]:
    for setting, seconds in measured(*words):
        place = ", ".join(f"{key}={setting[key]}" for key in keys)
        say(f"{place}, seed {setting['seed']}")
        for phase, spent in seconds.items():
            yield Row(
                question="curve",
                phase=DECIDING,
                method=phase,
                place=place,
                settings="",
                seed=setting["seed"],
                round=1,
                metric="seconds",
                value=spent,
                certified=math.nan,
                claimed=math.nan,
            )
