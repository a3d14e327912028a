"""`fedpriv table folder ...`: metric and epsilon of finished runs, grouped by configuration without
the seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.report import FORMATS, Report


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raises FedprivError."""
        raise FedprivError(f"{message}; see {self.prog} --help")


def main(words: list[str]) -> None:
    """Print or write what the command line names."""
    parser = Parser("fedpriv table", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs or of sweeps")
    parser.add_argument(
        "--metric", help="a column of metrics.csv; the data set's main metric otherwise"
    )
    parser.add_argument("--observer", help="whose epsilon; whom the run is known by otherwise")
    parser.add_argument(
        "--method", help="of accounting (rdp, pld); the smallest certificate otherwise"
    )
    parser.add_argument("--against", help="name of the group that all others are tested against")
    parser.add_argument(
        "--out", type=Path, help=f"a file ({', '.join(FORMATS)}) instead of the screen"
    )
    args = parser.parse_args(words)
    if args.out is not None:
        require(
            args.out.suffix in FORMATS,
            "--out",
            args.out,
            f"a file that ends in {', '.join(FORMATS)}",
        )
    report = Report.of(
        find_runs(args.folders),
        metric=args.metric,
        observer=args.observer,
        method=args.method,
        against=args.against,
    )
    if args.out is None:
        from rich.console import Console

        report.print(Console())
        return
    try:
        args.out.write_text(FORMATS[args.out.suffix](report))
    except OSError as error:
        raise ConfigError(
            "--out", args.out, f"a file that can be written ({error.strerror})"
        ) from error
    print(args.out)
