"""A table in words: what was decided about each column, who counts as a user, what is private."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from fedpriv.data.base import Records
from fedpriv.data.table.schema import Category, Number, Schema, date_of
from fedpriv.data.table.settings import TableSettings

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


def user_is(schema: Schema, scope: str) -> str:
    """Who one user is, for the assumptions of an epsilon."""
    if schema.user is None:
        return (
            "every row is taken as another person: a person with several rows is not protected as "
            "a whole"
        )
    where = f"in one silo of column {schema.silo}" if scope == "silo" else "in the whole table"
    return (
        f"a user is one value of column {schema.user} {where}: a person with two values counts as "
        "two users, and two persons with one value are not protected each alone"
    )


def public_by_word(schema: Schema) -> str:
    """What is public only because the owner of the table says so; else empty."""
    if not (schema.public and schema.read_off):
        return ""
    return (
        f"public knowledge by the word of the table's owner, though a draft of the schema read it "
        f"off the records: {', '.join(schema.read_off)}"
    )


def looks_at_all(schema: Schema) -> list[str]:
    """Steps of reading that look at all records, each in one line."""
    reasons = []
    if not schema.public:
        reasons.append(
            "columns, categories, classes, ranges of labels and the numbers of users and silos "
            "were read off the records without noise (data.schema with public: true says them)"
        )
    if schema.unscaled:
        reasons.append(
            f"{_some(schema.unscaled)}: scaled by the exact mean and deviation of the training "
            "records (a range in data.schema scales by public numbers)"
        )
    return reasons


def not_covered(schema: Schema, table: TableSettings) -> tuple[str, ...]:
    """What no epsilon of a run on this table covers."""
    by_user = user_is(schema, table.user_scope)
    rules = (
        (
            table.test is None and table.split == "record",
            "data.split=record: a person may have training and test records",
        ),
        (
            True,
            "test records belong to persons too: the metrics on them are exact, and no epsilon "
            "covers persons in the test part",
        ),
        (
            table.similar_ids == "merge",
            "data.similar_ids=merge: two persons whose names are alike count as one user, and an "
            "epsilon of a user does not cover each alone",
        ),
        (
            table.similar_ids == "keep",
            "data.similar_ids=keep: a person whose name is written in two ways counts as two users",
        ),
        (
            table.user_scope == "silo",
            "data.user_scope=silo: a person in two silos counts as two users, and an epsilon of a "
            "user covers the two only one by one",
        ),
        (schema.user is None, f"data.one_row_per_user=true: {by_user}"),
        (
            "drop" in (table.missing, table.incomplete),
            "rows with missing values are left out, and their number is not protected",
        ),
    )
    return (*looks_at_all(schema), *(text for holds, text in rules if holds))


def special_categories(schema: Schema) -> dict[str, str]:
    """Features whose names look like special categories of personal data: which of GDPR, Art. 9."""
    found: dict[str, str] = {}
    for feature in schema.features:
        for category, names in SPECIAL.items():
            if names.search(feature.name):
                found.setdefault(feature.name, category)
    return found


def lines(schema: Schema, table: TableSettings, *, short: bool = False) -> Iterator[str]:
    """The schema for a person: a line for each column and each decision.

    short: only what a reader of every run needs.
    """
    label = schema.label
    low, high = label.range or (0.0, 0.0)
    if not short:
        source = "declared by the schema file" if table.schema else "read off the records"
        yield f"columns: {source}"
    if label.classes:
        yield f"label {label.column}: {label.problem}, classes {_some(label.classes)}"
    elif label.time is not None:
        event = f", event {label.events[-1]}" if label.events else ""
        yield f"label {label.column}: survival{event}, time in column {label.time} up to {high:g}"
    else:
        origin, unit = label.origin_and_unit
        yield (
            f"label {label.column}: regression, from {low:g} to {high:g}; {origin:g} becomes 0, "
            f"{origin + unit:g} becomes 1"
        )
    if short:
        texts = sum(isinstance(one, Category) for one in schema.features)
        yield (
            f"features: {len(schema.features) - texts} columns of numbers or dates and {texts} of "
            f"categories become {schema.width}; `fedpriv data` shows each"
        )
    else:
        yield from map(_feature, schema.features)
        if special := special_categories(schema):
            named = (f"{name} ({category})" for name, category in special.items())
            yield f"special categories (GDPR, Art. 9), by their names: {', '.join(named)}"
    for name in schema.unused if not short else schema.reasons:
        reason = schema.reasons.get(name)
        yield f"column {name}: left out{f': {reason}' if reason else ''}"
    counted = "on the public list" if table.schema else "named in the records"
    yield f"users: {schema.n_users} {counted}; {user_is(schema, table.user_scope)}"
    if schema.silo is None:
        yield "silos: none; allocator=by_user deals users to silos"
    else:
        yield f"silos: {len(schema.silos)} in column {schema.silo}: {_some(schema.silos)}"
    if short:
        return
    yield "cells: spaces around a cell do not count; names are otherwise taken letter by letter"
    yield f"missing features: {table.missing}; rows without label, user or silo: {table.incomplete}"
    yield f"values outside public lists and ranges: {table.outside}"
    if table.test is not None:
        yield f"test records: {table.test}"
    else:
        yield f"test records: a share {table.test_share:g} by the coin of each {table.split}"


def _feature(feature: Number | Category) -> str:
    if isinstance(feature, Category):
        return f"feature {feature.name}: a 0/1 feature for each of {_some(feature.values)}"
    what = "number" if feature.date is None else f"date ({feature.date})"
    if feature.range is None:
        return f"feature {feature.name}: {what}, scaled by the training records"
    shown = [f"{one:g}" if feature.date is None else date_of(one) for one in feature.range]
    return f"feature {feature.name}: {what}, {' to '.join(shown)} become -1 to 1"


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
        found.append(f"the same in every training record: {_some(constant)}")
    return found


def _feature_names(schema: Schema) -> list[str]:
    names = []
    for feature in schema.features:
        values = feature.values if isinstance(feature, Category) else ()
        names += [f"{feature.name}={value}" for value in values] or [feature.name]
    return names


def _some(names: tuple[str, ...] | list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
