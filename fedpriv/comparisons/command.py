"""`fedpriv compare`: train methods at one certified epsilon, and compare them.

The folder of a comparison holds `tuning/<method>/<setting>/seed=...` and `runs/<method>/seed=...`,
which are run folders like all others, and the results: comparison.csv, .md, .tex, .json and .png.
Finished runs are not repeated, so the same command goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpriv.comparisons.request import Request
from fedpriv.comparisons.table import WRITERS, ComparisonTable
from fedpriv.comparisons.trials import calibrated, chosen_and_reported
from fedpriv.errors import FedprivError
from fedpriv.runs.folder import require_writable
from fedpriv.settings.compose import one_line_errors
from fedpriv.util.consoles import wide_console
from fedpriv.util.durable_files import replace_file

RESULT = "comparison"


@one_line_errors()
def main(args: list[str]) -> None:
    """Run the comparison of the command line, print its table and write its files."""
    request = Request.parse(args)
    require_writable("--folder", request.folder)
    try:
        table = compare(request)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"continue with {request.go_on(args)}")
        raise
    console = wide_console()
    table.print(console)
    for path in write(table):
        console.print(f"Written: {path}", soft_wrap=True)


def compare(request: Request, *, quiet: bool = False) -> ComparisonTable:
    """Check and calibrate all methods, choose their settings, and run them.

    quiet: print nothing.

    Raises FedprivError before the first run for settings that are wrong or cannot be calibrated; at
    the end for reported runs that failed, unless they diverged and a private method is left.
    """
    solved = calibrated(request)
    choices, runs, diverged = chosen_and_reported(request, quiet=quiet)
    own = {name: solved.get((name, choice.setting)) for name, choice in choices.items()}
    if not any(own[name] for name in runs):
        named = "; ".join(f"{name}: {why}" for name, why in diverged.items())
        raise FedprivError(f"no private method is left to compare: {named}")
    return ComparisonTable.of(request, runs, choices, own, diverged)


def write(table: ComparisonTable) -> Sequence[Path]:
    """Write the results into the folder of the comparison. Returns the files."""
    from fedpriv.comparisons.picture import draw  # matplotlib

    paths = []
    for suffix, text in WRITERS.items():
        path = table.request.folder / f"{RESULT}{suffix}"
        replace_file(path, text(table).encode())
        paths.append(path)
    picture = table.request.folder / f"{RESULT}.png"
    draw(table, picture)
    return [*paths, picture]
