"""Keys and values: dataclasses from untrusted values, whose names and types are checked against the
fields, and numbers against limits; and keys that other settings leave without an effect.

A sweep over an idle key would give equal runs, and a table would name the best of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.base import LEAST, Mechanism
from fedpriv.rounds.plan import Plan
from fedpriv.settings.words import SYNONYMS, TABLE_KEYS, conf_dir, near


def typed(cls: type, values: dict[str, Any], prefix: str) -> Any:
    """An instance of dataclass `cls` from untrusted `values`. Checks each value against the type of
    its field."""
    require(isinstance(values, dict), prefix, values, "a mapping of keys to values")
    path = f"{prefix}." if prefix else ""
    names = [f.name for f in fields(cls)]
    given = {}
    for key, value in values.items():
        if key not in names:
            raise unknown_key(f"{path}{key}", names)
        entry = _named_entries(cls).get(key)
        if entry is not None and isinstance(value, dict):
            of = f"{path}{key}"
            given[key] = {name: typed(entry, one, f"{of}.{name}") for name, one in value.items()}
        elif key in _parts(cls):
            given[key] = typed(_parts(cls)[key], value, f"{path}{key}")
        else:
            given[key] = _typed_value(cls, key, json.dumps(value), f"{path}{key}")
    for key, value in given.items():
        _require_sensible(key, value, f"{path}{key}")
    for f in fields(cls):
        if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{path}{f.name}", "?", "a value is required")
    return cls(**given)


@lru_cache(maxsize=256)
def _named_entries(cls: type) -> dict[str, type]:
    """The fields of dataclass `cls` that map names to dataclasses, and the type of their
    entries."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        for option in get_args(hint) if isinstance(hint, UnionType) else (hint,):
            if get_origin(option) is dict and is_dataclass(get_args(option)[1]):
                found[name] = get_args(option)[1]
    return found


@lru_cache(maxsize=256)
def _parts(cls: type) -> dict[str, type]:
    """The fields of dataclass `cls` that are dataclasses themselves."""
    hints = get_type_hints(cls).items()
    return {name: one for name, one in hints if isinstance(one, type) and is_dataclass(one)}


SIZES = {
    "seed": 2**63 - 1,
    "n_users": 10**6,
    "n_silos": 10**5,
    "local_epochs": 10**5,
    "group_size": 10**5,
}
"""Limits of some fields. Without them, a mistyped number exhausts the memory after minutes."""
LARGEST = 10**9


def _require_sensible(key: str, value: Any, name: str) -> None:
    """Raise ConfigError for an integer beyond its limit, even if it is written as text, and for a
    number so small that its square is zero."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    most = SIZES.get(key, LARGEST)
    small = not isinstance(number, int) or abs(number) <= most
    require(small, name, value, f"a number up to {most}")
    tiny = isinstance(value, float) and 0 < abs(value) < LEAST
    require(not tiny, name, value, f"0, or a number of at least {LEAST:g} in size")


@lru_cache(maxsize=4096)
def _typed_value(cls: type, key: str, packed: str, name: str) -> Any:
    """The value of one field, from JSON. Cached, because the runs of a sweep share most values."""
    schema = OmegaConf.structured(cls)
    OmegaConf.set_readonly(schema, False)
    try:
        schema[key] = json.loads(packed)
        value = schema[key]
    except OmegaConfBaseException as error:
        hint = next(str(f.type) for f in fields(cls) if f.name == key)
        raise ConfigError(name, json.loads(packed), f"expected {_article(hint)}") from error
    return OmegaConf.to_object(value) if OmegaConf.is_config(value) else value


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def unknown_key(key: str, known: list[str], everywhere: Sequence[str] = ()) -> ConfigError:
    """The error for a key that does not exist. It suggests the nearest of the `known` keys, or else
    the keys of all groups, `everywhere`, that contain the word."""
    last = key.rpartition(".")[2]
    if key in SYNONYMS and key not in known:
        return ConfigError(key, "...", f"unknown key; did you mean {SYNONYMS[key]}?")
    if key in [f"data.{name}" for name in TABLE_KEYS]:
        return ConfigError(key, "...", f"a key of your own table: data=table {key}=...")
    hint = near(last, [name.rpartition(".")[2] for name in known])
    own = [name for name in everywhere if not name.endswith("_target_")]
    found = [name for name in own if last in re.split(r"[._]", name.rpartition(".")[2])]
    if found and not hint:
        hint = f"did you mean {' or '.join(found[:4])}? "
    allowed = ", ".join(sorted(known)) or "none"
    return ConfigError(key, "...", f"unknown key; {hint}allowed: {allowed}")


BOUND_AND_NOISE = ("clip", "noise_multiplier")
"""Arguments of methods that the mechanism's file reads."""


@lru_cache(maxsize=256)
def file_values(group: str, name: str) -> Mapping[str, Any]:
    """The values in a file of fedpriv's configuration, over those of the file that it extends.
    Empty for a file from elsewhere."""
    path = conf_dir() / group / f"{name}.yaml"
    if not path.is_file():
        return {}
    own = yaml.safe_load(path.read_text())
    extended = [one for one in own.pop("defaults", []) if isinstance(one, str) and one != "_self_"]
    values: dict[str, Any] = {}
    for one in extended:
        values |= file_values(group, one)
    values |= own
    return values


def repeats(word: str, group: str, values: Mapping[str, Any]) -> bool:
    """Whether a word key=value only repeats the value of its group's file. It may take the key out
    of an experiment's sweep."""
    key, _, value = word.partition("=")
    name = key.removeprefix(f"{group}.")
    if name == key or name not in values:
        return False
    try:
        return bool(yaml.safe_load(value) == values[name])
    except yaml.YAMLError:
        return False


def require_effect(words: Iterable[str], idle: Mapping[str, str]) -> None:
    """Raise ConfigError for a word that sets a key without effect, naming the key that makes it so.

    words: key=value, as on a command line.
    idle: result of `idle_keys`.
    """
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key in idle:
            raise ConfigError(key, value, f"has no effect with {idle[key]}")


def idle_keys(
    algo: Algorithm,
    mechanism: Mechanism,
    plan: Plan,
    plain: Mapping[str, Any],
    target: float | None = None,
) -> dict[str, str]:
    """Each key without effect: the setting that makes it so.

    plan: before data are loaded.
    plain: the configuration.
    target: epsilon that the noise is solved for; None: the noise is the method's.
    """
    idle = dict(algo.idle_keys(plan))
    found = {f"algo.{name}": reason for name, reason in idle.items()}
    for name in BOUND_AND_NOISE:
        asked = plain["algo"].get(name)
        used = plain["mechanism"].get(name)
        if name in idle:
            found[f"mechanism.{name}"] = idle[name]
        elif not mechanism.clips:
            found[f"algo.{name}"] = "mechanism=none"
        elif used != asked:
            found[f"algo.{name}"] = f"mechanism.{name}={used}"
    if target is not None:
        solved = f"accountant.target={target:g}, for which the noise is solved"
        found |= {f"algo.{name}": solved for name in algo.idle_with_target}
        found["mechanism.noise_multiplier"] = solved
    return found
