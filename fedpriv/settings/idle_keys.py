"""Refuse keys of the command line that other settings leave without an effect.

A sweep over such a key would give equal runs, and a table would name the best of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import yaml

from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Plan
from fedpriv.settings.words import conf_dir

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
