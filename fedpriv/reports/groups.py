"""Groups of runs that differ only in their seed, named by the keys in which groups differ."""

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

NO_SETTINGS = frozenset({*FREE, "seed", "preset"} - {"rounds"})
"""Top-level keys that do not change what a run computes, or whose values other keys repeat."""
METHOD_SECTIONS = ("algo", "mechanism")
"""Sections of the configuration that belong to a method, which its label names."""
TARGET = "_target_"
DATA = "data."
"""Keys of a run's data begin so."""
RECORDS = f"{DATA}records"
"""Key of the digest of a run's data, beside its settings."""
CODE = "code"
"""Key of the digest of a run's code, beside its settings."""
SHOWN = 12
"""Hexadecimal digits of a digest in tables."""
MISSING = object()


@dataclass(frozen=True)
class Group:
    """Runs of one configuration with different seeds.

    method: label of their algorithm.
    settings: values of the keys in which groups differ, if this group has the key.
    runs: sorted by seed.
    """

    method: str
    settings: Mapping[str, Any]
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The method, then the short key and value of each setting."""
        return ", ".join(
            [self.method, *(f"{short(key)}={value}" for key, value in self.settings.items())]
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def digests(self) -> tuple[str, str]:
        """The first digits of the digests of data and code that all runs share."""
        known = self.runs[0].status.identity
        return known.source[:SHOWN], known.code[:SHOWN]

    @property
    def untold(self) -> bool:
        """Whether no test metric was told, rather than none found."""
        return all(run.config.get("evaluation") == "none" for run in self.runs)

    @property
    def empty_rounds(self) -> int:
        """Number of rounds of all runs that learned nothing."""
        return sum(len(run.status.empty_rounds) for run in self.runs)

    def finals(self, metric: str) -> pd.Series:
        """A metric after the last round, by seed."""
        return pd.Series(
            [run.final(metric) for run in self.runs], index=list(self.seeds), dtype=float
        )


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by configuration, in the order of each group's first run.

    Raises FedprivError for runs on several data sets, and for two runs with equal configuration
    and seed, unless real noise has told them apart.
    """
    by_settings = group_by_settings(runs)
    _refuse_mixed_data([members[0] for members in by_settings.values()])
    values = [json.loads(text) for text in by_settings]
    keys = _differing_keys(values, [members[0].status.label for members in by_settings.values()])
    groups = []
    for own, unsorted in zip(values, by_settings.values()):
        members = sorted(unsorted, key=lambda run: run.seed)
        for one, other in pairwise(members):
            real = one.status.randomness == "system"  # then runs of one seed differ
            if one.seed == other.seed and not (real and not one.metrics.equals(other.metrics)):
                raise FedprivError(
                    f"{one.folder} and {other.folder} are the same run twice (seed={one.seed})"
                )
        named = {key: class_name(own[key]) for key in keys if key in own}
        groups.append(Group(unsorted[0].status.label, named, tuple(members)))
    return groups


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration by dotted key, without the seed and keys that change no result."""
    relevant = {key: value for key, value in config.items() if key not in NO_SETTINGS}
    return {key: _number(value) for key, value in flat(relevant).items()}


def alike_keyed(runs: Sequence[Run]) -> bool:
    """Whether one holder's secret has keyed the digests of all runs: only then can their data be
    compared."""
    return len({run.status.identity.holder for run in runs}) <= 1


def run_settings(run: Run, *, keyed: bool) -> dict[str, Any]:
    """The settings of a run and the digests of its data and code, so that runs with equal ones
    differ in their seed alone. The digest of the data stands for the folder of its files.

    keyed: whether the digest of its data can be compared (`alike_keyed`).
    """
    found = settings(run.config) | {CODE: run.status.identity.code[:SHOWN]}
    found.pop("data.root", None)
    return found | ({RECORDS: run.status.identity.source[:SHOWN]} if keyed else {})


def short(key: str) -> str:
    """The last part of a dotted key; for a class, the name of its config group."""
    first, _, last = key.rpartition(".")
    return first if last == TARGET else last


def group_by_settings(runs: Sequence[Run], section: str = "") -> dict[str, list[Run]]:
    """Runs by the JSON text of their settings and digests.

    section: how the keys begin that count.
    """
    found: dict[str, list[Run]] = {}
    keyed = alike_keyed(runs)
    for run in runs:
        every = run_settings(run, keyed=keyed)
        own = {key: value for key, value in every.items() if key.startswith(section)}
        found.setdefault(json.dumps(own, sort_keys=True), []).append(run)
    return found


def _number(value: Any) -> Any:
    """5.0 as 5: both are the same setting."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if whole else value


def class_name(value: Any) -> Any:
    """A class of this package by its own name, any other value unchanged."""
    ours = isinstance(value, str) and value.startswith("fedpriv.")
    return value.rpartition(".")[2] if ours else value


def _refuse_mixed_data(runs: Sequence[Run]) -> None:
    """Raises FedprivError for runs on several data sets."""
    by_data = group_by_settings(runs, DATA)
    if len(by_data) > 1:
        (first, [one, *_]), (second, [other, *_]), *_ = by_data.items()
        mine = json.loads(first)
        theirs = json.loads(second)
        key = next(key for key in sorted(mine | theirs) if mine.get(key) != theirs.get(key))
        values = " and ".join(
            f"{class_name(data.get(key))} ({run.folder})"
            for data, run in ((mine, one), (theirs, other))
        )
        raise FedprivError(
            f"runs on different data cannot be compared: {short(key)}={values}; name folders of one"
        )


def _differing_keys(values: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[str]:
    """The keys that name groups.

    A key of a method's section counts if two groups of one method differ in it, any other key if
    any two groups do. A class implies its keys: they count only among groups of the same class.
    """
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for own in values for key in own):
        section, _, rest = key.partition(".")
        by_peers: dict[Any, set[str]] = {}
        for label, own in zip(labels, values):
            peers: Any = label
            if section not in METHOD_SECTIONS:
                peers = own.get(f"{section}.{TARGET}") if rest != TARGET else None
            text = json.dumps(own[key], sort_keys=True) if key in own else ""
            by_peers.setdefault(peers, set()).add(text)
        if any(len(different) > 1 for different in by_peers.values()):
            found[key] = [own.get(key, MISSING) for own in values]
    return [key for key in found if not _repeats_algo(key, found)]


def _repeats_algo(key: str, found: Mapping[str, list[Any]]) -> bool:
    """Whether a key of `algo` has the same last part and values, as algo.clip for
    mechanism.clip."""
    return any(
        other.startswith("algo.")
        and short(other) == short(key)
        and other != key
        and found[other] == found[key]
        for other in found
    )
