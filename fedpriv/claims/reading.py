"""Read a claim from YAML or JSON.

A file comes from a stranger: it is data, and reading it runs no code. A misspelt key, a key that is
given twice, or an impossible value ends in one line. A field that is missing, null or `unknown`
becomes a question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.contradictions import check_consistent
from fedpriv.claims.plain_yaml import load
from fedpriv.errors import ConfigError, DataError, require
from fedpriv.settings.words import near

UNKNOWN = "unknown"
MOST_RELEASES = 200
"""Accounting takes up to a second for each distinct release."""
MOST_PAIRS = 600
"""Statements times releases: each statement is accounted against all releases."""
_SMALLEST, _LARGEST = 1e-30, 1e30
"""Of bounds, weights and noise, so that no ratio of them leaves the range of a float."""
SOURCE = ("repository", "commit", "file", "says", "reading", "note", "status")

Check = Callable[[str, Any], Any]
"""From a path and what is given there: the value. Raises ConfigError."""
Table = Mapping[str, tuple[Check, str]]
"""Of each key: its check, and the question if it is missing."""


def read(path: Path) -> s.PrivacyClaim:
    """The claim in a file."""
    try:
        return parse(load(path))
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error


class Fields:
    """The fields of one mapping. Collects questions, and refuses keys that nobody took."""

    def __init__(self, data: object, path: str, questions: list[s.Question]) -> None:
        if data is None or data == UNKNOWN:
            data = {}
        if not isinstance(data, dict):
            raise ConfigError(path or "claim", _shown(data), "expected a mapping of keys to values")
        self.data = data
        self.path = path
        self.questions = questions
        self.taken: list[str] = []
        self.open = False

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def take(self, key: str, check: Check, question: str) -> Any:
        """The checked value of a key; None and a question if it is missing or unknown."""
        self.taken.append(key)
        value = self.data.get(key)
        if value is None or value == UNKNOWN:
            self.questions.append(s.Question(self.at(key), question))
            self.open = True
            return None
        return check(self.at(key), value)

    def take_all(self, table: Table) -> dict[str, Any]:
        """The checked values of all keys of a table."""
        return {key: self.take(key, check, question) for key, (check, question) in table.items()}

    def text(self, key: str, default: str) -> str:
        """A text that may be missing."""
        self.taken.append(key)
        return str(_TEXT(self.at(key), self.data.get(key, default)))

    def inner(self, key: str) -> Fields:
        """The fields of a mapping below `key`."""
        self.taken.append(key)
        return Fields(self.data.get(key), self.at(key), self.questions)

    def end(self, *others: Fields) -> bool:
        """Refuse unknown keys. Whether every question of these fields is answered."""
        for fields in (self, *others):
            for key in fields.data:
                if key not in fields.taken:
                    hint = near(key, fields.taken) + f"allowed: {', '.join(fields.taken)}"
                    raise ConfigError(fields.at(key), _shown(fields.data[key]), hint)
        return not any(fields.open for fields in (self, *others))


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= 60 else text[:57] + "..."


def _checked(
    fits: Callable[[Any], bool], allowed: str, made: Callable[[Any], Any] = lambda value: value
) -> Check:
    """A check that refuses what does not fit, and turns the rest into a value of ours."""

    def check(path: str, value: Any) -> Any:
        require(fits(value), path, _shown(value), allowed)
        return made(value)

    return check


def _one_of(allowed: Sequence[str]) -> Check:
    return _checked(lambda value: value in allowed, f"allowed: {', '.join(allowed)}, {UNKNOWN}")


def _number(
    low: float, high: float, allowed: str = "a number, at least {:g}, at most {:g}"
) -> Check:
    return _checked(
        lambda value: type(value) in (int, float) and low <= value <= high,
        allowed.format(low, high),
        float,
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _listed(value: Any) -> tuple[str, ...]:
    return () if value == "none" else tuple(value)


_SIZE = _number(_SMALLEST, _LARGEST)
_WHOLE = _checked(
    lambda value: type(value) is int and 1 <= value <= 10**9, "a whole number from 1 to 1e9"
)
_TEXT = _checked(lambda value: isinstance(value, str), "a text")
_YES = _checked(lambda value: isinstance(value, bool), "true or false")
_ENTRIES = _checked(
    lambda value: isinstance(value, list) and 0 < len(value) <= MOST_RELEASES,
    f"a list of 1 to {MOST_RELEASES} entries",
)
_TEXTS = _checked(
    lambda value: value == "none" or (_are_texts(value) and UNKNOWN not in value),
    "none, or a list of texts",
    _listed,
)
_OBSERVERS = _checked(
    lambda value: value == "none" or (_are_texts(value) and set(value) <= set(s.WHO)),
    f"none, or a list of {', '.join(s.WHO)}",
    _listed,
)


def _clip(path: str, value: Any) -> float:
    return math.inf if value == "none" else float(_SIZE(path, value))


TOP: Table = {
    "claims": (_ENTRIES, "which epsilon is stated, for whom"),
    "releases": (_ENTRIES, "what is released, and how"),
    "complete": (_YES, "do the releases list everything that an observer sees of the data?"),
    "choices": (_TEXTS, "decisions made on protected data, or none"),
}
STATEMENT: Table = {
    "epsilon": (_number(5e-324, 1e9, "a number above 0, at most {1:g}"), "the stated epsilon"),
    "delta": (_number(1e-300, 1 - 1e-9), "the delta of this epsilon"),
    "unit": (_one_of(s.UNITS), "what one unit is: record, user or client"),
    "adjacency": (
        _one_of(s.ADJACENCIES),
        "which neighbours: add/remove, replace or zero-out",
    ),
    "observer": (_one_of(s.WHO), "against whom: the released model, the server or a client"),
}
RELEASE: Table = {
    "scope": (_TEXT, "the part of the data: a name, or all"),
    "contributor": (_one_of(s.UNITS), "whose vectors are clipped: record, user or client"),
    "times": (_WHOLE, "how often it is released: rounds times local steps"),
    "participation": (_WHOLE, "the most releases in which one contributor takes part"),
    "clip": (_clip, "the bound of one vector's norm, or none"),
    "tensors": (
        _WHOLE,
        "how many vectors are clipped to this bound each; 1 if clipped jointly",
    ),
    "weight": (_SIZE, "the largest weight of a vector in the sum"),
    "weights": (_one_of(s.BASES), "are weights fixed, or do they depend on data?"),
    "denominator": (_one_of(s.BASES), "is the denominator fixed, or does it depend on data?"),
}
SEEN: Table = {who: (_one_of(s.SIGHTS), f"what the {who} sees of it") for who in s.WHO}
NOISE: Table = {
    "deviation": (_SIZE, "the noise's deviation on the sum, before any division"),
    "added_by": (_one_of(s.ADDERS), f"who adds it: {', '.join(s.ADDERS)}"),
    "generator": (_one_of(s.GENERATORS), f"where noise comes from: {', '.join(s.GENERATORS)}"),
}
SAMPLE: Table = {
    "rate": (_number(_SMALLEST, 1), "the probability to take part"),
    "batch": (_WHOLE, "contributors in one release"),
    "of": (_WHOLE, "contributors to choose from"),
    "drawn": (_one_of(s.DRAWS), f"when a sample is drawn: {', '.join(s.DRAWS)}"),
    "hidden_from": (_OBSERVERS, "observers who do not learn who was chosen"),
}
SAMPLING = {
    s.EVERYTHING: (),
    s.POISSON: ("rate", "drawn", "hidden_from"),
    s.WITHOUT_REPLACEMENT: ("batch", "of", "drawn", "hidden_from"),
    s.SHUFFLED: ("batch", "of", "hidden_from"),
}
"""Fields of each rule."""


def parse(data: object) -> s.PrivacyClaim:
    """The claim that plain data describe. Raises ConfigError with the path of a wrong field."""
    questions: list[s.Question] = []
    top = Fields(data, "", questions)
    version = top.take("schema", _TEXT, f"the schema's version: {s.VERSION}")
    require(version == s.VERSION, "schema", version, f"this version reads {s.VERSION}")
    name = top.text("name", "")
    origin = top.inner("source")
    source = {key: origin.text(key, "") for key in SOURCE if key in origin.data}
    origin.taken = [*SOURCE]
    values = top.take_all(TOP)
    statements = tuple(
        _statement(Fields(item, f"claims.{number}", questions))
        for number, item in enumerate(values["claims"] or ())
    )
    releases = tuple(
        _release(Fields(item, f"releases.{number}", questions))
        for number, item in enumerate(values["releases"] or ())
    )
    pairs = len(statements) * len(releases)
    allowed = f"at most {MOST_PAIRS} statements times releases in one file"
    require(pairs <= MOST_PAIRS, "claims", f"{len(statements)} x {len(releases)}", allowed)
    population = top.inner("population")
    units = {statement.unit for statement in statements if statement}
    spread = {unit: found for unit in s.UNITS if (found := _spread(population, unit, units))}
    top.end(population, origin)
    return s.PrivacyClaim(
        name=name,
        statements=statements,
        releases=releases,
        spread=spread,
        complete=bool(values["complete"]),
        choices=values["choices"] or (),
        questions=tuple(questions),
        source=source,
    )


def _statement(fields: Fields) -> s.Statement | None:
    values = fields.take_all(STATEMENT)
    return s.Statement(**values) if fields.end() else None


def _spread(population: Fields, unit: str, claimed: Iterable[str]) -> s.UnitSpread | None:
    """The spread of a unit; units that no statement protects need none."""
    if unit not in claimed and unit not in population.data:
        population.taken.append(unit)
        return None
    fields = population.inner(unit)
    most = f"the most contributors of one scope with data of one {unit}, over all releases"
    table = {
        "contributors": (_WHOLE, most),
        "scopes": (_WHOLE, f"the most scopes with data of one {unit}"),
    }
    values = fields.take_all(table)
    return s.UnitSpread(**values) if fields.end() else None


def _release(fields: Fields) -> s.NoisyRelease | None:
    values = fields.take_all(RELEASE)
    noise = fields.inner("noise")
    added = _noise(noise)
    sampling = fields.inner("sampling")
    drawn = _sampling(sampling)
    sights = fields.inner("seen")
    seen = sights.take_all(SEEN)
    name = fields.text("name", fields.path)
    if not fields.end(noise, sampling, sights):
        return None
    release = s.NoisyRelease(
        name=name, **values, noise=added, sampling=drawn, seen=tuple(seen.items())
    )
    check_consistent(release, fields.path)
    return release


def _noise(fields: Fields) -> s.AddedNoise:
    mechanism = fields.take("mechanism", _one_of(s.MECHANISMS), "gaussian, laplace or none")
    if mechanism == s.NO_NOISE:
        return s.AddedNoise(mechanism)
    if mechanism is None:
        fields.taken += [*NOISE, "shares"]
        return s.AddedNoise(s.NO_NOISE)
    values = fields.take_all(NOISE)
    if values["added_by"] == s.BY_CLIENTS:
        values["shares"] = fields.take("shares", _WHOLE, "the fewest noise shares in one sum")
    elif values["added_by"] is None:
        fields.taken.append("shares")
    return s.AddedNoise(mechanism, **values)


def _sampling(fields: Fields) -> s.ReleaseSampling:
    rule = fields.take("rule", _one_of(s.RULES), f"as executed: {', '.join(s.RULES)}")
    if rule is None:
        fields.taken += SAMPLE
        return s.ReleaseSampling(s.EVERYTHING)
    values = fields.take_all({key: SAMPLE[key] for key in SAMPLING[rule]})
    return s.ReleaseSampling(rule, **{key: v for key, v in values.items() if v is not None})
