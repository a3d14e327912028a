"""Damaged tables: each ends in one line that names the file, or says in a note what is odd.

Each damage is one that a person or a program makes: it is known what should happen to it. Bytes
drawn at random may leave a table whole; then every other row reads as before.
"""

import gzip
import random

import pytest
from refusals import refused

from fedpriv.data.table.schema import write_schema
from fedpriv.data.table.table import Table
from fedpriv.errors import FedprivError
from fedpriv.projects.files import SCHEMA
from fedpriv.projects.patients import csv_text
from fedpriv.util.streams import Streams

PATIENTS = 60
ROLES = {"label": "died", "user": "patient", "silo": "hospital", "drop": ["stay"]}
SEEDS = range(4)


@pytest.fixture(scope="module")
def lines():
    """The table's lines, without missing values."""
    head, *rows = csv_text(patients=PATIENTS).splitlines()
    return [head, *(row for row in rows if ",," not in row)]


def cell(lines, rng, column, value):
    """The lines with another value in one row of a column. `value`: a text, or a function of the
    old one."""
    place = lines[0].split(",").index(column)
    row = rng.randrange(1, len(lines))
    cells = lines[row].split(",")
    cells[place] = value(cells[place]) if callable(value) else value
    return [*lines[:row], ",".join(cells), *lines[row + 1 :]]


def header(lines, change):
    return [",".join(change(lines[0].split(","))), *lines[1:]]


def column_out(lines, place):
    return [",".join(row.split(",")[:place] + row.split(",")[place + 1 :]) for row in lines]


def text(lines):
    return ("\n".join(lines) + "\n").encode()


def at(lines, rng, new):
    """The bytes with `new` in the place of a byte in the middle of a row."""
    raw = text(lines)
    row = rng.randrange(2, len(lines))
    place = len(text(lines[:row])) + rng.randrange(1, 5)
    return raw[:place] + new + raw[place + 1 :]


def respelled(lines, rng):
    """A row once more, with another spelling of its patient or its hospital."""
    patient, hospital, rest = rng.choice(lines[1:]).split(",", 2)
    spelling = rng.choice(
        [str.lower, lambda old: f"{old[0]} {old[1:]}", lambda old: f"{old}\u00ad"]
    )
    if rng.random() < 0.5:
        return f"{spelling(patient)},{hospital},{rest}"
    return f"{patient},{spelling(hospital)},{rest}"


def visitors(lines):
    """The rows of patients with one visit."""
    names = [row.split(",")[0] for row in lines]
    return [row for row, name in zip(lines, names) if names.count(name) == 1][1:]


def elsewhere(row):
    """The same visit in another hospital."""
    patient, hospital, rest = row.split(",", 2)
    return f"{patient},{'Elmwood' if hospital != 'Elmwood' else 'Adlerhof'},{rest}"


REFUSED = {
    "bad encoding": lambda t, r: at(t, r, r.choice([b"\xff", b"\xe9", b"\xc3("])),
    "zero byte": lambda t, r: at(t, r, b"\0"),
    "UTF-16": lambda t, r: "\n".join(t).encode(r.choice(["utf-16", "utf-16-le", "utf-16-be"])),
    "a control character": lambda t, r: text(
        cell(t, r, "sex", r.choice(["\x1b", "f\x07", "\x7f"]))
    ),
    "wrongly decoded": lambda t, r: text(cell(t, r, "hospital", "D\ufffdne Point")),
    "empty": lambda t, r: r.choice([b"", b"\n", b" \n", b"\n\n", b"\xef\xbb\xbf"]),
    "only names": lambda t, r: text(t[:1]),
    "no names": lambda t, r: text(t[1:]),
    "another kind of file": lambda t, r: r.choice(
        [b"<html>404</html>", b"PK\x03\x04" + bytes(30), b'{"a": 1}', b"[1, 2]", b"%PDF-1.7\n"]
    ),
    "random bytes": lambda t, r: r.choice([b"\x89PNG\r\n", b"PAR1"]) + r.randbytes(400),
    "packed under another name": lambda t, r: gzip.compress(text(t)),
    "one class": lambda t, r: text([t[0], *(f"{row.rpartition(',')[0]},0" for row in t[1:])]),
    "missing column": lambda t, r: text(
        column_out(t, t[0].split(",").index(r.choice(["patient", "hospital", "died"])))
    ),
    "duplicate header": lambda t, r: text(header(t, lambda h: [h[0], *h[1:-1], r.choice(h[:-1])])),
    "header in two cases": lambda t, r: text(header(t, lambda h: [*h[:3], "AGE", *h[4:]])),
    "header without a name": lambda t, r: text(header(t, lambda h: ["", *h[1:]])),
    "renamed column": lambda t, r: text(header(t, lambda h: ["person", *h[1:]])),
    "a cell too many": lambda t, r: text(cell(t, r, "age", lambda old: f"{old},1")),
    "a cell too few": lambda t, r: text([*t[:-1], t[-1].rsplit(",", r.randrange(1, 8))[0]]),
    "cut in a row": lambda t, r: text(t)[: -r.randrange(3, 12)],
    "open quote": lambda t, r: text(cell(t, r, "sex", '"f')),
    "blank line": lambda t, r: text([*t[:20], r.choice(["", " "]), *t[20:]]),
    "text among numbers": lambda t, r: text(
        cell(t, r, "pressure", r.choice(["high", "12O", "130 mmHg", "1_30", "0x82", "--", "1,3"]))
    ),
    "not finite or huge": lambda t, r: text(
        cell(t, r, "age", r.choice(["inf", "-inf", "1e300", "1e13", "Infinity"]))
    ),
    "missing feature": lambda t, r: text(
        cell(t, r, r.choice(["age", "sex"]), r.choice(["", " ", "NA", "?", "null"]))
    ),
    "missing label, user or silo": lambda t, r: text(
        cell(t, r, r.choice(["died", "patient", "hospital"]), r.choice(["", "NA", " ", "nan"]))
    ),
    "a name in two ways": lambda t, r: text([*t, respelled(t, r)]),
    "nobody in particular": lambda t, r: text(
        cell(t, r, "patient", r.choice(["unknown", "Anonymous", "n.a.", "-", "TBD"]))
    ),
    "a rounded number as a name": lambda t, r: text(cell(t, r, "patient", "1.23457E+11")),
}
"""A table that has to be refused, by what was done to it."""

REFUSED_BY_A_SCHEMA = {
    "unknown category": lambda t, r: text(cell(t, r, "sex", r.choice(["x", "F", "0", "female"]))),
    "unknown class": lambda t, r: text(cell(t, r, "died", r.choice(["2", "yes", "1.0", "-1"]))),
    "unknown silo": lambda t, r: text(cell(t, r, "hospital", r.choice(["Fernhill", "7"]))),
    "beyond the range": lambda t, r: text(cell(t, r, "age", r.choice(["0", "-5", "101", "840"]))),
    "unexpected column": lambda t, r: text([f"{t[0]},more", *(f"{row},1" for row in t[1:])]),
    "more users than listed": lambda t, r: text(
        [*t, *(t[-1].replace(t[-1][:5], f"Q{i:04d}") for i in range(600))]
    ),
    "numbers without a point": lambda t, r: text(cell(t, r, "pressure", "1.3e5")),
}
"""What is refused beside that if a schema says what a cell may be."""

NOTED = {
    "a user in other hospitals": lambda t, r: text([*t, elsewhere(r.choice(visitors(t)))]),
    "rows repeated": lambda t, r: text([*t, *r.sample(t[1:], 3)]),
    "every name once": lambda t, r: text(
        [t[0], *(f"P{i:04d},{row.split(',', 1)[1]}" for i, row in enumerate(t[1:]))]
    ),
    "a feature that never changes": lambda t, r: text(
        [t[0], *(",".join([*row.split(",")[:4], "120", *row.split(",")[5:]]) for row in t[1:])]
    ),
    "one name for many": lambda t, r: text(
        [*t, *(elsewhere(f"P0007,{row.split(',', 1)[1]}") for row in 2 * t[1:])]
    ),
}
"""A table that may be right, and what is odd in it is said."""

SCHEMA_MODE = {"schema": "visits.yaml", "label": None, "user": None, "silo": None, "drop": []}


def load(path, **settings):
    return Table(path=str(path), **{**ROLES, "missing": "refuse", **settings}).load(Streams(0))


def refuses(path, **settings):
    line = refused(lambda: load(path, **settings), "visits.csv")
    assert len(line) < 500


@pytest.fixture
def path(tmp_path):
    (tmp_path / "visits.yaml").write_text(write_schema(SCHEMA))
    return tmp_path / "visits.csv"


@pytest.fixture
def declared(path):
    return {**SCHEMA_MODE, "root": str(path.parent)}


def test_the_undamaged_table_is_read(lines, path, declared):
    path.write_bytes(text(lines))
    for settings in ({}, declared):
        corpus = load(path, **settings)
        assert len(corpus.train) + len(corpus.test) == len(lines) - 1


@pytest.mark.parametrize("damage", REFUSED)
def test_a_damaged_table_is_refused_in_one_line(damage, lines, path, declared):
    for seed in SEEDS:
        path.write_bytes(REFUSED[damage](lines, random.Random(seed)))
        refuses(path, **(declared if seed % 2 and damage != "one class" else {}))


@pytest.mark.parametrize("damage", REFUSED_BY_A_SCHEMA)
def test_what_a_schema_does_not_allow_is_refused(damage, lines, path, declared):
    for seed in SEEDS:
        path.write_bytes(REFUSED_BY_A_SCHEMA[damage](lines, random.Random(seed)))
        refuses(path, **declared)


@pytest.mark.parametrize("damage", NOTED)
def test_what_is_odd_in_a_table_is_said(damage, lines, path):
    path.write_bytes(text(lines))
    usual = load(path).notes
    for seed in SEEDS:
        path.write_bytes(NOTED[damage](lines, random.Random(seed)))
        told = [note for note in load(path).notes if note not in usual]
        assert [note for note in told if "training and" not in note], damage


def rows_of(path, declared):
    """Every record of a file, in the order of the file, as bytes."""
    table = Table(path=str(path), **{**ROLES, **declared})
    _, encoded, held = table.records(table.path)
    names = [held.keys[user] for user in held.user]
    return [
        (name, int(silo), x.tobytes(), int(y))
        for name, silo, x, y in zip(names, held.silo, encoded.x, encoded.y)
    ]


def test_bytes_changed_at_random_change_no_other_row(lines, path, declared):
    """With a schema, a row is read alone: refused, or all other rows read as before."""
    path.write_bytes(text(lines))
    whole = rows_of(path, declared)
    accepted, messages = 0, []
    for seed in range(100):
        rng = random.Random(seed)
        raw = bytearray(text(lines))
        place = rng.randrange(len(text(lines[:1])), len(raw))
        raw[place] = rng.choice([*b"0123456789", *b"abc .,;-\"'\n\r", rng.randrange(256)])
        path.write_bytes(bytes(raw))
        try:
            found = rows_of(path, declared)
        except FedprivError as error:
            messages.append(str(error))
            continue
        accepted += 1
        assert len(found) == len(whole), seed
        assert sum(new != old for new, old in zip(found, whole)) <= 1, seed
    assert 0 < accepted < 100  # a digit may become another one
    assert not [message for message in messages if "\n" in message]
