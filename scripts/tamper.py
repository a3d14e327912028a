"""Prints what becomes of tampered messages under every aggregation, and writes it as a page.

python -m scripts.tamper tampered-messages.md --trials 20 secagg masked
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from fedpriv.testing import experiment
from fedpriv.testing.tamper import CRASH, SILENT, UNNAMED, tamper

SMALL = ("preset.n_users=6", "preset.local_epochs=1", "preset.silo_epochs=1")
COUNTED = ("algo=uldp_avg", "algo.weighting=records")
STATEFUL = ("algo=scaffold",)
SURVIVES = ("aggregation=secagg", "allocator.n_silos=4", "aggregation.cohort=3", "aggregation.threshold=3")
PRIVATE = (
    *COUNTED,
    "aggregation=private_weighting",
    "aggregation.key_bits=256",
    "aggregation.n_max=12",
    "aggregation.count_cap=4",
    "aggregation.precision=16",
)
WORLDS = {
    "secagg": ("secagg, 3 of 4 silos, weights from record counts", (*SURVIVES, *COUNTED)),
    "secagg_state": ("secagg, 3 of 4 silos, which keep a state", (*SURVIVES, *STATEFUL)),
    "plain": ("plain, weights from record counts", ("aggregation=plain", *COUNTED)),
    "plain_state": ("plain, silos keep a state", ("aggregation=plain", *STATEFUL)),
    "masked": ("masked, weights from record counts", ("aggregation=masked", *COUNTED)),
    "masked_state": ("masked, silos keep a state", ("aggregation=masked", *STATEFUL)),
    "private": ("private weighting, 256-bit key", PRIVATE),
    "oblivious": (
        "private weighting, 256-bit key, half of the users sampled obliviously",
        (*PRIVATE, "algo.user_rate=0.5", "aggregation.oblivious=true"),
    ),
}
"""By a short name: a title, and the words of a command."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    console, pages = Console(width=200), []
    for name in options.worlds:
        title, words = WORLDS[name]
        outcomes = tamper(experiment(*SMALL, *words), trials=options.trials, title=title)
        console.print(outcomes.table())
        for (row, kind, outcome), why in outcomes.examples.items():
            if outcome in (SILENT, CRASH, UNNAMED):
                console.print(f"{outcome}: {row[1]} of {row[2]}, {kind}: {why}", markup=False)
        pages.append(outcomes.markdown())
        options.page.write_text("\n".join(pages))


if __name__ == "__main__":
    main()
