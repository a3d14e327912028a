"""What a report recomputes, since a folder's files may have been edited after the run.

None of this proves that a training has happened. The owner of a folder can write all of its files
so that they agree. It finds files that contradict each other, and epsilons that do not follow from
the settings.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import DataError, FedprivError
from fedpriv.reports.assessment import folder_files as files
from fedpriv.reports.assessment.folder_files import Facts
from fedpriv.reports.assessment.run_facts import headline
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.stored_config import read_config, rounds_repeated
from fedpriv.runs.tables import MARKED
from fedpriv.settings.experiment import build
from fedpriv.util.untrusted_files import read_bytes

AGREES, CONTRADICTS, UNKNOWN = "agrees", "contradicts", "not checked"
CLOSE = 1e-6
"""Relative difference of two epsilons that counts as rounding."""
MOST_ROUNDS = 10_000
"""Rounds that are accounted one by one; a longer run whose rounds differ is not recomputed."""
TABLES = "fedpriv.data.table."
"""Beginning of the names of data sets that need a schema file, or else their records."""
FINEST = 1e-5
"""Finest grid of losses that is recomputed: a finer one could fill the memory."""


def checks(folder: Path, facts: Facts, *, recompute: bool) -> list[Facts]:
    """Each check of a run with its result: `agrees`, `contradicts` or `not checked`, and why.

    recompute: whether to account the settings' epsilons again.
    """
    settings = files.read_settings(folder)
    found = [*_labels(facts, settings), *_checkpoint(folder)]
    if recompute:
        found.append(_epsilons(folder, facts))
    return found


def contradictions(facts: Facts) -> list[str]:
    """The checks of a run that its files fail."""
    return [
        f"{check['what']}: {check['why']}"
        for check in facts["checks"]
        if check["result"] == CONTRADICTS
    ]


def _check(what: str, result: str, why: str = "") -> Facts:
    return {"what": what, "result": result, "why": why}


def _agreement(what: str, agrees: bool, otherwise: str) -> Facts:
    return _check(what, AGREES) if agrees else _check(what, CONTRADICTS, otherwise)


def _labels(facts: Facts, settings: Mapping[str, Any]) -> Iterator[Facts]:
    """status.json against config.yaml and epsilon.csv."""
    for name in ("randomness", "rounds"):
        what = f"{name} in status.json and config.yaml"
        stored, said = files.text(settings.get(name)), files.text(facts[name])
        if not settings:
            yield _check(what, UNKNOWN, "there is no config.yaml")
        else:
            yield _agreement(what, stored == said, f"{said or 'nothing'} and {stored or 'nothing'}")
    what = "dp_valid in status.json and the certificate in epsilon.csv"
    why = _not_private(facts)
    yield _agreement(what, not (facts["dp_valid"] and why), f"dp_valid is true, but {why}")


def _not_private(facts: Facts) -> str:
    """Why a run cannot protect anybody; empty if nothing speaks against it."""
    row = headline(facts)
    if facts["randomness"] != "system":
        return "the noise comes from a seed"
    if row is None or row["certified"] == "inf":
        return "nothing is certified"
    if row["status"] != "enforced":
        return f"the certificate is {row['status'] or 'of unknown status'}"
    if facts["users"]["from"] == "invented" and row["unit"] == "user":
        return "the certificate speaks of invented users"
    if row["round"] < facts["rounds_done"]:
        return f"epsilon.csv ends with round {row['round']} of {facts['rounds_done']}"
    return ""


def _checkpoint(folder: Path) -> Iterator[Facts]:
    """Settings and tables against the digests in the checkpoint."""
    path = folder / "checkpoint.safetensors"
    what = "settings and tables, and their digests in the checkpoint"
    if not path.exists():
        yield _check(what, UNKNOWN, "there is no checkpoint")
        return
    try:
        saved = Checkpoint.read(path)
        changed = saved.origin.differences(Origin.of_values(files.read_settings(folder)))
        marks = saved.tables
        others = [name for name in MARKED if not _unchanged(folder / name, marks.get(name))]
    except (FedprivError, OSError, ValueError) as error:
        yield _check(what, CONTRADICTS, files.text(error))
        return
    altered = ", ".join(map(files.text, [*(f"config.yaml ({key})" for key in changed), *others]))
    yield _agreement(what, not altered, f"changed since: {altered}")


def _unchanged(path: Path, mark: tuple[int, str] | None) -> bool:
    """Whether a table begins with the bytes that the checkpoint marks; None: no such table."""
    if mark is None or not path.is_file():
        return not path.exists() and (mark is None or not mark[0])
    size, digest = mark
    content = read_bytes(path, files.TABLE_BYTES)[:size]
    return len(content) == size and hashlib.sha256(content).hexdigest() == digest


def _epsilons(folder: Path, facts: Facts) -> Facts:
    """The certified epsilons after the last round, accounted anew from the settings."""
    what = "certified epsilons in epsilon.csv, accounted anew from the settings"
    if not facts["epsilons"]:
        return _check(what, UNKNOWN, "epsilon.csv has no row")
    try:
        known, why = _recomputed(folder, facts)
    except DataError:  # its text may show what a file on this machine holds
        return _check(what, UNKNOWN, "the schema of the table could not be read")
    except (FedprivError, ValueError, TypeError, KeyError, ArithmeticError, MemoryError) as error:
        known, why = {}, files.text(f"{type(error).__name__}: {error}")
    if why:
        return _check(what, UNKNOWN, why)
    wrong = []
    for row in facts["epsilons"]:
        about = row["observer"], row["unit"], row["adjacency"], row["group"]
        stated = math.inf if row["certified"] == "inf" else row["certified"]
        anew = known.get(about, math.inf)
        if stated < anew * (1 - CLOSE):
            wrong.append(f"{row['observer']}, {row['unit']}: {stated:.6g} stated, {anew:.6g} anew")
    return _agreement(what, not wrong, "; ".join(wrong))


def _recomputed(folder: Path, facts: Facts) -> tuple[dict[tuple[str, ...], float], str]:
    """The smallest certificate of each observer, unit, adjacency and group; or why there is none.

    Reads no records, and imports no class outside fedpriv: the settings may name any file of this
    machine.
    """
    config = _with_known_numbers(read_config(folder), facts)
    if config is None:
        return {}, "they depend on records, which this report does not read"
    exp = build(config, trust_code=False)
    chooses = type(exp.algo).training_records is not Algorithm.training_records
    if exp.algo.contributors.needs_sizes or chooses:
        return {}, "they depend on who owns which records, which this report does not read"
    last = facts["epsilons"][0]["round"]
    if last > MOST_ROUNDS and not exp.rounds_alike:
        return {}, f"it has more than {MOST_ROUNDS} different rounds"
    if getattr(exp.accountant, "value_discretization_interval", 1.0) < FINEST:
        return {}, f"the accountant's grid is finer than {FINEST:g}"
    repeated = rounds_repeated(folder, system=exp.options.system)
    found: dict[tuple[str, ...], float] = {}
    for row in EpsilonForecast.of(exp, repeated=repeated).rows_at([last]):
        about = row.observer, row.unit, row.adjacency, row.group
        found[about] = min(row.certified, found.get(about, math.inf))
    return found, ""


def _with_known_numbers(config: dict[str, Any], facts: Facts) -> dict[str, Any] | None:
    """The settings with the public numbers of users and silos that the run stated, where they leave
    them to the data; None if only records say what is needed."""
    data, allocator = config.get("data"), config.get("allocator")
    if not isinstance(data, dict) or not isinstance(allocator, dict):
        return config  # refused where it is built
    if str(data.get("_target_")).startswith(TABLES) and data.get("schema") is None:
        return None
    stated = {name: facts["users"][name] for name in ("n_users", "n_silos")}
    open_ended = [name for name in stated if name in allocator and allocator[name] is None]
    if any(stated[name] is None for name in open_ended):
        return None
    return config | {"allocator": allocator | {name: stated[name] for name in open_ended}}
