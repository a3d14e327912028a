"""Final metric and epsilon of finished runs, grouped by configuration without the seed."""

from __future__ import annotations

from fedpriv.errors import require
from fedpriv.reports.arguments import report_parser
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.noted_table import FORMATS
from fedpriv.reports.report import Report
from fedpriv.settings.words import writing
from fedpriv.util.consoles import wide_console
from fedpriv.util.printing import say


def main(words: list[str]) -> None:
    """Print or write the table that the command line names."""
    suffixes = ", ".join(FORMATS)
    parser = report_parser(
        "fedpriv table", __doc__, out=f"file to write ({suffixes}; default: print the table)"
    )
    parser.add_argument("--against", help="name of the group that all others are tested against")
    args = vars(parser.parse_args(words))
    folders = args.pop("folders")
    out = args.pop("out")
    if out is not None:
        require(out.suffix in FORMATS, "--out", out, f"a file that ends in {suffixes}")
    report = Report.of(find_runs(folders), **args)
    if out is None:
        report.print(wide_console())
        return
    with writing(out):
        out.write_text(FORMATS[out.suffix](report))
    say(out)
