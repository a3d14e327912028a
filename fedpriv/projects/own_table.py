"""A project on a table of your own: settings and a schema, from the words of a command line.

What the records decide is named, and stays outside of every epsilon until its owner says that it is
public. Ranges of numbers are never read off the records.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from fedpriv.data.shared import load
from fedpriv.data.table.infer import range_of
from fedpriv.data.table.schema import Number, Schema, write_schema
from fedpriv.data.table.settings import IN_THE_SCHEMA
from fedpriv.data.table.table import Table
from fedpriv.data.table.written import ISO, days_of
from fedpriv.errors import require
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir
from fedpriv.util.streams import Streams

NAME = "own"
"""Of the data set: `data=own`."""
SCHEMA_FILE = "schema.yaml"
TRAIN = f"data={NAME} accountant.target=2 randomness=system"
AT_HOME = " algo.weighting=home"
"""Where every user has one silo of several, as `fedpriv.algorithms.uldp` says."""
PLACES = ("root", "path", "test", "schema", "schema_digest")
"""Keys of a table that a project writes in its own way."""
README = """\
# A private federated model of {path}

| file | what it is |
| --- | --- |
| `{schema}` | what is public about the table: columns, categories, ranges, users, silos |
| `conf/data/{name}.yaml` | the settings |

The table stays where it is. Everything in `{schema}` is published with a model; check every line.

    fedpriv --config-dir conf {train} hydra.run.dir=run
    fedpriv report run --figure
"""


@dataclass(frozen=True)
class OwnTable:
    """A project on a table, and what a person has to know of it.

    files: text by path.
    train: words of a training.
    decided: what was decided about each column, in lines for a person.
    schema: what is public about the table, or will be.
    notes: what is odd about the records; private.
    """

    files: dict[str, str]
    train: str
    decided: tuple[str, ...]
    schema: Schema
    notes: tuple[str, ...]

    @staticmethod
    def of(words: Sequence[str], ranges: Sequence[str], *, public: bool, folder: Path) -> OwnTable:
        """Read a table once, and write what is needed to train on it.

        words: settings of `data` and `allocator`, as for `fedpriv data`.
        ranges: `column=low,high` of each number, from public knowledge.
        public: whether the owner says that everything read off the records is public knowledge.
        folder: of the project.

        Raises FedprivError for a table that cannot be trained on, before anything is written.
        """
        _require_kept(words)
        [config] = compose_jobs(CommandLine.parse(["data=table", *words]), conf_dir())
        require(config.data.path is not None, "data.path", "null", "the table, CSV or Parquet")
        experiment = build(config)
        table = experiment.data
        assert isinstance(table, Table)
        schema = with_ranges(table.declared, ranges)
        if public:
            _require_ranges(schema)
            schema = replace(schema, public=True)
        text = write_schema(schema)
        settings = _settings(table, words, folder.resolve() / SCHEMA_FILE)
        decided, notes = _tried(table, text, experiment.streams)
        name = Path(str(table.path)).name
        apart = experiment.allocator.n_silos > 1 and experiment.allocator.one_silo_each(table)
        train = TRAIN + AT_HOME * apart
        files = {
            SCHEMA_FILE: text,
            f"conf/data/{NAME}.yaml": settings,
            "README.md": README.format(path=name, schema=SCHEMA_FILE, name=NAME, train=train),
        }
        return OwnTable(files, train, decided, schema, notes)


def _require_kept(words: Sequence[str]) -> None:
    """Raise ConfigError for a word of the command line that a project does not keep."""
    for word in words:
        key, _, value = word.partition("=")
        kept = key.startswith(("data.", "allocator.")) or key == "allocator"
        require(
            kept, key, value, "only data.*, allocator and allocator.* are written into a project"
        )
        own = key not in ("data.schema", "data.schema_digest")
        require(own, key, value, "nothing, because the schema is written here")


def with_ranges(schema: Schema, ranges: Sequence[str]) -> Schema:
    """The schema with public ranges of numbers.

    ranges: `column=low,high` each; also of a label or of a survival time.

    Raises ConfigError for other text, and for a column that is no number.
    """
    given: dict[str, tuple[float, float]] = {}
    for text in ranges:
        name, _, bounds = text.rpartition("=")
        try:
            low, high = map(_bound, bounds.split(","))
        except ValueError:
            low = high = math.nan
        sound = bool(name) and -math.inf < low < high < math.inf
        require(
            sound,
            "--range",
            text,
            "a column and its two bounds, such as age=0,120 or visit=2020-01-01,2020-12-31",
        )
        require(name not in given, "--range", text, "each column once")
        given[name] = (low, high)
    label = schema.label
    outcome = None if label.range is None else (label.time or label.column)
    numbers = [one.name for one in schema.features if isinstance(one, Number)]
    allowed = [*numbers, *([outcome] if outcome else [])]
    for name in given:
        known = f"a column of numbers: {', '.join(allowed) or 'there is none'}"
        require(name in allowed, "--range", name, known)
    features = tuple(
        replace(one, range=given[one.name])
        if isinstance(one, Number) and one.name in given
        else one
        for one in schema.features
    )
    if outcome not in given:
        return replace(schema, features=features)
    survives = label.time is None or given[outcome][0] == 0
    require(survives, "--range", outcome, "0 and the longest time, for survival")
    left = tuple(one for one in schema.read_off if one != range_of(label))
    return replace(
        schema,
        features=features,
        label=replace(label, range=given[outcome], scale=None),
        read_off=left,
    )


def _bound(text: str) -> float:
    """A number, or the days from 1970 to a date such as 2020-12-31. NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return float(days_of([text], ISO)[0])


def _require_ranges(schema: Schema) -> None:
    """Raise ConfigError where a public schema would rest on numbers of single persons."""
    lacking = list(schema.unscaled)
    if range_of(schema.label) in schema.read_off:
        lacking.append(schema.label.time or schema.label.column)
    shown = " ".join(f"--range {name}=LOW,HIGH" for name in lacking)
    require(
        not lacking,
        "--public",
        ", ".join(lacking),
        f"numbers need a range that does not come from the records: {shown}",
    )


def _settings(table: Table, words: Sequence[str], schema: Path) -> str:
    """The text of the data set's settings.

    words: of the command line.
    schema: place of the schema file.
    """
    typed = {word.partition("=")[0].removeprefix("data.") for word in words}
    own = [one.name for one in fields(Table) if one.name in typed and one.name not in PLACES]
    data: dict[str, Any] = {"path": _place(table, table.path), "schema": str(schema)}
    if table.test is not None:
        data["test"] = _place(table, table.test)
    data |= {name: getattr(table, name) for name in own if name not in IN_THE_SCHEMA}
    allocator = dict(word.split("=", 1) for word in words if word.startswith("allocator"))
    chosen = allocator.pop("allocator", None)
    defaults = ["table", *([{"override /allocator": chosen}] if chosen else []), "_self_"]
    tree: dict[str, Any] = {"defaults": defaults, "data": data}
    if allocator:
        tree["allocator"] = {
            key.removeprefix("allocator."): yaml.safe_load(value)
            for key, value in allocator.items()
        }
    head = (
        f"# @package _global_\n# Settings of this project: fedpriv --config-dir conf data={NAME}\n"
    )
    return head + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)


def _place(table: Table, name: str | None) -> str:
    """A path that holds wherever a command is called."""
    return str((Path(table.root or "") / Path(str(name)).expanduser()).resolve())


def _tried(table: Table, schema: str, streams: Streams) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a project makes of its table, and what is odd about the records. Raises FedprivError for
    records that do not fit."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / SCHEMA_FILE
        path.write_text(schema, encoding="utf-8")
        nothing: dict[str, Any] = dict.fromkeys(IN_THE_SCHEMA)
        own = replace(table, **nothing | {"drop": [], "categories": []}, schema=str(path))
        return own.description, load(own, streams).corpus.notes
