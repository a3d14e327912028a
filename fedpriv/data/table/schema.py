"""What a table declares before a record is read: columns, label, users and silos.

A schema file holds it as plain YAML. A file that is written by hand, from public knowledge, needs
no record for an epsilon, and what it lists is public. Without a file it is read off the records
(`fedpriv.data.table.infer`), and no epsilon covers what it then tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedpriv.data.table.written import DECIMALS, ISO, LARGEST, POINT, days_of
from fedpriv.errors import DataError
from fedpriv.util.untrusted_files import SETTINGS_BYTES, read_bytes, read_plain_values, reason_of

VERSION = "fedpriv table 1"
REGRESSION, CLASSIFICATION, SURVIVAL = PROBLEMS = ("regression", "classification", "survival")
NEEDED = {REGRESSION: {"range"}, CLASSIFICATION: {"classes"}, SURVIVAL: {"range", "time"}}
"""What a label needs beside its column, by its problem."""
PARTS_OF_A_LABEL = ("column", "problem", "classes", "range", "scale", "time", "events")

MOST_UNITS = 1e6
"""Limit of a label's range in units of its scale, so that a model can learn both of its ends."""
RANGE = f"two numbers up to {LARGEST:g} in size, the smaller one first"
MOST_FEATURES = 10_000
"""Limit of features after one-hot encoding."""


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    name: of the column.
    range: public bounds, which become -1 and 1; None: the column is standardised by the mean and
        the deviation of the training records.
    date: form of its dates, which become days from 1970; None: it has numbers.
    scale: a released mean and deviation, which become 0 and 1 in place of the range.
    """

    name: str
    range: tuple[float, float] | None = None
    date: str | None = None
    scale: tuple[float, float] | None = None

    @property
    def width(self) -> int:
        """Number of features that it becomes."""
        return 1


@dataclass(frozen=True)
class Category:
    """A column of categories, one feature for each.

    name: of the column.
    values: all categories, as texts.
    """

    name: str
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of features that it becomes."""
        return len(self.values)


@dataclass(frozen=True)
class Label:
    """What is predicted.

    column: of the label; for survival, of the event (0 or 1).
    problem: one of `PROBLEMS`.
    classes: for classification, all classes as texts, in the order of the model's outputs.
    range: for regression, bounds of the label; for survival, 0 and the longest time.
    scale: for regression, a typical value of the label and its deviation; None: the middle and a
        quarter of the range.
    time: for survival, the column of the time to the event or to the end of the observation.
    events: for survival, texts of the column, the last one for an event that happened; empty: yes,
        true, t and 1 are events.
    """

    column: str
    problem: str
    classes: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    time: str | None = None
    events: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return (self.column,) if self.time is None else (self.column, self.time)

    @property
    def origin_and_unit(self) -> tuple[float, float]:
        """What becomes 0 when a model trains, and the size of what becomes 1: for regression,
        `scale`; for survival, 0 and the longest time."""
        low, high = self.range or (0.0, 1.0)
        if self.problem == SURVIVAL:
            return low, high
        return self.scale or ((low + high) / 2, (high - low) / 4)


@dataclass(frozen=True)
class Schema:
    """A table's declaration.

    features: columns that become features, in the order of the features.
    label: what is predicted.
    n_users: number of users on the public list.
    user: column that names a record's user; None: every row is another user.
    silo: column that names a record's silo; None: the table has no silos.
    silos: names of all silos.
    unused: columns that are not read.
    public: whether all of this is public knowledge; False: some of it was read off the records.
    read_off: what a draft read off the records. If the schema is public, this is its owner's word.
    decimal: sign before decimals.
    scales_cost: what an analysis has paid for the scales of its columns; empty: there are none.
    reasons: why columns are left out although nobody said so, by name.
    """

    features: tuple[Number | Category, ...]
    label: Label
    n_users: int
    user: str | None = None
    silo: str | None = None
    silos: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    public: bool = False
    read_off: tuple[str, ...] = ()
    decimal: str = POINT
    scales_cost: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(feature.width for feature in self.features)

    @property
    def outputs(self) -> int:
        """Width of the model's output."""
        return max(1, len(self.label.classes))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the file."""
        named = [name for name in (self.user, self.silo, *self.label.columns) if name is not None]
        return (*named, *(feature.name for feature in self.features), *self.unused)

    @property
    def unscaled(self) -> tuple[str, ...]:
        """Columns of numbers without public bounds."""
        return tuple(
            one.name for one in self.features if isinstance(one, Number) and one.range is None
        )


NOTE = """\
# Which columns a table has, and what is public about them. `fedpriv epsilon` needs this file
# only, and no record. Check every value: everything here is published. Give each number a
# range that does not come from the records, such as [0, 120] for an age. Then write `public: true`.
"""
NOTE_ON_A_DRAFT = """\
# `read_off_records` is what a draft took from the records. With `public: true` an epsilon
# rests on your word that this is public knowledge. Delete a line when its values come from
# elsewhere.
"""


def write_schema(schema: Schema) -> str:
    """The text of a schema file."""
    head = NOTE + NOTE_ON_A_DRAFT if schema.read_off else NOTE
    tree = schema_tree(schema)
    return head + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)


def schema_tree(schema: Schema) -> dict[str, Any]:
    """A schema as plain values."""
    label = schema.label
    silo = {"column": schema.silo, "names": list(schema.silos)}
    about_label = {
        "column": label.column,
        "problem": label.problem,
        "classes": list(label.classes),
        "range": _listed(label.range),
        "scale": _listed(label.scale),
        "time": label.time,
        "events": list(label.events),
    }
    return {
        "schema": VERSION,
        "public": schema.public,
        **({"read_off_records": list(schema.read_off)} if schema.read_off else {}),
        **({"decimal": schema.decimal} if schema.decimal != POINT else {}),
        **({"scales_cost": schema.scales_cost} if schema.scales_cost else {}),
        "user": {"column": schema.user, "number": schema.n_users},
        **({"silo": silo} if schema.silo is not None else {}),
        "label": {key: value for key, value in about_label.items() if value},
        "features": {one.name: _about(one) for one in schema.features},
        "unused": list(schema.unused),
    }


def _about(feature: Number | Category) -> dict[str, Any]:
    """What a schema file says of a feature."""
    if isinstance(feature, Category):
        return {"values": list(feature.values)}
    bounds = _listed(feature.range)
    if feature.scale is not None:
        return {"range": bounds, "scale": _listed(feature.scale)}
    if feature.date is None:
        return {"range": bounds}
    return {"date": feature.date, "range": bounds and [date_of(one) for one in bounds]}


def date_of(day: float) -> str:
    """The date of a number of days from 1970."""
    return str(np.datetime64(int(day), "D"))


def range_text(bounds: tuple[float, float], date: str | None = None) -> str:
    """Bounds for a person: `0 to 120`; of dates, `2020-01-01 to 2020-12-31`.

    date: form of a column's dates; None: it has numbers.
    """
    return " to ".join(f"{one:g}" if date is None else date_of(one) for one in bounds)


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Names for a person: the first ones, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _listed(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)


def read_schema(path: Path, digest: str | None = None) -> Schema:
    """The schema in a file. Raises DataError with one line that names the file and the key.

    digest: SHA-256, hexadecimal, that the file must have; None: any.
    """
    try:
        if digest is not None:
            found = hashlib.sha256(read_bytes(path, SETTINGS_BYTES)).hexdigest()
            if found != digest.lower():
                raise ValueError(
                    f"its SHA-256 is {found}; data.schema_digest={digest:.80} allows no other file"
                )
        return parse_schema(read_plain_values(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: not a readable schema: {reason_of(error)}") from error


def parse_schema(tree: Any) -> Schema:
    """The schema of `schema_tree`. Raises ValueError with the key."""
    top = _mapping(
        tree,
        "the file",
        *("schema", "public", "read_off_records", "decimal", "user", "silo", "label", "features"),
        *("unused", "scales_cost"),
    )
    _need(top.get("schema") == VERSION, "schema", top.get("schema"), f"{VERSION!r}")
    user = _mapping(top.get("user"), "user", "column", "number")
    number: Any = user.get("number")
    whole = type(number) is int and 1 <= number <= 10**6
    _need(whole, "user.number", number, "a whole number from 1 to 1000000")
    silo = _mapping(top.get("silo", {}), "silo", "column", "names")
    decimal = top.get("decimal", POINT)
    _need(decimal in DECIMALS, "decimal", decimal, " or ".join(DECIMALS))
    public = top.get("public", False)
    _need(type(public) is bool, "public", public, "true or false")
    features: Any = top.get("features")
    _need(isinstance(features, dict) and features != {}, "features", features, "columns")
    schema = Schema(
        tuple(_feature(name, about) for name, about in features.items()),
        _label(_mapping(top.get("label"), "label", *PARTS_OF_A_LABEL)),
        number,
        user=None if user.get("column") is None else _text(user["column"], "user.column"),
        silo=_text(silo.get("column"), "silo.column") if silo else None,
        silos=_texts(silo.get("names"), "silo.names", least=1) if silo else (),
        unused=_texts(top.get("unused", []), "unused", least=0),
        public=public,
        read_off=_texts(top.get("read_off_records", []), "read_off_records", least=0),
        decimal=str(decimal),
        scales_cost=_text(top["scales_cost"], "scales_cost") if "scales_cost" in top else "",
    )
    _texts(list(schema.columns), "columns", least=0)
    _need(schema.width <= MOST_FEATURES, "features", schema.width, f"at most {MOST_FEATURES}")
    return schema


def _label(about: dict[str, Any]) -> Label:
    problem = about.get("problem")
    _need(problem in NEEDED, "label.problem", problem, ", ".join(NEEDED))
    needed = NEEDED[str(problem)]
    for key in ("range", "classes", "time"):
        given = about.get(key)
        allowed = "a value" if key in needed else f"nothing, because the problem is {problem}"
        _need((given is not None) == (key in needed), f"label.{key}", given, allowed)
    events = problem == SURVIVAL or "events" not in about
    _need(events, "label.events", about.get("events"), "nothing, because there is no survival")
    bounds = _range(about["range"], "label.range") if "range" in needed else None
    scale = _scale(about["scale"], bounds, problem) if "scale" in about else None
    whole = problem != SURVIVAL or bounds is None or bounds[0] == 0
    _need(whole, "label.range", bounds, "0 and the longest time")
    return Label(
        _text(about.get("column"), "label.column"),
        str(problem),
        _texts(about["classes"], "label.classes", least=2) if "classes" in needed else (),
        bounds,
        scale,
        _text(about["time"], "label.time") if "time" in needed else None,
        _texts(about.get("events", []), "label.events", least=0),
    )


def _feature(name: str, about: Any) -> Number | Category:
    key = f"features.{_text(name, 'features')}"
    given = _mapping(about, key, "range", "values", "date", "scale")
    _need(
        ("values" in given) != ("range" in given) and ("date" in given) <= ("range" in given),
        key,
        sorted(given),
        "either values, or a range (of dates, with their form as date)",
    )
    if "values" in given:
        return Category(name, _texts(given["values"], f"{key}.values", least=1))
    bounds = given["range"]
    date = _text(given["date"], f"{key}.date") if "date" in given else None
    if date is not None:
        days_of(["2020-01-01"], date)  # raises ValueError for what is no form of a date
    if bounds is not None:
        bounds = _range(bounds, f"{key}.range", dates=date is not None)
    if "scale" not in given:
        return Number(name, bounds, date)
    plain = date is None and bounds is not None
    _need(plain, f"{key}.scale", given["scale"], "nothing without a range of numbers")
    return Number(name, bounds, scale=_scale(given["scale"], bounds, REGRESSION))


def _range(value: Any, key: str, *, dates: bool = False) -> tuple[float, float]:
    if dates and isinstance(value, list):
        value = days_of([str(one) for one in value], ISO).tolist()
    _need(_pair(value) and value[0] < value[1], key, value, RANGE)
    return float(value[0]), float(value[1])


def _scale(value: Any, bounds: tuple[float, float] | None, problem: object) -> tuple[float, float]:
    _need(problem == REGRESSION, "label.scale", value, f"nothing, because it is {problem}")
    low, high = bounds or (0.0, 0.0)
    most = high - low
    fits = _pair(value) and low <= value[0] <= high and most / MOST_UNITS <= value[1] <= most
    allowed = f"a value in the range, and a deviation from {most / MOST_UNITS:g} to {most:g}"
    _need(fits, "label.scale", value, allowed)
    return float(value[0]), float(value[1])


def _pair(value: Any) -> bool:
    """Whether it is a list of two numbers that cells may have."""
    numbers = isinstance(value, list) and len(value) == 2
    return numbers and all(type(one) in (int, float) and abs(one) <= LARGEST for one in value)


def _texts(value: Any, key: str, *, least: int) -> tuple[str, ...]:
    _need(isinstance(value, list) and len(value) >= least, key, value, f"a list of {least} or more")
    found = tuple(_text(one, key) for one in value)
    twice = sorted({one for one in found if found.count(one) > 1})
    _need(not twice, key, ", ".join(twice), "each value once")
    return found


def _text(value: Any, key: str) -> str:
    """A text. Numbers and truth values must be quoted in the file: 1 and 1.0, yes and true would
    otherwise become one."""
    _need(isinstance(value, str) and bool(value), key, value, "a text, in quotes if it is a number")
    return str(value)


def _mapping(value: Any, key: str, *known: str) -> dict[str, Any]:
    """A mapping with no other keys than those known."""
    fits = isinstance(value, dict) and set(value) <= set(known)
    _need(fits, key, value, f"a mapping with no other keys than {', '.join(sorted(known))}")
    return dict(value)


def _need(holds: bool, key: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{key}={value!s:.80}: allowed: {allowed}")
