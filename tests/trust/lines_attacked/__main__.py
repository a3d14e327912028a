"""Attacks on lines of the trust pages, other than the tests that the lines link to.

    python tests/trust/lines_attacked [docs/trust/attacked.md [first [last]]]

writes a row for each: the line, what was tried, and what came of it. Draws are fresh in every run.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

TESTS = Path(__file__).parents[2]
ROOMS = "trust", "runs", "aggregation/secagg", "aggregation", "."
for path in (*(TESTS / room for room in ROOMS), TESTS.parent):
    sys.path.insert(0, str(path))

MODULES = (
    "faults_at_once",
    "keys_and_tasks",
    "plain_sums",
    "masked_sums",
    "secure_sums_lines",
    "stored_files",
    "encodings",
)
"""In the order of the rows' numbers."""


def main(page=None, first="1", last="1000"):
    """Run the attacks from `first` to `last`. page: file for the table; "-": print it."""
    for module in MODULES:
        importlib.import_module(f"lines_attacked.{module}")
    attacks = importlib.import_module("lines_attacked.rows").ATTACKS
    rows = []
    for number, row in enumerate(attacks, 1):
        if not int(first) <= number <= int(last):
            continue
        try:
            seen = row.work()
        except Exception as error:
            traceback.print_exc()
            seen = f"ERROR {type(error).__name__}: {error}".replace("\n", " ")[:300]
        rows.append(f"| {number} | [{row.page}]({row.page}.md) | {row.line} | {row.how} | {seen} |")
        print(rows[-1], flush=True)
    if page not in (None, "-"):
        Path(page).write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
