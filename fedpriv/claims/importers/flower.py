"""Flower: `pyproject.toml`, differential privacy strategies, `LocalDpMod`, and Opacus in clients.

Strategies clip each array record of a client's update; how many there are is not known here. They
add noise of `noise_multiplier * clipping_norm / num_sampled_clients` to the average. `LocalDpMod`
adds noise of `sensitivity sqrt(2 ln(1.25 / delta)) / epsilon` to each clipped update
(flwr.common.differential_privacy).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedpriv.accountants.events import SERVER
from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft, opacus
from fedpriv.claims.importers.syntax import FoundCall, calls, not_regular, sources
from fedpriv.errors import DataError

FIXED_CLIPPING = (
    "DifferentialPrivacyServerSideFixedClipping",
    "DifferentialPrivacyClientSideFixedClipping",
)
ADAPTIVE_CLIPPING = (
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DifferentialPrivacyClientSideAdaptiveClipping",
)
ROUNDS = "num-server-rounds"


def read_flower(path: Path) -> draft.Draft:
    """The draft of a Flower project, by its folder or its `pyproject.toml`."""
    project = path if path.is_dir() else path.parent
    file = project / "pyproject.toml"
    found = draft.Draft("Flower", [str(file)])
    config = run_config(file)
    rounds = config.get(ROUNDS)
    rounds = rounds if type(rounds) is int and rounds > 0 else None
    if config:
        found.unread.append(f"{file}: flwr run --run-config may change these values")
    if rounds is None:
        found.unread.append(f"{file}: no {ROUNDS}")
    found.unread += not_regular(project)
    every = [call for source in sources(project) for call in calls(source, config, found.unread)]
    rounds = _unless_overridden(every, rounds, found.unread)
    for call in every:
        if call.name in FIXED_CLIPPING:
            found.releases.append(_strategy(call, rounds))
        elif call.name in ADAPTIVE_CLIPPING:
            found.releases.append(draft.release(f"average update, {call.place}"))
            found.unread.append(f"{call.place}: adaptive clipping is not described")
        elif call.name == "LocalDpMod":
            _local(found, call, rounds)
        elif call.name in opacus.CALLS:
            opacus.add_call(found, call)
        else:
            continue
        found.files.append(call.place)
        if call.branched:
            found.unread.append(f"{call.place}: {call.name} {draft.BRANCHED}")
    if not found.releases:
        found.unread.append(f"{project}: no call that adds noise was found by its name")
    return found


def _unless_overridden(
    every: Iterable[FoundCall], rounds: int | None, unread: list[str]
) -> int | None:
    """The configured rounds; None if a call sets others, or a number that is not known."""
    for call in every:
        if call.starred or not call.has("num_rounds"):
            continue
        value = call.value("num_rounds")
        if value is None or value != rounds:
            text = "is computed by the code" if value is None else f"is {value}"
            unread.append(f"{call.place}: num_rounds {text}")
            rounds = None
    return rounds


def run_config(file: Path) -> dict[str, Any]:
    """The run configuration of a project, with nested keys joined by dots."""
    try:
        data: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{file}: not read: {' '.join(str(error).split())[:120]}") from error
    for key in ("tool", "flwr", "app", "config"):
        data = data.get(key, {}) if isinstance(data, dict) else {}
    return dict(_flat(data, "")) if isinstance(data, dict) else {}


def _flat(data: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for key, value in data.items():
        if isinstance(value, dict):
            items += _flat(value, f"{prefix}{key}.")
        else:
            items.append((prefix + key, value))
    return items


def _strategy(call: FoundCall, rounds: int | None) -> dict[str, Any]:
    bound = call.value("clipping_norm", 2)
    multiplier = call.value("noise_multiplier", 1)
    return draft.release(
        f"average update, {call.place}",
        scope="all",
        contributor=s.CLIENT,
        times=rounds,
        clip=draft.product(bound),
        noise=draft.noise(
            s.GAUSSIAN, deviation=draft.product(multiplier, bound), added_by=s.BY_SERVER
        ),
    )


def _local(found: draft.Draft, call: FoundCall, rounds: int | None) -> None:
    names = ("clipping_norm", "sensitivity", "epsilon", "delta")
    bound, sensitivity, epsilon, delta = (
        call.value(name, place) for place, name in enumerate(names)
    )
    deviation = None
    if draft.product(sensitivity, epsilon, delta) is not None and delta < 1.25:
        deviation = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    found.claims.append(
        draft.statement(epsilon=draft.product(epsilon), delta=draft.product(delta), observer=SERVER)
    )
    found.unread += [
        f"{call.place}: {name} is computed by the code"
        for place, name in enumerate(names)
        if call.value(name, place) is None
    ]
    found.releases.append(
        draft.release(
            f"update of a client, {call.place}",
            scope="all",
            contributor=s.CLIENT,
            times=rounds,
            clip=draft.product(bound),
            tensors=1,
            noise=draft.noise(s.GAUSSIAN, deviation=deviation or None, added_by=s.BY_CLIENTS),
        )
    )
