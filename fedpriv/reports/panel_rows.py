"""Which groups of runs share a row of panels, and what their lines are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import sweep_order
from fedpriv.reports.groups import Group, short

MAX_ROWS = 6
"""Rows of panels in one figure."""
PanelRow = tuple[str, list[Group]]
"""Title of a row of panels, and the groups in it."""


def rows_by_setting(groups: Sequence[Group]) -> list[PanelRow]:
    """A row for each setting in which groups of one method differ.

    A group that lacks a key belongs to the rows of all its values. Raises FedprivError for more
    than `MAX_ROWS` settings.
    """
    keys = list(dict.fromkeys(key for group in groups for key in group.settings))
    settings: list[Mapping[str, Any]] = []
    for group in sorted(groups, key=lambda group: -len(group.settings)):
        if not any(group.settings.items() <= known.items() for known in settings):
            settings.append(group.settings)
    settings.sort(
        key=lambda setting: [list(map(str, setting)), [_value_order(setting.get(k)) for k in keys]]
    )
    if len(settings) > MAX_ROWS:
        raise FedprivError(
            f"{len(settings)} settings are too many for one figure (at most {MAX_ROWS}): runs "
            f"differ in {', '.join(map(short, keys))}; name fewer folders, or use fedpriv table"
        )
    return [
        (
            ", ".join(f"{short(key)}={value}" for key, value in setting.items()),
            [group for group in groups if group.settings.items() <= setting.items()],
        )
        for setting in settings
    ]


def rows_by_title(
    groups: Sequence[Group], row_title: Callable[[Mapping[str, Any]], str]
) -> list[PanelRow]:
    """A row for each title, in the order of their first runs."""
    rows: dict[str, list[Group]] = {}
    for group in groups:
        rows.setdefault(row_title(group.runs[0].config), []).append(group)

    def first_run(row: PanelRow) -> tuple[str, tuple[int, int, str]]:
        folders = (group.runs[0].folder for group in row[1])
        return min((str(folder.parent), sweep_order(folder)) for folder in folders)

    return sorted(rows.items(), key=first_run)


def line_names(rows: Sequence[PanelRow]) -> dict[int, str]:
    """By the group's id: its method, or its full name beside another group of this method."""
    names: dict[int, str] = {}
    for _, members in rows:
        methods = Counter(group.method for group in members)
        names |= {
            id(group): group.method if methods[group.method] == 1 else group.name
            for group in members
        }
    return names


def _value_order(value: Any) -> tuple[float, str]:
    """Numbers by size, then everything else."""
    number = isinstance(value, int | float)
    return (float(value), "") if number else (float("inf"), str(value))
