"""Groups of runs that differ in their seed alone, named by the keys in which groups differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import Run
from fedpriv.runs.checkpoint import FREE
from fedpriv.util.flatten import flat

UNSEEN = frozenset({*FREE, "seed", "preset"} - {"rounds"})
"""Top-level keys that are no setting: they do not change what a run computes, or other keys repeat
their values."""
METHOD = ("algo", "mechanism")
"""Sections that belong to a method, which its label names."""
TARGET = "_target_"
NOT_THERE = object()


@dataclass(frozen=True)
class Group:
    """Runs of one configuration with different seeds, sorted by these.

    method: the label of their algorithm.
    settings: those keys in which groups differ, as far as this one has them.
    """

    method: str
    settings: Mapping[str, Any]
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The method and the keys in which groups differ, under their last part."""
        return ", ".join(
            [self.method, *(f"{short(key)}={value}" for key, value in self.settings.items())]
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    def finals(self, metric: str) -> pd.Series:
        """A metric after the last round, by seed."""
        return pd.Series(
            [run.final(metric) for run in self.runs], index=list(self.seeds), dtype=float
        )


def grouped(runs: Sequence[Run]) -> list[Group]:
    """The runs by configuration, in the order of their first ones.

    Raises FedprivError for runs on several data sets, and for two runs of one configuration with
    the same seed.
    """
    by_settings: dict[str, list[Run]] = {}
    for run in runs:
        by_settings.setdefault(json.dumps(settings(run.config), sort_keys=True), []).append(run)
    flat = {text: json.loads(text) for text in by_settings}
    _refuse_mixed_data({text: members[0] for text, members in by_settings.items()}, flat)
    labels = {text: members[0].label for text, members in by_settings.items()}
    keys = _differing(flat, labels)
    groups = []
    for text, members in by_settings.items():
        members = sorted(members, key=lambda run: run.seed)
        for one, other in pairwise(members):
            if one.seed == other.seed:
                raise FedprivError(
                    f"{one.folder} and {other.folder} are the same run twice (seed={one.seed})"
                )
        named = {key: flat[text][key] for key in keys if key in flat[text]}
        groups.append(
            Group(
                labels[text], {key: _shown(value) for key, value in named.items()}, tuple(members)
            )
        )
    return groups


def only_group(runs: Sequence[Run]) -> Group:
    """The group of runs that are said to be one. Raises FedprivError when they are not, naming the
    keys."""
    groups = grouped(runs)
    if len(groups) > 1:
        keys = sorted({key for group in groups for key in group.settings}) or ["algo"]
        raise FedprivError(
            f"{runs[0].folder.parent}: runs differ in more than their seed: {', '.join(keys)}"
        )
    return groups[0]


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's settings by dotted key, without the seed and what changes no result."""
    seen = {key: value for key, value in config.items() if key not in UNSEEN}
    return {key: _number(value) for key, value in flat(seen).items()}


def short(key: str) -> str:
    """The part of a key that people say: its last, or the group's name for its class."""
    first, _, last = key.rpartition(".")
    return first if last == TARGET else last


def _number(value: Any) -> Any:
    """5.0 and 5 are the same setting."""
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        else value
    )


def _shown(value: Any) -> Any:
    """A class by its own name."""
    return (
        value.rpartition(".")[2]
        if isinstance(value, str) and value.startswith("fedpriv.")
        else value
    )


def _refuse_mixed_data(members: Mapping[str, Run], flat: Mapping[str, Mapping[str, Any]]) -> None:
    """root: where records lie does not make them others."""
    known: dict[str, Run] = {}
    for text, values in flat.items():
        data = {
            key: v for key, v in values.items() if key.startswith("data.") and key != "data.root"
        }
        known.setdefault(json.dumps(data, sort_keys=True), members[text])
    if len(known) > 1:
        (first, one), (second, other), *_ = known.items()
        mine = json.loads(first)
        theirs = json.loads(second)
        key = next(key for key in sorted(mine | theirs) if mine.get(key) != theirs.get(key))
        both = (
            f"{_shown(mine.get(key))} ({one.folder}) and {_shown(theirs.get(key))} ({other.folder})"
        )
        raise FedprivError(
            f"runs on different data cannot be compared: {short(key)}={both}; name folders of one"
        )


def _differing(flat: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> list[str]:
    """The keys that name groups: those in which two groups of one method differ, and of what
    belongs to no method those in which any two do. Keys of classes of which only one group has the
    class are implied by the class."""
    keys = list(dict.fromkeys(key for values in flat.values() for key in values))
    found: dict[str, list[Any]] = {}
    for key in keys:
        section, _, rest = key.partition(".")
        classes: dict[Any, set[str]] = {}
        for text, own in flat.items():
            alike = (
                labels[text]
                if section in METHOD
                else own.get(f"{section}.{TARGET}")
                if rest != TARGET
                else None
            )
            value = json.dumps(own[key], sort_keys=True) if key in own else ""
            classes.setdefault(alike, set()).add(value)
        if any(len(different) > 1 for different in classes.values()):
            found[key] = [values.get(key, NOT_THERE) for values in flat.values()]
    return [key for key in found if not _repeats(key, found)]


def _repeats(key: str, found: Mapping[str, list[Any]]) -> bool:
    """Whether an earlier section's key of the same last part, such as algo.clip for mechanism.clip,
    says the same."""
    preferred = [
        other
        for other in found
        if other.startswith("algo.") and short(other) == short(key) and other != key
    ]
    return any(found[other] == found[key] for other in preferred)
