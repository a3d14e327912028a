"""Configuration files and command lines: Flower, pfl-research, NVFlare, FLamby, PFLlib."""

from __future__ import annotations

import json
import shlex
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.claims.plain_yaml import load
from fedpriv.errors import DataError
from fedpriv.util.plain_numbers import plain_number

ROUNDS = "num-server-rounds"
FILTERS = ("SVTPrivacy", "PercentilePrivacy", "ExcludeVars", "GaussianPrivacy")


def read_flower(path: Path) -> draft.Draft:
    """Flower: the run configuration in a `pyproject.toml`. Bounds and noise are in code."""
    data: Any = draft.parsed(path, tomllib.loads)
    for key in ("tool", "flwr", "app", "config"):
        data = data.get(key) if isinstance(data, dict) else None
    rounds = data.get(ROUNDS) if isinstance(data, dict) else None
    known = rounds if type(rounds) is int and rounds > 0 else None
    found = draft.Draft("Flower", [str(path)])
    found.releases.append(
        draft.release("average update", scope="all", contributor=s.CLIENT, times=known)
    )
    found.unread.append(f"{path}: flwr run --run-config may change {ROUNDS}, if it is here")
    found.unread.append(f"{path}: bounds and noise are in code; {draft.RECORD_IT}")
    return found


def read_pfl(path: Path) -> draft.Draft:
    """pfl-research: the YAML of a benchmark. The noise is calibrated when it runs."""
    data = load(path)
    if not isinstance(data, dict):
        raise DataError(f"{path}: expected a mapping of keys to values")
    found = draft.Draft("pfl-research", [str(path)])
    mechanism = data.get("central_privacy_mechanism")
    if mechanism == "none":
        found.unread.append(f"{path}: central_privacy_mechanism is none, so that nothing is noised")
        found.releases.append(
            draft.release("sum of updates", contributor=s.USER, noise={"mechanism": s.NO_NOISE})
        )
        return found
    found.claims.append(
        draft.statement(
            epsilon=draft.product(data.get("central_epsilon")),
            delta=draft.product(data.get("central_delta")),
            unit=s.USER,
        )
    )
    accounted = draft.product(data.get("noise_cohort_size")) or draft.product(
        data.get("cohort_size")
    )
    population = draft.product(data.get("population"))
    rate = accounted / population if accounted and population else None
    times = draft.product(data.get("central_num_iterations"))
    found.releases.append(
        draft.release(
            "sum of updates",
            scope="all",
            contributor=s.USER,
            times=int(times) if times else None,
            participation=int(times) if times else None,
            clip=draft.product(data.get("central_privacy_clipping_bound")),
            tensors=1,
            noise=draft.noise(s.GAUSSIAN, added_by=s.BY_SERVER),
            sampling=draft.poisson(rate) if rate is None or rate <= 1 else None,
        )
    )
    found.unread.append(f"{path}: the noise of {mechanism} is computed when it runs")
    if "noise_cohort_size" in data:
        found.unread.append(
            f"{path}: the accounted cohort (noise_cohort_size) is not the one that runs; check "
            "the rate"
        )
    return found


def read_nvflare(path: Path) -> draft.Draft:
    """NVFlare: the JSON of a client's configuration, with its privacy filters."""
    data = draft.parsed(path, json.loads)
    found = draft.Draft("NVFlare", [str(path)])
    try:
        chains = [chain["filters"] for chain in data.get("task_result_filters", [])]
        filters = [
            (str(item.get("path") or item["name"]).rpartition(".")[2], item.get("args", {}))
            for chain in chains
            for item in chain
        ]
        epsilons = [draft.product(args.get("epsilon")) for _, args in filters]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{path}: no configuration of an NVFlare client") from error
    for (name, _), epsilon in zip(filters, epsilons):
        found.releases.append(draft.release(f"result after {name}", contributor=s.CLIENT))
        if epsilon:
            found.claims.append(draft.statement(epsilon=epsilon, observer="server"))
        known = "is not described by the schema" if name in FILTERS else "is not known"
        found.unread.append(f"{path}: the filter {name} {known}")
    if not found.releases:
        found.unread.append(f"{path}: no result filter; training code may add noise")
    return found


def read_arguments(path: Path) -> draft.Draft:
    """FLamby's and PFLlib's command lines: a file with one `python ...` line.

    FLamby gives Opacus a target; PFLlib adds no noise.
    """
    words = draft.parsed(path, partial(shlex.split, comments=True))
    found = draft.Draft("a command line", [str(path)])
    options = _options(words)
    target = options.get("--dp_target_epsilon")
    if target is None:
        found.unread.append(f"{path}: no --dp_target_epsilon, so that nothing is noised")
        found.releases.append(draft.release("updates", noise={"mechanism": s.NO_NOISE}))
        return found
    epsilon, delta, clip = (
        _number(options.get(f"--dp_{name}"))
        for name in ("target_epsilon", "target_delta", "max_grad_norm")
    )
    found.claims.append(draft.statement(epsilon=epsilon, delta=delta, unit=s.RECORD))
    found.releases.append(
        draft.gradients(
            "gradients",
            clip=clip,
            tensors=1,
            noise=draft.noise(s.GAUSSIAN, added_by=s.BY_HOLDER),
            sampling=draft.poisson(None),
        )
    )
    found.unread.append(f"{path}: Opacus computes the noise when it runs, for as many epochs as "
                        "there are rounds; count the steps")  # fmt: skip
    return found


def _options(words: list[str]) -> dict[str, str]:
    """The options of a command line. One that is given twice is not known."""
    found: dict[str, str] = {}
    for word, after in zip(words, [*words[1:], ""]):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = "" if name in found else value if equals else after
    return found


def _number(text: str | None) -> float | None:
    """The positive number that an option gives; None if it gives none."""
    try:
        return draft.product(plain_number(text))
    except (TypeError, ValueError):
        return None
