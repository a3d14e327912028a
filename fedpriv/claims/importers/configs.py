"""Configuration files and command lines: pfl-research, NVFlare, FLamby, PFLlib."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.claims.plain_yaml import load
from fedpriv.errors import DataError
from fedpriv.util.plain_numbers import plain_number

FILTERS = ("SVTPrivacy", "PercentilePrivacy", "ExcludeVars", "GaussianPrivacy")


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
            epsilon=_positive(data.get("central_epsilon")),
            delta=_positive(data.get("central_delta")),
            unit=s.USER,
        )
    )
    accounted = _positive(data.get("noise_cohort_size")) or _positive(data.get("cohort_size"))
    population = _positive(data.get("population"))
    rate = accounted / population if accounted and population else None
    times = _positive(data.get("central_num_iterations"))
    found.releases.append(
        draft.release(
            "sum of updates",
            scope="all",
            contributor=s.USER,
            times=int(times) if times else None,
            participation=int(times) if times else None,
            clip=_positive(data.get("central_privacy_clipping_bound")),
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
    try:
        data = json.loads(path.read_bytes()[: 2**21])
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"{path}: not read: {reason}") from error
    found = draft.Draft("NVFlare", [str(path)])
    chains = data.get("task_result_filters", []) if isinstance(data, dict) else []
    for chain in chains if isinstance(chains, list) else []:
        filters = chain.get("filters", []) if isinstance(chain, dict) else []
        for item in filters if isinstance(filters, list) else []:
            item = item if isinstance(item, dict) else {}
            name = str(item.get("path") or item.get("name") or "?").rpartition(".")[2]
            args = item.get("args")
            epsilon = args.get("epsilon") if isinstance(args, dict) else None
            found.releases.append(draft.release(f"result after {name}", contributor=s.CLIENT))
            if _positive(epsilon):
                found.claims.append(draft.statement(epsilon=_positive(epsilon), observer="server"))
            known = "is not described by the schema" if name in FILTERS else "is not known"
            found.unread.append(f"{path}: the filter {name} {known}")
    if not found.releases:
        found.unread.append(f"{path}: no result filter; training code may add noise")
    return found


def read_arguments(path: Path) -> draft.Draft:
    """FLamby's and PFLlib's command lines: a file with one `python ...` line.

    FLamby gives Opacus a target, see `fedpriv.claims.importers.opacus`; PFLlib adds no noise.
    """
    try:
        words = shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not read: {' '.join(str(error).split())[:120]}") from error
    found = draft.Draft("a command line", [str(path)])
    options = _options(words)
    target = options.get("--dp_target_epsilon")
    if target is None:
        found.unread.append(f"{path}: no --dp_target_epsilon, so that nothing is noised")
        found.releases.append(draft.release("updates", noise={"mechanism": s.NO_NOISE}))
        return found
    delta = _positive(_number(options.get("--dp_target_delta")))
    found.claims.append(
        draft.statement(epsilon=_positive(_number(target)), delta=delta, unit=s.RECORD)
    )
    found.releases.append(
        draft.release(
            "gradients",
            contributor=s.RECORD,
            clip=_positive(_number(options.get("--dp_max_grad_norm"))),
            tensors=1,
            weight=1.0,
            weights=s.FIXED,
            denominator=s.FIXED,
            noise=draft.noise(s.GAUSSIAN, added_by=s.BY_HOLDER),
            sampling=draft.poisson(None),
        )
    )
    found.unread.append(f"{path}: Opacus computes the noise when it runs, for as many epochs as "
                        "there are rounds; count the steps")  # fmt: skip
    return found


def _options(words: list[str]) -> dict[str, str]:
    """The options of a command line. One that is given twice is not known."""
    found: dict[str, list[str]] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            after = words[place + 1] if place + 1 < len(words) else ""
            found.setdefault(name, []).append(value if equals else after)
    return {name: values[0] if len(values) == 1 else "" for name, values in found.items()}


def _number(text: Any) -> float | None:
    try:
        return plain_number(text)
    except (TypeError, ValueError):
        return None


def _positive(value: Any) -> float | None:
    """A positive finite number as it is, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if fits and 0 < value < 1e100 else None
