"""Calls of Flower, Opacus and TensorFlow Federated that add noise, found by their names.

- Flower's strategies clip each array record of a client's update; how many there are is not known
  here. They add noise of `noise_multiplier * clipping_norm / num_sampled_clients` to the average.
  `LocalDpMod` adds noise of `sensitivity sqrt(2 ln(1.25 / delta)) / epsilon` to each clipped update
  (flwr.common.differential_privacy).
- Opacus clips the gradients of records and adds noise of `noise_multiplier * max_grad_norm` to
  their sum, which it divides by a public number. Its loaders sample by Poisson unless told
  otherwise. How many steps run, at which rate, and what else is sent is in code that is not
  executed here.
- `tff.learning.dp_aggregator(noise_multiplier, clients_per_round)` adapts its clipping bound, and
  `DifferentiallyPrivateFactory.gaussian_fixed(noise_multiplier, clients_per_round, clip)` fixes it.
  Both clip the updates of clients and noise their sum at the server.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedpriv.accountants.events import SERVER
from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.claims.importers.syntax import FoundCall, calls, sources
from fedpriv.util.flatten import flat

ROUNDS = "num-server-rounds"
TARGET = "make_private_with_epsilon"


def read_flower(path: Path) -> draft.Draft:
    """The draft of a Flower project, by its folder or its `pyproject.toml`."""
    project = path if path.is_dir() else path.parent
    file = project / "pyproject.toml"
    config = draft.parsed(file, run_config)
    found = draft.Draft("Flower", [str(file)])
    if config:
        found.unread.append(f"{file}: flwr run --run-config may change these values")
    rounds = config.get(ROUNDS)
    if type(rounds) is not int or rounds <= 0:
        rounds = None
        found.unread.append(f"{file}: no {ROUNDS}")
    return _read(found, project, config, rounds)


def run_config(text: str) -> dict[str, Any]:
    """The run configuration in a `pyproject.toml`, with nested keys joined by dots."""
    data: Any = tomllib.loads(text)
    for key in ("tool", "flwr", "app", "config"):
        data = data.get(key) if isinstance(data, dict) else None
    return flat(data) if isinstance(data, dict) else {}


def read_python(path: Path) -> draft.Draft:
    """The draft of a Python file or of a folder of them."""
    return _read(draft.Draft("a project"), path, {}, None)


def _read(
    found: draft.Draft, path: Path, config: Mapping[str, Any], rounds: int | None
) -> draft.Draft:
    files, left_out = sources(path)
    found.unread += left_out
    every = [call for file in files for call in calls(file, config, found.unread)]
    rounds = _unless_overridden(every, rounds, found.unread)
    for call in every:
        if call.name in CALLS:
            CALLS[call.name](found, call, rounds)
            found.files.append(call.place)
            if call.branched:
                found.unread.append(f"{call.place}: {call.name} {draft.BRANCHED}")
    if not found.releases:
        found.unread.append(f"{path}: no call that adds noise was found by its name")
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


def _values(found: draft.Draft, call: FoundCall, *names: str) -> list[Any]:
    """The values of arguments by name or position; each that is not known is listed."""
    values = [call.value(name, place) for place, name in enumerate(names)]
    for name, value in zip(names, values):
        if value is None:
            found.unread.append(f"{call.place}: {name} is computed by the code")
    return values


def _strategy(found: draft.Draft, call: FoundCall, rounds: int | None) -> None:
    multiplier, bound = call.value("noise_multiplier", 1), call.value("clipping_norm", 2)
    found.releases.append(
        draft.release(
            f"average update, {call.place}",
            scope="all",
            contributor=s.CLIENT,
            times=rounds,
            clip=draft.product(bound),
            noise=draft.noise(
                s.GAUSSIAN, deviation=draft.product(multiplier, bound), added_by=s.BY_SERVER
            ),
        )
    )


def _adaptive(found: draft.Draft, call: FoundCall, rounds: int | None) -> None:
    found.releases.append(draft.release(f"average update, {call.place}"))
    found.unread.append(f"{call.place}: adaptive clipping is not described")


def _local(found: draft.Draft, call: FoundCall, rounds: int | None) -> None:
    names = ("clipping_norm", "sensitivity", "epsilon", "delta")
    bound, sensitivity, epsilon, delta = _values(found, call, *names)
    deviation = None
    if draft.product(sensitivity, epsilon, delta) is not None and delta < 1.25:
        deviation = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    found.claims.append(
        draft.statement(epsilon=draft.product(epsilon), delta=draft.product(delta), observer=SERVER)
    )
    found.releases.append(
        draft.release(
            f"update of a client, {call.place}",
            scope="all",
            contributor=s.CLIENT,
            times=rounds,
            clip=draft.product(bound),
            tensors=1,
            noise=draft.noise(s.GAUSSIAN, deviation=deviation, added_by=s.BY_CLIENTS),
        )
    )


def _opacus(found: draft.Draft, call: FoundCall, rounds: int | None) -> None:
    multiplier, bound = call.value("noise_multiplier"), call.value("max_grad_norm")
    flat = not call.has("clipping") or call.value("clipping") == "flat"
    sampled = not call.has("poisson_sampling") or call.value("poisson_sampling") is True
    found.releases.append(
        draft.gradients(
            f"gradients, {call.place}",
            clip=draft.product(bound) if flat else None,
            tensors=1 if flat else None,
            noise=draft.noise(
                s.GAUSSIAN,
                deviation=draft.product(multiplier, bound) if flat else None,
                added_by=s.BY_HOLDER,
            ),
            sampling=draft.poisson(None) if sampled else None,
        )
    )
    for name in ("max_grad_norm", "noise_multiplier")[: 1 if call.name == TARGET else 2]:
        if call.value(name) is None:
            found.unread.append(f"{call.place}: {name} is computed by the code")
    for name in ("noise_generator", "clipping", "poisson_sampling"):
        if call.has(name):
            found.unread.append(f"{call.place}: {name} is given; check what it does")
    if call.name == TARGET:
        epsilon, delta = (
            draft.product(call.value(name)) for name in ("target_epsilon", "target_delta")
        )
        found.claims.append(draft.statement(epsilon=epsilon, delta=delta, unit=s.RECORD))
        found.unread.append(f"{call.place}: Opacus computes the noise when it runs")


def _tff(found: draft.Draft, call: FoundCall, rounds: int | None) -> None:
    fixed = call.name == "gaussian_fixed"
    bound = call.value("clip", 2) if fixed else None
    deviation = draft.product(call.value("noise_multiplier", 0), bound)
    found.releases.append(
        draft.release(
            f"sum of updates, {call.place}",
            scope="all",
            contributor=s.USER,
            clip=draft.product(bound),
            tensors=1,
            noise=draft.noise(s.GAUSSIAN, deviation=deviation, added_by=s.BY_SERVER),
        )
    )
    if not fixed:
        found.unread.append(f"{call.place}: the clipping bound adapts while it runs")


CALLS: dict[str, Callable[[draft.Draft, FoundCall, int | None], None]] = {
    "DifferentialPrivacyServerSideFixedClipping": _strategy,
    "DifferentialPrivacyClientSideFixedClipping": _strategy,
    "DifferentialPrivacyServerSideAdaptiveClipping": _adaptive,
    "DifferentialPrivacyClientSideAdaptiveClipping": _adaptive,
    "LocalDpMod": _local,
    "make_private": _opacus,
    TARGET: _opacus,
    "dp_aggregator": _tff,
    "gaussian_adaptive": _tff,
    "gaussian_fixed": _tff,
}
