"""Prints what becomes of tampered messages under every aggregation, and writes it as a page.

python -m scripts.tamper --page docs/trust/tamper.md --trials 20 secagg masked

A world that is not named keeps what the page says of it.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rich.console import Console

from fedpriv.testing.tamper import BAD, OUTSIDE, UNNAMED, tamper
from scripts.fault_scenarios import SCENARIOS

HEAD = """# Tampered messages

Every type of message of every aggregation, met by every kind of fault, in so many trials a cell
as each table says. One trial: a set-up and three rounds, in which one letter of the set-up, or of
round 2, is tampered with on its way. Made by `python -m scripts.tamper --page
docs/trust/tamper.md`.

**Faults.** bit flip: anywhere in the message, stamp and signature included. forgery: a bit of the
content, by somebody who makes anew whatever takes no key (a checksum, but no signature).
truncation: the end is missing. retype: one part has another type. earlier round, other session:
the corresponding letter from there comes instead. swap: with another sender's letter to the same
receiver or, where one party sends to many, with another receiver's. duplicate: it comes again a
step later. drop: it never comes. late: it comes one to three steps late.

**Outcomes.** A number says in how many trials, where they differ.

- *detected*: one exchange ended without a sum, with the name of a party that the message came
  from or did not come from; the rounds after it were as they should be.
- *nobody named*: the same, but the sum alone shows that a message was wrong, and it cannot show
  whose: under masks, or an encryption whose key only opens the sum, a single message is uniformly
  random whatever is in it.
- *harmless*: every sum that was learned is, to the bit, that of an undisturbed life with the same
  silos, and nobody noticed. It must be so. A *duplicate* carries the stamp of a phase that is
  over and is left aside (`fedpriv.parties.post`). A *late* letter arrives while its receiver
  still waits, since nobody gives up before the network is silent; or it is left aside too. What
  is *dropped*, or left aside since its stamp is that of another phase, round or session, is
  missing: where only one letter of its kind is (`secagg` needs a threshold), the sum does without
  its sender, and is right for the silos that it says it covers; or the letter tells its receiver
  nothing that it needs. A *forged* bit on which nothing depends changes nothing: rounding takes
  it away, or it lies in an offer that is not chosen.
- *outside*: of the trust text. The sum is wrong, unseen; the forged message is one that nobody
  signs, and the trust text of that aggregation says that its channels must be authentic (TLS), or
  that verification keys handed out at the set-up must be genuine. `fedpriv epsilon` and every
  certificate name that assumption.
- **silent**: the sum is wrong, unseen, against the trust text. **lasting**: more than one
  exchange was lost. **crash**: anything but a declared abort. None of them may occur.
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
            if outcome in (*BAD, UNNAMED, OUTSIDE):
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
