"""Write a small project that trains at once: on made-up patients, or on a table of your own.

    fedpriv init mine
    fedpriv init mine data.path=visits.csv data.label=died data.user=patient data.silo=hospital \\
        data.drop=[stay] data.missing=fill --range age=0,120 --range glucose=0,50 --public

The table is read once, to draft a schema and to check every row. Ranges of numbers are never read
off it. What is (categories, classes, names of silos, the number of users) is printed; --public says
that all of it is public knowledge, and every epsilon names this among its assumptions.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from fedpriv.errors import FedprivError, require
from fedpriv.projects.files import RUN, project_files
from fedpriv.settings.compose import one_line_errors
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say


def main(words: list[str]) -> None:
    """Write the project that the command line names. Raises FedprivError for a folder that holds
    anything."""
    parser = Parser("fedpriv init", description=__doc__)
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="data.key=value",
        help="your own table, as for fedpriv data",
    )
    parser.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="COLUMN=LOW,HIGH",
        help="bounds of a column of numbers or of dates (2020-12-31), from public knowledge",
    )
    parser.add_argument(
        "--public", action="store_true", help="what is read off the records is public knowledge"
    )
    parser.add_argument("--method", action="store_true", help="with a method of your own")
    parser.add_argument("--model", action="store_true", help="with a model of your own")
    args = parser.parse_intermixed_args(words)
    if args.words:
        _own_table(args)
        return
    require(not args.range, "--range", ", ".join(args.range), "for data.path=... alone")
    require(not args.public, "--public", "", "for data.path=... alone")
    write_project(args.folder, project_files(method=args.method, model=args.model))
    own = f"{' algo=own_method' * args.method}{' model=own_model' * args.model}"
    say(f"{args.folder}: read README.md, or train at once:\n\ncd {args.folder}\n{RUN}{own}")


def _own_table(args: argparse.Namespace) -> None:
    """Write a project on the user's own table, and say what its records decided."""
    from fedpriv.projects.own_table import SCHEMA_FILE, OwnTable  # reads tables with pandas

    for option in ("method", "model"):
        require(not getattr(args, option), f"--{option}", "", "for a project without data.path")
    _require_free(args.folder)
    with one_line_errors():
        own = OwnTable.of(args.words, args.range, public=args.public, folder=args.folder)
    write_project(args.folder, own.files)
    schema = args.folder / SCHEMA_FILE
    for line in own.decided:
        say(line)
    for note in own.notes:
        say(f"record: {note}")
    say(f"\nread off the records: {', '.join(own.schema.read_off)}")
    if own.schema.public:
        say(f"By --public you say that these are public knowledge. They stand in {schema};")
        say("every epsilon of this project names them among its assumptions.")
    else:
        if own.schema.unscaled:
            say(f"no public range: {', '.join(own.schema.unscaled)} (--range COLUMN=LOW,HIGH)")
        say(f"Models are NOT private until {schema} says public: true. Check its lines first,")
        say("or name a new folder, ranges and --public.")
    conf, run = args.folder / "conf", args.folder / "run"
    train = ["--config-dir", str(conf), *own.train.split(), f"hydra.run.dir={run}"]
    say(f"\nfedpriv {shlex.join(train)}\nfedpriv report {shlex.quote(str(run))} --figure")


def write_project(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder.

    files: text by path.

    Raises FedprivError for a folder that holds anything, and OSError.
    """
    _require_free(folder)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _require_free(folder: Path) -> None:
    """Raise FedprivError for a folder that holds anything."""
    if folder.is_dir() and any(folder.iterdir()):
        raise FedprivError(f"{folder}: is not empty; name a new folder")
    if folder.exists() and not folder.is_dir():
        raise FedprivError(f"{folder}: is a file; name a new folder")
