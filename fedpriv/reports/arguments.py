"""Command lines that read run folders and write a file."""

from __future__ import annotations

from pathlib import Path

from fedpriv.util.parsers import Parser


def report_parser(command: str, description: str | None, *, out: str) -> Parser:
    """A parser of run folders and what to report about them.

    command: name in usage and errors.
    description: for --help, printed as it is.
    out: help for --out.
    """
    parser = Parser(command, description=description)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs or of sweeps")
    parser.add_argument("--out", type=Path, help=out)
    parser.add_argument(
        "--metric", help="a column of metrics.csv (default: the data set's main metric)"
    )
    parser.add_argument("--observer", help="whose epsilon (default: each run's own observer)")
    parser.add_argument(
        "--method", help="accounting method, rdp or pld (default: the smallest certificate)"
    )
    return parser
