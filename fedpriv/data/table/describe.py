"""A table in words: what was decided about each column, who counts as a user, what is private."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import EXACT_TESTS, Records
from fedpriv.data.table.owners import uncovered_persons
from fedpriv.data.table.schema import Category, Number, Schema, range_text, some_of
from fedpriv.data.table.settings import DROP, SILO, TableSettings
from fedpriv.data.table.written import example_of

IDENTIFIER = re.compile(
    r"(^|[_\W])(id|ids|nr|mrn|ssn|uuid|patient|person|subject|participant|case|name)([_\W]|$)",
    re.IGNORECASE,
)
"""Names of columns that name persons or visits."""
SPECIAL = {
    category: re.compile(rf"(^|[_\W\d])({names})", re.IGNORECASE)
    for category, names in {
        "ethnic origin": "race|ethnic|nationality|tribe|caste|skin_?colou?r",
        "religion or belief": "relig|belief|church|faith|denomination",
        "political opinion or union": "politic|party$|vote|union_?member",
        "genetic data": "gen(e|es|otype|ome|etic)([_\\W]|$)|snp|allele|mutation|brca",
        "biometric data": "finger_?print|iris_?scan|face_?id|voice_?print",
        "sex life": "sexual|orientation|gender_?identity",
        "health": (
            "diag|icd|disease|disab|health|symptom|medic|drug|dose|treat|surg|bmi|blood|pressure|"
            "glucose|insulin|cholest|hiv|pregnan|smok|alcohol|cancer|tumou?r|stroke|diabet|hba1c|"
            "heart|creatin|platelet|sofa|apache|covid|vaccin"
        ),
    }.items()
}
"""Beginnings of words in names of columns, by special category."""


def special_categories(schema: Schema) -> dict[str, str]:
    """Features whose names look like special categories of personal data: which of GDPR, Art. 9."""
    found: dict[str, str] = {}
    for feature in schema.features:
        for category, names in SPECIAL.items():
            if names.search(feature.name):
                found.setdefault(feature.name, category)
    return found


@dataclass(frozen=True)
class DescribedTable(TableSettings):
    """What a table says of itself, by its settings and its schema."""

    @property
    @abstractmethod
    def declared(self) -> Schema:
        """The schema: of its file, or read off the table."""

    @property
    def user_is(self) -> str:
        schema = self.declared
        if schema.user is None:
            return (
                "every row is taken as another person: a person with several rows is not protected "
                "as a whole"
            )
        where, two = "in the whole table", "with two values"
        if self.user_scope == SILO:
            where, two = f"in one silo of column {schema.silo}", "with two values or in two silos"
        return (
            f"a user is one value of column {schema.user} {where}: a person {two} counts as two "
            "users, which an epsilon covers one by one, and two persons with one value are not "
            "protected each alone"
        )

    @property
    def public_by_word(self) -> str:
        schema = self.declared
        said = (
            "public knowledge by the word of the table's owner, though a draft of the schema read "
            f"it off the records: {', '.join(schema.read_off)}"
        )
        paid = (
            f"scales were released by an analysis, which has cost {schema.scales_cost} of its own"
        )
        found = [said] if schema.public and schema.read_off else []
        return "; ".join([*found, *([paid] if schema.scales_cost else [])])

    @property
    def read_without_noise(self) -> tuple[str, ...]:
        schema = self.declared
        found = []
        if not schema.public:
            found.append(
                "columns, categories, classes, ranges and scales of labels and the numbers of "
                "users and silos were read off the records without noise (data.schema with "
                "public: true says them)"
            )
        if schema.unscaled:
            found.append(
                f"{some_of(schema.unscaled)}: scaled by the exact mean and deviation of the "
                "training records (a range in data.schema scales by public numbers)"
            )
        return tuple(found)

    @property
    def not_covered(self) -> tuple[str, ...]:
        rules = (
            (
                self.test is None and self.split == "record",
                "data.split=record: a person may have training and test records",
            ),
            (True, EXACT_TESTS),
            (
                self.rare == DROP,
                "data.rare=drop: rows of rare classes are left out, and their number is not "
                "protected",
            ),
        )
        own = (text for holds, text in rules if holds)
        return (*self.read_without_noise, *own, *uncovered_persons(self))

    @property
    def description(self) -> tuple[str, ...]:
        return tuple(self._lines(short=False))

    @property
    def summary(self) -> tuple[str, ...]:
        return tuple(self._lines(short=True))

    def _lines(self, *, short: bool) -> Iterator[str]:
        """The schema for a person: a line for each column and each decision.

        short: only what a reader of every run needs.
        """
        schema = self.declared
        label = schema.label
        low, high = label.range or (0.0, 0.0)
        if not short:
            source = "declared by the schema file" if self.schema else "read off the records"
            yield f"columns: {source}"
        if label.classes:
            second = f" ({label.classes[1]} is the positive one)" * (len(label.classes) == 2)
            yield f"label {label.column}: {label.problem}, classes {some_of(label.classes)}{second}"
        elif label.time is not None:
            event = f", event {label.events[-1]}" if label.events else ""
            time = f"time in column {label.time} up to {high:g}"
            yield f"label {label.column}: survival{event}, {time}"
        else:
            origin, unit = label.origin_and_unit
            yield (
                f"label {label.column}: regression, from {low:g} to {high:g}; {origin:g} becomes "
                f"0, {origin + unit:g} becomes 1"
            )
        if short:
            texts = sum(isinstance(one, Category) for one in schema.features)
            yield (
                f"features: {len(schema.features) - texts} columns of numbers or dates and {texts} "
                f"of categories become {schema.width}; `fedpriv data` shows each"
            )
        else:
            yield from map(_feature, schema.features)
            if special := special_categories(schema):
                named = (f"{name} ({category})" for name, category in special.items())
                yield f"special categories (GDPR, Art. 9), by their names: {', '.join(named)}"
        for name in schema.unused if not short else schema.reasons:
            reason = schema.reasons.get(name)
            yield f"column {name}: left out{f': {reason}' if reason else ''}"
        counted = "on the public list" if self.schema else "named in the records"
        yield f"users: {schema.n_users} {counted}; {self.user_is}"
        if schema.silo is None:
            yield "silos: none; allocator=by_user deals users to silos"
        else:
            yield f"silos: {len(schema.silos)} in column {schema.silo}: {some_of(schema.silos)}"
        if short:
            return
        yield "cells: spaces around a cell do not count; names are otherwise taken letter by letter"
        yield f"missing features: {self.missing}"
        yield f"rows without label, user or silo: {self.incomplete}"
        yield f"values outside public lists and ranges: {self.outside}"
        if self.test is not None:
            yield f"test records: {self.test}"
        else:
            yield f"test records: {100 * self.test_share:g} % of the {self.split}s"


def _feature(feature: Number | Category) -> str:
    if isinstance(feature, Category):
        return f"feature {feature.name}: a 0/1 feature for each of {some_of(feature.values)}"
    what = "number" if feature.date is None else f"date like {example_of(feature.date)}"
    if feature.range is None:
        return f"feature {feature.name}: {what}, scaled by the training records"
    if feature.scale is not None:
        mean, deviation = feature.scale
        return f"feature {feature.name}: {what}, released mean {mean:g} and deviation {deviation:g}"
    return (
        f"feature {feature.name}: {what}, {range_text(feature.range, feature.date)} become -1 to 1"
    )


def counts(schema: Schema, train: Records, test: Records, rows: int) -> list[str]:
    """What became of the rows, and what looks odd in them. Private numbers."""
    assert train.user is not None
    per_user = np.bincount(train.user, minlength=schema.n_users)
    owning = per_user[per_user > 0]
    found = [
        f"{rows} rows: {len(train)} training and {len(test)} test records; {len(owning)} of "
        f"{schema.n_users} users have training records, at most {per_user.max()}, "
        f"median {np.median(owning):g}"
    ]
    if per_user.max() > max(50, 20 * np.median(owning)):
        found.append(
            f"one user has {per_user.max()} training records: does the name stand for nobody in "
            "particular?"
        )
    found += [
        f"column {one.name} is a feature, but its name is that of an identifier: data.drop leaves "
        "it out"
        for one in schema.features
        if IDENTIFIER.search(one.name)
    ]
    names = _feature_names(schema)
    constant = [name for name, column in zip(names, train.x.T) if (column == column[0]).all()]
    if constant:
        found.append(f"the same in every training record: {some_of(constant)}")
    return found


def _feature_names(schema: Schema) -> list[str]:
    names = []
    for feature in schema.features:
        values = feature.values if isinstance(feature, Category) else ()
        names += [f"{feature.name}={value}" for value in values] or [feature.name]
    return names
