"""`fedpriv data`: how records are read, who the users are, and what is private about each step."""

from __future__ import annotations

import math
from pathlib import Path

from fedpriv.data.allocation_report import draw, table
from fedpriv.data.base import DataSet
from fedpriv.data.shared import load
from fedpriv.data.stability import ADD_REMOVE
from fedpriv.data.table.schema import write_schema
from fedpriv.data.table.table import Table
from fedpriv.errors import FedprivError
from fedpriv.runtime import allocate
from fedpriv.settings.compose import CommandLine, one_job, one_line_errors
from fedpriv.settings.experiment import Experiment, build
from fedpriv.util.consoles import HarmlessConsole, wide_console
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser

OUT = "--out"


@one_line_errors()
def main(args: list[str]) -> None:
    """Print the data set of a command line. `--out file` also writes the schema of a table, and
    `--allocation file.png` shows and draws who owns which records.

    Raises FedprivError, after the lines that are known before records are read.
    """
    parser = Parser("fedpriv data", add_help=False, allow_abbrev=False)
    parser.add_argument(OUT, type=Path)
    parser.add_argument("--allocation", type=Path)
    own, words = parser.parse_known_args(args)
    exp = build(one_job(CommandLine.parse(words), "fedpriv data"))
    console = HarmlessConsole(soft_wrap=True)
    for text in lines(exp):
        console.print(text)
    if own.out is not None:
        _write(exp.data, own.out)
        console.print(f"schema: {own.out}; check it, and use it as data.schema={own.out}")
    for note in load(exp.data, exp.streams).corpus.notes:
        console.print(f"record: {note}")
    if own.allocation is not None:
        _, allocation, _ = allocate(exp)
        wide_console().print(table(allocation))
        draw(allocation, own.allocation)
        console.print(f"Picture: {own.allocation}")


def lines(exp: Experiment) -> list[str]:
    """What is known of the data before records are read, beside a schema's own reading."""
    data = exp.data
    shape = " x ".join(map(str, data.shape))
    found = [f"{type(data).__name__}: features {shape}, outputs {data.outputs}"]
    found += [f"metric: {data.task.metric}", *data.description]
    found.append(f"allocation: {exp.allocator.n_users} users in {exp.allocator.n_silos} silos")
    uncovered = dict.fromkeys((*data.not_covered, *exp.allocator.not_covered))
    found += [f"not covered: {text}" for text in uncovered]
    chain = exp.allocator.stability(data)
    parts = (part for text in chain.assumptions for part in text.split("; "))
    for part in parts:
        text = part.removeprefix("taken as given: ")
        if not any(text in line for line in found):
            found.append(f"assumed: {text}")
    whole = chain.from_file("user", ADD_REMOVE)
    if math.isfinite(whole.users):
        found.append(f"one user of the file is at most {whole.users:g} in training")
        return found
    new = [part for part in whole.why.split("; ") if not any(part in line for line in found)]
    found.append(f"no epsilon covers how the file is read: {'; '.join(new) or 'see not covered'}")
    return found


def _write(data: DataSet, out: Path) -> None:
    if not isinstance(data, Table):
        raise FedprivError(f"{OUT}={out}: only data=table has a schema")
    if out.exists():
        raise FedprivError(f"{OUT}={out}: exists; name a new file")
    replace_file(out, write_schema(data.declared).encode())
