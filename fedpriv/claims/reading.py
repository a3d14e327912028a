"""Read a claim from YAML or JSON.

A file comes from a stranger: it is data, and reading it runs no code. A misspelt key, a key that is
given twice, or an impossible value ends in one line. A field that is missing, null or `unknown`
becomes a question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fedpriv.accountants.events import RELEASED_MODEL, SERVER
from fedpriv.claims import schema as s
from fedpriv.claims.plain_yaml import load
from fedpriv.errors import ConfigError, DataError, require
from fedpriv.settings.help import near

UNKNOWN = "unknown"
MOST_RELEASES = 200
"""Accounting takes up to a second for each distinct release."""
MOST_PAIRS = 600
"""Statements times releases: each statement is accounted against all releases."""
_SMALLEST, _LARGEST = 1e-30, 1e30
"""Of bounds, weights and noise, so that no ratio of them leaves the range of a float."""
SOURCE = ("repository", "commit", "file", "says", "reading", "note", "status")


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

    def take(self, key: str, check: Callable[[str, Any], Any], question: str) -> Any:
        """The checked value of a key; None and a question if it is missing or unknown."""
        self.taken.append(key)
        value = self.data.get(key)
        if value is None or value == UNKNOWN:
            self.questions.append(s.Question(self.at(key), question))
            self.open = True
            return None
        return check(self.at(key), value)

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


def _one_of(allowed: Sequence[str]) -> Callable[[str, Any], str]:
    def check(path: str, value: Any) -> str:
        if value not in allowed:
            raise ConfigError(path, _shown(value), f"allowed: {', '.join(allowed)}, {UNKNOWN}")
        return str(value)

    return check


def _number(low: float, high: float, *, open_low: bool = True) -> Callable[[str, Any], float]:
    def check(path: str, value: Any) -> float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = fits and (low < value or (not open_low and value == low)) and value <= high
        edge = "above" if open_low else "at least"
        most = f", at most {high:g}" if math.isfinite(high) else ""
        require(
            fits and math.isfinite(value), path, _shown(value), f"a number {edge} {low:g}{most}"
        )
        return float(value)

    return check


def _whole(path: str, value: Any) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**9
    require(fits, path, _shown(value), "a whole number from 1 to 1e9")
    return int(value)


def _size(path: str, value: Any) -> float:
    return _number(_SMALLEST, _LARGEST, open_low=False)(path, value)


def _clip(path: str, value: Any) -> float:
    return math.inf if value == "none" else _size(path, value)


def _delta(path: str, value: Any) -> float:
    return _number(1e-300, 1 - 1e-9, open_low=False)(path, value)


def _text(path: str, value: Any) -> str:
    require(isinstance(value, str), path, _shown(value), "a text")
    return str(value)


def _yes(path: str, value: Any) -> bool:
    require(isinstance(value, bool), path, _shown(value), "true or false")
    return bool(value)


def _texts(path: str, value: Any) -> tuple[str, ...]:
    if value == "none":
        return ()
    fits = isinstance(value, list) and all(isinstance(text, str) for text in value)
    require(fits and UNKNOWN not in value, path, _shown(value), "none, or a list of texts")
    return tuple(value)


def _observers(path: str, value: Any) -> tuple[str, ...]:
    found = _texts(path, value)
    for name in found:
        _one_of(s.WHO)(path, name)
    return found


def parse(data: object) -> s.PrivacyClaim:
    """The claim that plain data describe. Raises ConfigError with the path of a wrong field."""
    questions: list[s.Question] = []
    top = Fields(data, "", questions)
    version = top.take("schema", _text, f"the schema's version: {s.VERSION}")
    require(version == s.VERSION, "schema", version, f"this version reads {s.VERSION}")
    name = top.data.get("name", "")
    source = top.data.get("source") or {}
    top.taken += ["name", "source"]
    _text("name", name)
    origin = Fields(source, "source", questions)
    origin.taken += SOURCE
    origin.end()
    statements = tuple(
        _statement(Fields(item, f"claims.{number}", questions))
        for number, item in enumerate(_list(top, "claims", "which epsilon is stated, for whom"))
    )
    releases = tuple(
        _release(Fields(item, f"releases.{number}", questions))
        for number, item in enumerate(_list(top, "releases", "what is released, and how"))
    )
    pairs = len(statements) * len(releases)
    allowed = f"at most {MOST_PAIRS} statements times releases in one file"
    require(pairs <= MOST_PAIRS, "claims", f"{len(statements)} x {len(releases)}", allowed)
    complete = top.take(
        "complete", _yes, "do the releases list everything that an observer sees of the data?"
    )
    choices = top.take("choices", _texts, "decisions made on protected data, or none")
    population = top.inner("population")
    units = {statement.unit for statement in statements if statement}
    spread = {unit: found for unit in s.UNITS if (found := _spread(population, unit, units))}
    top.end(population)
    return s.PrivacyClaim(
        name=name,
        statements=statements,
        releases=releases,
        spread=spread,
        complete=bool(complete),
        choices=choices or (),
        questions=tuple(questions),
        source={key: _text(f"source.{key}", value) for key, value in source.items()},
    )


def _list(fields: Fields, key: str, question: str) -> list[Any]:
    def check(path: str, value: Any) -> list[Any]:
        fits = isinstance(value, list) and 0 < len(value) <= MOST_RELEASES
        require(fits, path, _shown(value), f"a list of 1 to {MOST_RELEASES} entries")
        return list(value)

    return list(fields.take(key, check, question) or [])


def _statement(fields: Fields) -> s.Statement | None:
    epsilon = fields.take("epsilon", _number(0, 1e9), "the stated epsilon")
    delta = fields.take("delta", _delta, "the delta of this epsilon")
    unit = fields.take("unit", _one_of(s.UNITS), "what one unit is: record, user or client")
    adjacency = fields.take(
        "adjacency", _one_of(s.ADJACENCIES), "which neighbours: add/remove, replace or zero-out"
    )
    observer = fields.take(
        "observer", _one_of(s.WHO), "against whom: the released model, the server or a client"
    )
    return s.Statement(epsilon, delta, unit, adjacency, observer) if fields.end() else None


def _spread(population: Fields, unit: str, claimed: Iterable[str]) -> s.UnitSpread | None:
    """The spread of a unit; units that no statement protects need none."""
    if unit not in claimed and unit not in population.data:
        population.taken.append(unit)
        return None
    fields = population.inner(unit)
    contributors = fields.take(
        "contributors",
        _whole,
        f"the most contributors of one scope with data of one {unit}, over all releases",
    )
    scopes = fields.take("scopes", _whole, f"the most scopes with data of one {unit}")
    return s.UnitSpread(contributors, scopes) if fields.end() else None


def _release(fields: Fields) -> s.NoisyRelease | None:
    scope = fields.take("scope", _text, "the part of the data: a name, or all")
    contributor = fields.take(
        "contributor", _one_of(s.UNITS), "whose vectors are clipped: record, user or client"
    )
    times = fields.take("times", _whole, "how often it is released: rounds times local steps")
    participation = fields.take(
        "participation", _whole, "the most releases in which one contributor takes part"
    )
    clip = fields.take("clip", _clip, "the bound of one vector's norm, or none")
    tensors = fields.take(
        "tensors", _whole, "how many vectors are clipped to this bound each; 1 if clipped jointly"
    )
    weight = fields.take("weight", _size, "the largest weight of a vector in the sum")
    weights = fields.take(
        "weights", _one_of(s.BASES), "are weights fixed, or do they depend on data?"
    )
    denominator = fields.take(
        "denominator", _one_of(s.BASES), "is the denominator fixed, or does it depend on data?"
    )
    noise = fields.inner("noise")
    added = _noise(noise)
    sampling = fields.inner("sampling")
    drawn = _sampling(sampling)
    sights = fields.inner("seen")
    seen = tuple(
        (who, sights.take(who, _one_of(s.SIGHTS), f"what the {who} sees of it")) for who in s.WHO
    )
    _check_consistent(fields, scope, added, drawn, dict(seen))
    name = fields.data.get("name", fields.path)
    fields.taken.append("name")
    _text(fields.at("name"), name)
    if participation is not None and times is not None:
        path = fields.at("participation")
        require(participation <= times, path, participation, f"at most times={times}")
    if not fields.end(noise, sampling, sights):
        return None
    return s.NoisyRelease(
        name=name,
        scope=scope,
        contributor=contributor,
        times=times,
        participation=participation,
        clip=clip,
        tensors=tensors,
        weight=weight,
        weights=weights,
        denominator=denominator,
        noise=added,
        sampling=drawn,
        seen=seen,
    )


def _check_consistent(
    fields: Fields,
    scope: str | None,
    noise: s.AddedNoise,
    sampling: s.ReleaseSampling,
    seen: dict[str, str | None],
) -> None:
    """Refuse what cannot be. Everybody gets the released model, the server and clients too."""
    if scope is not None:
        require(bool(scope.strip()), fields.at("scope"), _shown(scope), "a name, or all")
        plain = scope == s.EVERYWHERE or scope.strip().lower() != s.EVERYWHERE
        require(plain, fields.at("scope"), _shown(scope), "write all in small letters")
    everybody = seen[RELEASED_MODEL]
    for who in s.WHO:
        sight = seen[who]
        if sight is not None and everybody is not None:
            enough = s.SIGHTS.index(sight) >= s.SIGHTS.index(everybody)
            allowed = f"at least what everybody sees ({everybody})"
            require(enough, fields.at(f"seen.{who}"), sight, allowed)
        if who in sampling.hidden_from:
            path = fields.at("sampling.hidden_from")
            told = RELEASED_MODEL in sampling.hidden_from
            require(told, path, who, f"what the {RELEASED_MODEL} shows is hidden from nobody")
    if noise.mechanism != s.NO_NOISE and noise.added_by == s.BY_SERVER:
        path, sight = fields.at(f"seen.{SERVER}"), seen[SERVER]
        require(sight != s.NOTHING, path, sight, "the server adds the noise, so it sees the sum")


def _noise(fields: Fields) -> s.AddedNoise:
    mechanism = fields.take("mechanism", _one_of(s.MECHANISMS), "gaussian, laplace or none")
    if mechanism is None:
        fields.taken += ["deviation", "added_by", "shares", "generator"]
        return s.AddedNoise(s.NO_NOISE)
    if mechanism == s.NO_NOISE:
        return s.AddedNoise(mechanism)
    deviation = fields.take(
        "deviation", _size, "the noise's deviation on the sum, before any division"
    )
    added_by = fields.take("added_by", _one_of(s.ADDERS), f"who adds it: {', '.join(s.ADDERS)}")
    shares = 1
    if added_by is None:
        fields.taken.append("shares")
    if added_by == s.BY_CLIENTS:
        shares = fields.take("shares", _whole, "the fewest noise shares in one sum")
    generator = fields.take(
        "generator", _one_of(s.GENERATORS), f"where noise comes from: {', '.join(s.GENERATORS)}"
    )
    return s.AddedNoise(mechanism, deviation, added_by, shares, generator)


def _sampling(fields: Fields) -> s.ReleaseSampling:
    rule = fields.take("rule", _one_of(s.RULES), f"as executed: {', '.join(s.RULES)}")
    if rule is None:
        fields.taken += ["rate", "batch", "of", "drawn", "hidden_from"]
    if rule in (None, s.EVERYTHING):
        return s.ReleaseSampling(rule)
    rate, batch, of = 1.0, 1, 1
    if rule == s.POISSON:
        rate = fields.take(
            "rate", _number(_SMALLEST, 1, open_low=False), "the probability to take part"
        )
    else:
        batch = fields.take("batch", _whole, "contributors in one release")
        of = fields.take("of", _whole, "contributors to choose from")
        if batch is not None and of is not None:
            require(batch <= of, fields.at("batch"), batch, f"at most of={of}")
    drawn = s.EACH_TIME
    if rule != s.SHUFFLED:
        drawn = fields.take(
            "drawn", _one_of(s.DRAWS), f"when a sample is drawn: {', '.join(s.DRAWS)}"
        )
    hidden = fields.take("hidden_from", _observers, "observers who do not learn who was chosen")
    return s.ReleaseSampling(rule, rate, batch, of, drawn, hidden or ())
