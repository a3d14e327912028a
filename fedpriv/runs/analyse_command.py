"""`fedpriv analyse`: private statistics of a table's columns, as a run of one query.

    fedpriv analyse data.path=visits.csv data.user=patient bounds.age=0,110 categories.sex=f,m \\
        statistics=count,mean,quantiles,histogram target=1
    fedpriv analyse data.path=visits.csv data.schema=schema.yaml statistics=mean target=1

    data.path=FILE data.user=COLUMN      the table, and whose each row is
    bounds.COLUMN=LOW,HIGH               public limits of a number; values beyond are cut
    categories.COLUMN=A,B                public values of a column of words
    columns=A,B                          by default all with bounds or categories
    statistics=count,mean                also quantiles and histogram
    quantiles=0.25,0.5 bins=10           which quantiles; into how many bins numbers fall
    data.silo=COLUMN silos=A,B           who holds each row: the names of all silos
    data.schema=FILE                     a schema with `public: true`, in place of all these
    target=EPSILON                       what all numbers together may cost

Other words are settings of `data=columns` and `algo=statistics`, or of any run. Noise comes from
the operating system. With a schema, the mean and the deviation of each number are written into a
copy of it, by which a later run scales.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedpriv.data.table.schema import Category, Number, Schema, read_schema, write_schema
from fedpriv.errors import FedprivError, require
from fedpriv.runs.loop import train
from fedpriv.runs.noise_choice import laplace_is_less
from fedpriv.runs.status import Status
from fedpriv.runs.tables import EPSILON, STATISTICS, Tables
from fedpriv.settings.compose import CommandLine, one_job, one_line_errors
from fedpriv.settings.experiment import Experiment, build, resolved
from fedpriv.util.durable_files import replace_file
from fedpriv.util.pasted import hydra_text
from fedpriv.util.plain_numbers import plain_number
from fedpriv.util.printing import say

LISTS = {"statistics": "algo.statistics", "quantiles": "algo.quantiles", "silos": "data.silos"}
NUMBERS = {"bins": "algo.bins", "target": "accountant.target"}
ITEM = re.compile(r"""\s*(?:"[^"]*"|'[^']*')\s*(?=,|$)|[^,]+""")
"""A text of a list."""
SCHEMA = "schema.yaml"
LEAST_SCALE = 1e-2
"""Smallest deviation that columns are scaled by, over their range. A noisy one may be 0, so that it
is also at least half of its interval's upper end."""


@dataclass
class Request:
    """The words of a command line.

    words: settings, in the form of `fedpriv run`.
    schema: what is public about the columns; None: only the words say it.
    columns: names of the columns; empty: all that have bounds or categories.
    known: number or category by name.
    """

    words: dict[str, str] = field(default_factory=dict)
    schema: Schema | None = None
    columns: list[str] = field(default_factory=list)
    known: dict[str, Number | Category] = field(default_factory=dict)

    @staticmethod
    def parse(args: list[str]) -> Request:
        """Raises FedprivError for words that do not fit together."""
        found = Request()
        for word in args:
            key, equals, value = word.partition("=")
            if not equals:
                raise FedprivError(f"{word}: expected key=value; see fedpriv analyse --help")
            match key.split(".", 1):
                case "bounds", name:
                    found.known[name] = Number(name, _pair(key, value))
                case "categories", name:
                    found.known[name] = Category(name, tuple(_listed(value)))
                case ["columns"]:
                    found.columns = _listed(value)
                case "data", "schema":
                    found._read(Path(value).expanduser())
                case ["data"]:
                    require(value in ("table", "columns"), key, value, "table, with data.path")
                case ["rounds"]:
                    require(value == "1", key, value, "left out: an analysis has one round")
                case [key] if key in LISTS:
                    found.words[LISTS[key]] = f"[{','.join(map(_quoted, _listed(value)))}]"
                case _:
                    found.words[NUMBERS.get(key, key)] = value
        return found

    def _read(self, path: Path) -> None:
        """Take over what a schema says."""
        schema = read_schema(path)
        require(schema.public, "data.schema", path, "a file that says public: true")
        self.schema = schema
        for one in schema.features:
            if isinstance(one, Category) or (one.range is not None and one.date is None):
                self.known.setdefault(one.name, one)
        said = {"data.users": str(schema.n_users), "data.decimal": hydra_text(schema.decimal)}
        if schema.silo is not None:
            silos = f"[{','.join(map(_quoted, schema.silos))}]"
            said |= {"data.silo": hydra_text(schema.silo), "data.silos": silos}
        alone = {"data.one_row_per_user": "true"}
        said |= alone if schema.user is None else {"data.user": hydra_text(schema.user)}
        self.words = {**said, **self.words}

    @property
    def settings(self) -> list[str]:
        """The words of a run. Raises ConfigError for a column without bounds."""
        chosen = self.columns or list(self.known)
        lacking = next((name for name in chosen if name not in self.known), None)
        ways = f"bounds.{lacking}=[0,110] or categories.{lacking}=[a,b], from public knowledge"
        require(lacking is None, "columns", lacking, ways)
        require(
            bool(chosen), "columns", "", "names of columns, with bounds.NAME or categories.NAME"
        )
        limited = {"accountant.target", "algo.noise_multiplier"} & self.words.keys()
        require(bool(limited), "target", "", "the epsilon that the analysis may cost, such as 1")
        words = {
            "hydra.run.dir": f"outputs/analyses/{datetime.now():%Y-%m-%d_%H-%M-%S-%f}",
            "randomness": "system",
            "evaluation": "none",
            **self.words,
        }
        if "data.silo" in words:
            words.setdefault("allocator", "natural")
        elif "allocator" not in words:
            words = {"allocator.n_silos": "1", "allocator.local_test": "0", **words}
        columns = ",".join(_declared(self.known[name]) for name in chosen)
        return [
            "data=columns",
            f"data.columns=[{columns}]",
            *(f"{k}={v}" for k, v in words.items()),
        ]


@dataclass(frozen=True)
class Analysis:
    """An analysis that a command line asks for.

    experiment: its checked settings.
    config: the same as plain values.
    folder: of its results.
    settings: the words of its run.
    schema: what is public about the columns; None: only the words say it.
    """

    experiment: Experiment
    config: dict[str, Any]
    folder: Path
    settings: list[str]
    schema: Schema | None

    @staticmethod
    def parse(args: list[str]) -> Analysis:
        """Raises FedprivError for words that do not fit together."""
        asked = Request.parse(args)
        found = Analysis._of(asked.settings, asked.schema)
        if laplace_is_less(found.experiment, asked.words):
            return Analysis._of([*found.settings, "mechanism=laplace"], asked.schema)
        return found

    @staticmethod
    def _of(settings: list[str], schema: Schema | None) -> Analysis:
        job = one_job(CommandLine.parse(settings), "fedpriv analyse")
        folder = Path(str(job.hydra.run.dir)).absolute()
        return Analysis(build(job), resolved(job), folder, settings, schema)


@one_line_errors()
def analyse(args: list[str], *, quiet: bool = False) -> Path:
    """Release the statistics of a command line, print them, and write the scaled schema. Returns
    the folder of the run."""
    asked = Analysis.parse(args)
    folder = asked.folder
    yaml = OmegaConf.to_yaml(OmegaConf.create(asked.config))
    train(asked.experiment, yaml, folder, words=asked.settings, quiet=quiet)
    status = Status.read(folder)
    if asked.schema is not None and status.dp_valid:  # else scales could not be called released
        scaled = _scaled(asked.schema, folder, status.delta)
        replace_file(folder / SCHEMA, write_schema(scaled).encode())
        if not quiet:
            say(f"Schema with released scales: {folder / SCHEMA}")
    return folder


def _scaled(schema: Schema, folder: Path, delta: float) -> Schema:
    """The schema with the released means and deviations, and what they cost at `delta`."""
    tables = Tables(folder)
    rows = tables.rows(STATISTICS)
    if not any(row["statistic"] == "mean" for row in rows):
        return schema
    found = {(row["column"], row["statistic"]): row for row in rows}
    features: list[Number | Category] = []
    for one in schema.features:
        if isinstance(one, Number) and one.range is not None and (one.name, "mean") in found:
            mean, spread = found[one.name, "mean"], found[one.name, "deviation"]
            least = LEAST_SCALE * (one.range[1] - one.range[0])
            deviation = max(least, float(spread["value"]), float(spread["high"]) / 2)
            one = replace(one, scale=(float(mean["value"]), deviation))
        features.append(one)
    rows = tables.rows(EPSILON)
    cost = min(float(row["certified"]) for row in rows if row["observer"] == rows[0]["observer"])
    paid = f"epsilon {cost:g} of a user at delta {delta:g}"
    return replace(schema, features=tuple(features), scales_cost=paid)


def _declared(column: Number | Category) -> str:
    """A column in `data.columns`."""
    given = (
        map(_quoted, column.values)
        if isinstance(column, Category)
        else map(repr, column.range or ())
    )
    return f"[{','.join([_quoted(column.name), *given])}]"


def _quoted(text: str) -> str:
    """A text that Hydra takes for nothing else."""
    plain = hydra_text(text)
    return plain if plain.startswith('"') else f'"{plain}"'


def _listed(value: str) -> list[str]:
    """The texts of a list, with or without brackets and quotes, which keep a comma in a text."""
    inside = value.strip().removeprefix("[").removesuffix("]")
    return [one.strip().strip("'\"") for one in ITEM.findall(inside) if one.strip()]


def _pair(key: str, value: str) -> tuple[float, float]:
    """The bounds of a setting. Raises ConfigError for anything else."""
    try:
        low, high = map(plain_number, _listed(value))
    except ValueError:
        low = high = 0.0
    require(low < high, key, value, "two public numbers, the lower one first, such as [0,110]")
    return low, high
