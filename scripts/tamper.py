"""Tampers with messages under every aggregation and prints the outcomes: docs/trust/attacks.md.

python -m scripts.tamper --trials 20 secagg masked
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fedpriv.testing.tamper import BAD, UNNAMED, tamper
from scripts.fault_scenarios import SCENARIOS


def main() -> None:
    """Run the scenarios that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(SCENARIOS)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), help=names)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    console = Console(width=220)
    for name in options.scenarios:
        title = f"{SCENARIOS[name].title} ({options.trials} trials a cell)"
        outcomes = tamper(SCENARIOS[name].experiment(), trials=options.trials, title=title)
        console.print(outcomes.table())
        for (row, way, outcome), why in outcomes.examples.items():
            if outcome in (*BAD, UNNAMED):
                console.print(f"{outcome}: {row[1]} of {row[2]}, {way}: {why}", markup=False)


if __name__ == "__main__":
    main()
