"""Tampers with messages under every aggregation, prints the outcomes and writes them to a page.

python -m scripts.tamper --page docs/trust/tamper.md --trials 20 secagg masked

Scenarios that are not named keep their table on the page.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rich.console import Console

from fedpriv.testing.tamper import BAD, UNNAMED, tamper
from scripts.fault_scenarios import SCENARIOS

HEAD = """# Tampered messages

This page shows what happens when a message is tampered with: every type of message of every
aggregation, every kind of fault. One trial is a set-up and three rounds. In each trial one message
of the set-up, or of round 2, is tampered with on its way. The title of each table has the number of
trials in a cell. Command: `python -m scripts.tamper --page docs/trust/tamper.md`.

**Faults.**

- bit flip: one bit of the message changes, stamp and signature included.
- forgery: one bit of the content changes, and the attacker renews everything that needs no key.
- truncation: the end is missing.
- retype: one part has another type.
- earlier round, other session: the corresponding message from there arrives instead.
- swap: the message of another sender to the same receiver arrives instead. Where one party sends to
  many, it is the message to another receiver.
- duplicate: the message arrives again one step later.
- drop: it never arrives.
- late: it arrives one to three steps late.

**Outcomes.** Where trials of a cell differ, a number says how many had the outcome.

- *detected*: one exchange ended without a sum. The error names a party whose message was wrong or
  missing. The rounds after it were right.
- *nobody named*: the same, but the error names nobody.
- *harmless*: every sum is equal, to the bit, to that of an undisturbed run with the same silos, and
  nobody noticed anything. The reasons:
    - A *duplicate* carries the stamp of a phase that is over. It is left aside
      (`fedpriv.parties.post`).
    - A *late* message arrives while its receiver still waits, since nobody gives up before the
      network is silent. Or it is left aside.
    - A *dropped* message is missing, and so is one with the stamp of another phase, round or
      session. If the protocol needs fewer messages (`secagg` has a threshold), the sum covers the
      other silos, and says so. Or the receiver needs nothing from the message.
- **silent**: the sum, or what a silo remembers, is wrong, and nobody noticed.
- **lasting**: more than one exchange was lost.
- **crash**: an error that is no declared abort.

The last three must not occur.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "worlds", nargs="*", default=list(SCENARIOS), metavar="world", help=", ".join(SCENARIOS)
    )
    parser.add_argument("--page", type=Path)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    console = Console(width=220)
    for name in options.worlds:
        title = f"{SCENARIOS[name].title} ({options.trials} trials a cell)"
        outcomes = tamper(SCENARIOS[name].experiment(), trials=options.trials, title=title)
        console.print(outcomes.table())
        for (row, way, outcome), why in outcomes.examples.items():
            if outcome in (*BAD, UNNAMED):
                console.print(f"{outcome}: {row[1]} of {row[2]}, {way}: {why}", markup=False)
        if options.page:
            options.page.parent.mkdir(parents=True, exist_ok=True)
            options.page.write_text(page(options.page, name, outcomes.markdown()))


def page(path: Path, name: str, table: str) -> str:
    """The page at `path` with another table for this world."""
    old = path.read_text() if path.exists() else ""
    tables = dict(re.findall(r"<!-- (\w+) -->\n(.*?)(?=\n<!-- |\Z)", old, re.DOTALL)) | {
        name: table
    }
    parts = [
        f"<!-- {world} -->\n{tables[world].strip()}\n" for world in SCENARIOS if world in tables
    ]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    main()
